"""The listeners of a Pulsar broker, from `advertisedListeners` of its broker.conf.

  >>> parse_listeners("advertisedListeners", "in:pulsar://10.0.0.1:6650,out:pulsar://b.org:6650")
  {'in': '10.0.0.1:6650', 'out': 'b.org:6650'}

Source: Pulsar's MultipleListenerValidator. Addresses of other protocols are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ledgerfold.storage.errors import InvalidRequest

INTERNAL_LISTENER = "internalListenerName"
LISTENERS_MAX = 100
_LISTENER = re.compile(r"(?P<name>[-.\w]+):(?P<scheme>[-+.\w]+)://(?P<address>[^\s/,]+:\d{1,5})/?")


def parse_listeners(setting: str, text: str, scheme: str = "pulsar") -> dict[str, str]:
    """Returns the addresses by the listeners' names. Raises InvalidRequest."""
    parts, found = text.split(","), dict[str, str]()
    if len(parts) > LISTENERS_MAX:
        raise InvalidRequest(f"{setting} has {len(parts)} parts; the maximum is {LISTENERS_MAX}.")
    for part in parts:
        match = _LISTENER.fullmatch(part.strip())
        if match is None:
            raise InvalidRequest(
                f"{setting}: {part[:100]!r} is not NAME:pulsar://HOST:PORT, separated by commas."
            )
        if match["scheme"] == scheme:
            if match["name"] in found:
                raise InvalidRequest(f"{setting}: {match['name']!r} has two addresses.")
            found[match["name"]] = match["address"]
    return found


def with_internal(listeners: Mapping[str, str], name: str) -> dict[str, str]:
    """Returns the listeners with the internal one first. Raises InvalidRequest."""
    if name not in listeners:
        raise InvalidRequest(f"{INTERNAL_LISTENER}={name[:100]} is not in advertisedListeners.")
    return {name: listeners[name], **listeners}

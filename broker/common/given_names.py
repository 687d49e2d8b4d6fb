"""Rules for names chosen by clients: of subscriptions, producers, consumers and properties.

Pulsar accepts almost anything: spaces, slashes, any script. So does this broker, except names that
cannot be distinguished, listed or typed: empty names, "." and "..", control characters and line
ends, and more than NAME_CHARACTERS_MAX characters.

Names are checked when they are created. The metadata may contain other names, which an earlier
version accepted. They remain valid, and are listed and addressed by a substitute.

  >>> check_name("A subscription", "my/own sub ü")
  >>> check_name("A subscription", "..")
  Traceback (most recent call last):
    ...
  ledgerfold.errors.InvalidRequest: A subscription cannot be named '..': ...
  >>> shown("fine"), shown("two\\nlines")
  ('fine', 'two?lines~edc8c128')
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from ledgerfold.broker.common.names import TopicName
from ledgerfold.storage.errors import InvalidRequest

NAME_CHARACTERS_MAX = 1024
PROPERTIES_MAX = 100
PROPERTIES_CHARACTERS_MAX = 16 * 1024
# Control characters and other line ends.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_STAND_IN = re.compile(r"\.[0-9a-f]{8}/")
_NO_NAMES = ("", ".", "..")
_SHOWN_CHARACTERS = 40
_HASH_DIGITS = 8


def check_name(kind: str, name: str) -> None:
    """Raises InvalidRequest for an invalid name. `kind`: the subject of the error's sentence."""
    why = _why_not(name)
    if why:
        raise InvalidRequest(f"{kind} cannot be named {name!r}: {why}.")


def _why_not(name: str) -> str:
    if name in _NO_NAMES:
        return "a name cannot be empty, '.' or '..'"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"it has {len(name)} characters; the maximum is {NAME_CHARACTERS_MAX}"
    if _CONTROL.search(name):
        return "it contains control characters or line ends"
    return ""


def check_topic(name: str) -> None:
    """Checks the tenant and namespace of a full name. Raises InvalidRequest.

    The format of names (names.py) bounds the last part.
    """
    parsed = TopicName.parse(name)
    check_namespace(parsed.namespace)


def check_namespace(name: str) -> None:
    """Checks "tenant/namespace". Raises InvalidRequest."""
    tenant, _, namespace = name.partition("/")
    check_name("A tenant", tenant)
    check_name("A namespace", namespace)


def check_properties(kind: str, properties: Mapping[str, str]) -> None:
    """Raises InvalidRequest for an invalid key, or too many or too long properties."""
    for key in properties:
        check_name(f"A property of {kind}", key)
    characters = sum(map(len, properties)) + sum(map(len, properties.values()))
    if len(properties) > PROPERTIES_MAX or characters > PROPERTIES_CHARACTERS_MAX:
        raise InvalidRequest(
            f"The {len(properties)} properties of {kind} have {characters} characters. "
            f"The limit is {PROPERTIES_MAX} properties with {PROPERTIES_CHARACTERS_MAX} characters."
        )


def shown(name: str) -> str:
    """Returns the name for display: itself, or a stand-in if it would be refused today."""
    return _stand_in(name, "?", "~") if _why_not(name) else name


def shown_topic(name: str) -> str:
    """Returns the display name of a topic or partition, given its full name."""
    parsed = TopicName.parse(name)
    tenant, namespace = (
        _stand_in(part, ".", ".") if _why_not(part) else part
        for part in (parsed.tenant, parsed.namespace_local)
    )
    if (tenant, namespace) == (parsed.tenant, parsed.namespace_local):
        return name
    return str(parsed._replace(tenant=tenant, namespace_local=namespace))


def is_stand_in(topic: str) -> bool:
    """Returns whether a full name may be a result of shown_topic() for another one."""
    return _STAND_IN.search(topic) is not None


def called(name: str, names: Iterable[str]) -> str | None:
    """Returns which of the stored `names` is displayed as `name`."""
    return next((each for each in names if shown(each) == name), None)


def _stand_in(name: str, instead: str, before_hash: str) -> str:
    """Returns the beginning of a name and a hash that distinguishes it."""
    hashed = hashlib.sha256(name.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{_CONTROL.sub(instead, name[:_SHOWN_CHARACTERS])}{before_hash}{hashed}"

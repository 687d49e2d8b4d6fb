"""A Kafka topic's settings in a file: what Kafka's tools show of the topic, or `NAME=VALUE` lines.

    >>> settings_in("Dynamic configs for topic orders are:\\n  segment.ms=5 sensitive=false "
    ...             "synonyms={DYNAMIC_TOPIC_CONFIG:segment.ms=5}")
    {'segment.ms': '5'}
    >>> settings_in("Topic: orders\\tConfigs: cleanup.policy=compact,delete,segment.ms=5")
    {'cleanup.policy': 'compact,delete', 'segment.ms': '5'}
    >>> settings_in("# of the topic\\nsegment.ms = 5")
    {'segment.ms': '5'}

`kafka-configs.sh --describe --entity-type topics --entity-name orders` shows one a line, with
`--all` also those that are the broker's, which are left out; `kafka-topics.sh --describe` shows all
in one line.
"""

from __future__ import annotations

import re
from pathlib import Path

from ledgerfold.broker.cli.properties import read_properties
from ledgerfold.storage.errors import InvalidRequest

_DESCRIBED = re.compile(r"^\s+([\w.]+)=(.*) sensitive=\w+ synonyms=\{(.*)\}\s*$", re.MULTILINE)
_OWN = "DYNAMIC_TOPIC_CONFIG:"
_IN_ONE_LINE = re.compile(r"^Topic: .*\bConfigs: *(\S*)\s*$", re.MULTILINE)


def read_settings(path: Path) -> dict[str, str]:
    """Raises InvalidRequest, naming the file, when there are none; OSError."""
    found = settings_in(path.read_text("utf-8", "replace"))
    if not found:
        raise InvalidRequest(
            f"{path} holds no settings of a topic: it is what kafka-configs.sh --describe shows, "
            "or has lines NAME=VALUE."
        )
    return found


def settings_in(text: str) -> dict[str, str]:
    described = _DESCRIBED.findall(text)
    if described:
        return {name: value for name, value, synonyms in described if _OWN in synonyms}
    line = _IN_ONE_LINE.search(text)
    if line is not None:
        pairs = re.split(r",(?=[\w.]+=)", line[1]) if line[1] else []
        return {name: value for name, _, value in (each.partition("=") for each in pairs)}
    return read_properties(text)

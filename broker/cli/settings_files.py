r"""Settings in files: Java's property files, and the output of Kafka's tools.

    >>> read_properties("# logs\nlog.roll.hours = 1\nlisteners:a,\\\n    b\n")
    {'log.roll.hours': '1', 'listeners': 'a,b'}

A line is a name and a value, separated by `=`, `:` or blanks. A line that begins with `#` or `!` is
a comment; one that ends with a backslash continues on the next line. The last value of a name is
used.

Source: java.util.Properties.load, without its Unicode escapes.

    >>> settings_in("Dynamic configs for topic orders are:\n  segment.ms=5 sensitive=false "
    ...             "synonyms={DYNAMIC_TOPIC_CONFIG:segment.ms=5}")
    {'segment.ms': '5'}
    >>> settings_in("Topic: orders\tConfigs: cleanup.policy=compact,delete,segment.ms=5")
    {'cleanup.policy': 'compact,delete', 'segment.ms': '5'}
    >>> settings_in("# of the topic\nsegment.ms = 5")
    {'segment.ms': '5'}

`kafka-configs.sh --describe --entity-type topics --entity-name orders` prints one per line, with
`--all` also the broker's, which are ignored; `kafka-topics.sh --describe` prints all in one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ledgerfold.storage.errors import InvalidRequest

_PAIR = re.compile(r"((?:\\.|[^\\=:\s])+)(?:\s*[=:]\s*|\s+|$)(.*)", re.DOTALL)
_DESCRIBED = re.compile(r"^\s+([\w.]+)=(.*) sensitive=\w+ synonyms=\{(.*)\}\s*$", re.MULTILINE)
_OWN = "DYNAMIC_TOPIC_CONFIG:"
_IN_ONE_LINE = re.compile(r"^Topic: .*\bConfigs: *(\S*)\s*$", re.MULTILINE)


def read_properties(text: str) -> dict[str, str]:
    properties = {}
    for line in _logical_lines(text):
        match = _PAIR.fullmatch(line)
        if match is not None:
            properties[_plain(match[1])] = _plain(match[2])
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for line in text.splitlines():
        line = line.lstrip(" \t\f")
        if not pending and line[:1] in ("", "#", "!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def read_settings(path: Path) -> dict[str, str]:
    """Reads a topic's settings. Raises InvalidRequest, naming the file, if it has none; OSError."""
    settings = settings_in(path.read_text("utf-8", "replace"))
    if not settings:
        raise InvalidRequest(
            f"{path} has no topic settings: expected the output of kafka-configs.sh --describe, "
            "or NAME=VALUE lines."
        )
    return settings


def settings_in(text: str) -> dict[str, str]:
    """Returns a topic's settings in the output of Kafka's tools, or in a property file."""
    described = _DESCRIBED.findall(text)
    if described:
        return {name: value for name, value, synonyms in described if _OWN in synonyms}
    line = _IN_ONE_LINE.search(text)
    if line is not None:
        pairs = re.split(r",(?=[\w.]+=)", line[1]) if line[1] else []
        return {name: value for name, _, value in (each.partition("=") for each in pairs)}
    return read_properties(text)

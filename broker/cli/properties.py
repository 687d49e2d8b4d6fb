r"""Java's property files, as Kafka's server.properties is one.

    >>> read_properties("# logs\nlog.roll.hours = 1\nlisteners:a,\\\n    b\n")
    {'log.roll.hours': '1', 'listeners': 'a,b'}

A line is a name and a value, separated by `=`, `:` or blanks. A line that begins with `#` or `!` is
a comment; one that ends with a backslash continues on the next line. The last value of a name is
used.

Source: java.util.Properties.load, without its Unicode escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_PAIR = re.compile(r"((?:\\.|[^\\=:\s])+)(?:\s*[=:]\s*|\s+|$)(.*)", re.DOTALL)


def read_properties(text: str) -> dict[str, str]:
    found = {}
    for line in _logical_lines(text):
        match = _PAIR.fullmatch(line)
        if match is not None:
            found[_plain(match[1])] = _plain(match[2])
    return found


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

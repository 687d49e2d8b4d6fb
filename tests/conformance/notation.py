"""The catalogue's notation: histories as text.

    a=1            one message, published alone          a=∅   a tombstone (null value)
    [a=1 b=2]      one batch                             a=""  an empty value
    ~=x            no key                                ""=1  the empty key

    >>> [len(entry) for entry in parse('a=1 [b=2 c=∅] ~=x').entries]
    [1, 2, 1]

Ids in expectations are "E2" and "E2.1": entry and batch index in the order of publishing.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(r"\[|\]|[^\s\[\]]+")


class Sent(NamedTuple):
    """`key` None: no key. `value` None: a null value."""

    key: str | None
    value: bytes | None


class History(NamedTuple):
    """Entries in order; `batches` tells which of them were sent as batches."""

    entries: list[list[Sent]]
    batches: list[bool]


def parse(text: str) -> History:
    entries: list[list[Sent]] = []
    batches: list[bool] = []
    inside: list[Sent] | None = None
    for token in _TOKEN.findall(text):
        if token == "[":
            inside = []
        elif token == "]":
            assert inside, "a batch has messages"
            entries.append(inside)
            batches.append(True)
            inside = None
        elif inside is not None:
            inside.append(_sent(token))
        else:
            entries.append([_sent(token)])
            batches.append(False)
    assert inside is None, "a batch ends with ]"
    return History(entries, batches)


def _sent(token: str) -> Sent:
    key, found, value = token.partition("=")
    assert found, token
    name = None if key == "~" else key.strip('"')
    return Sent(name, None if value == "∅" else value.strip('"').encode())

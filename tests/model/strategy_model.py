"""The strategy `publishing-order` over a plain list of messages: the oracle for the compactor.

Written as Pulsar's compactor works, message by message with a map of keys, and not as ours does.

    >>> a1, a2, a_gone = Message(b"a", b"1"), Message(b"a", b"2"), Message(b"a", b"")
    >>> outcome = publishing_order([a1, a2, a_gone])
    >>> outcome.survivors, outcome.removed_events
    ([], 2)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Message(NamedTuple):
    """`key` None: no key. An empty value is a tombstone."""

    key: bytes | None
    value: bytes


@dataclass(frozen=True)
class Outcome:
    """Survivors are indexes into the messages, ascending."""

    survivors: list[int]
    removed_events: int
    tombstones: int
    null_keys: int
    keys: int


def publishing_order(messages: Sequence[Message], retain_null_key: bool = False) -> Outcome:
    """What is left of the messages, and what was counted on the way."""
    newest: dict[bytes, int] = {}
    kept: list[int] = []
    seen: set[bytes] = set()
    removed = tombstones = null_keys = 0
    for index, (key, value) in enumerate(messages):
        if key is None:
            null_keys += 1
            if retain_null_key:
                kept.append(index)
            else:
                removed += 1
            continue
        seen.add(key)
        if value:
            removed += key in newest
            newest[key] = index
        else:
            tombstones += 1
            removed += 1
            newest.pop(key, None)
    survivors = sorted([*kept, *newest.values()])
    return Outcome(survivors, removed, tombstones, null_keys, len(seen))

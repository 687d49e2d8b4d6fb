"""Strategic compaction over a plain list of messages: the oracle for the compactor.

Written like Pulsar's StrategicTwoPhaseCompactor: one ordered map of keys for the whole log.

    >>> from ledgerfold.strategies.ready_made import Numeric
    >>> log = [Said("a", b"5"), Said("a", b"3"), Said("a", b"7"), Said("a", b"6")]
    >>> outcome = strategic(log, Numeric())
    >>> [message.value for message in outcome.left], outcome.removed_events
    ([b'7'], 2)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from ledgerfold.strategies.strategic import TopicCompactionStrategy


@dataclass(frozen=True)
class Said:
    """A message as a strategy sees it; `key` None: no key."""

    key: str | None
    value: bytes
    properties: dict[str, str] = field(default_factory=dict)
    event_time_ms: int = 0
    publish_time_ms: int = 0
    message_id: tuple[int, int, int] = (-1, -1, -1)


@dataclass(frozen=True)
class Outcome:
    """`left`: in the order of their last acceptance."""

    left: list[Said]
    removed_events: int
    tombstones: int
    null_keys: int
    keys: int


def strategic(messages: Sequence[Said], strategy: TopicCompactionStrategy) -> Outcome:
    """Returns the remaining messages, and the counts."""
    cache: dict[str, Said] = {}
    seen: set[str] = set()
    events = tombstones = null_keys = 0
    for message in messages:
        if message.key is None:
            null_keys += 1
            events += 1
            continue
        seen.add(message.key)
        tombstones += not message.value
        if strategy.should_keep_left(cache.get(message.key), message):  # type: ignore[arg-type]
            skipped = getattr(strategy, "handle_skipped", None)
            if skipped is not None:
                skipped(message.key, message)
            continue
        events += 1
        cache.pop(message.key, None)
        if message.value:
            cache[message.key] = message
    return Outcome(list(cache.values()), events, tombstones, null_keys, len(seen))


def renumbered(ids: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Returns the survivors' new ids: from 0 on in each entry; a single one as if published alone.

    >>> renumbered([(1, 0, 0), (1, 0, 2), (1, 1, 4)])
    [(1, 0, 0), (1, 0, 1), (1, 1, -1)]
    """
    new: list[tuple[int, int, int]] = []
    for (ledger_id, entry_id), group in groupby(ids, key=lambda each: each[:2]):
        count = len(list(group))
        indexes = range(count) if count > 1 else [-1]
        new.extend((ledger_id, entry_id, index) for index in indexes)
    return new

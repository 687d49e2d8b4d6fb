"""A part of a read: entries that are read one after the other, by one process.

A part can be pickled, and read by a process that knows nothing else: Spark sends parts to its
tasks. The parts of a read are in the order of the log, partition after partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from ledgerfold.frames.query import Query
from ledgerfold.storage.entry import LATEST, Position
from ledgerfold.storage.stored_entries import StoredEntry

# The size that parts have, as far as segments and entries can be grouped so.
PART_BYTES = 64 * 1024 * 1024


class Part(Protocol):
    """A part. `partition` -1: the topic is not a partition."""

    @property
    def partition(self) -> int: ...

    @property
    def offsets(self) -> tuple[int, int] | None:
        """The first offset, and the end offset, of a Kafka topic's records; None on others."""
        ...

    def entries(self) -> Iterator[Sequence[StoredEntry]]:
        """Yields the entries in the range of the part, some at a time.

        Kafka's batches may have records outside of the part. Raises StorageError, ServiceError.
        """
        ...


def before(position: Position) -> Position:
    """Returns the end of a range, inclusive, that ends before `position`.

    >>> before(Position(12, 3)), before(LATEST) == LATEST
    (Position(ledger_id=12, entry_id=2), True)
    """
    if position == LATEST:
        return LATEST
    return Position(position.ledger_id, max(position.entry_id, 0) - 1)


def narrowed(query: Query, first: int, end: int) -> tuple[int, int]:
    """Returns the offsets of the read that are in a range. Kafka's records are in ledger 0."""
    if query.start.ledger_id > 0:
        return end, end
    end_id = LATEST.entry_id if query.end.ledger_id > 0 else query.end.entry_id
    return max(query.start.entry_id, first, 0), min(end_id, end)


class Span(NamedTuple):
    """Neighbouring entries, or offsets of a Kafka topic, and their size."""

    first: Position
    entries: int
    size_bytes: int


def divided(
    spans: Iterable[Span], start: Position, end: Position, part_bytes: int
) -> Iterator[tuple[Position, Position]]:
    """Yields ranges of about `part_bytes`, both ends inclusive, from `start` to `end`.

    The entries of a span count as equally large.

    >>> spans = [Span(Position(1, 0), 3, 30), Span(Position(4, 0), 2, 20)]
    >>> for low, high in divided(spans, Position(1, 0), Position(4, 1), 20):
    ...     print(*low, "to", *high)
    1 0 to 1 1
    1 2 to 4 0
    4 1 to 4 1
    """
    low, left = start, float(part_bytes)
    for first, entries, size_bytes in spans:
        behind = Position(first.ledger_id, first.entry_id + entries)
        if behind <= start or first > end:
            continue
        entry_bytes = max(size_bytes, 1) / max(entries, 1)
        at = max(low, first)
        while (behind.entry_id - at.entry_id) * entry_bytes > left:
            at = Position(at.ledger_id, at.entry_id + max(int(left / entry_bytes), 1))
            if at > end:
                break
            yield low, before(at)
            low, left = at, float(part_bytes)
        left -= (behind.entry_id - at.entry_id) * entry_bytes
    yield low, end

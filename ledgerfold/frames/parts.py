"""A part of a read: entries that are read one after the other, by one process.

A part can be pickled, and read by a process that knows nothing else: Spark sends parts to its
tasks. The parts of a read are in the order of the log, partition after partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

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

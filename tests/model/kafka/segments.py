"""A segment: batches in order, an offset index, a time index, an index of aborted transactions.

The indexes matter: their sizes limit groups and roll segments, and a cleaning that begins inside a
segment begins at the preceding index entry.

    >>> segment = Segment(5, created_ms=0)
    >>> segment.size, segment.next_offset, segment.largest_timestamp_ms(9)
    (0, 5, 9)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.model.kafka.batches import Batch
from tests.model.kafka.settings import TopicSettings

OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES = 8, 12
SPAN_MAX = 2**31 - 1


class Aborted(NamedTuple):
    """`stable`: the last stable offset when it was written, without this transaction."""

    pid: int
    first: int
    last: int
    stable: int


@dataclass
class Segment:
    """`offset_index`: (last offset, position) of some batches. `time_index`: (time, offset)."""

    base: int
    created_ms: int
    modified_ms: int = 0
    batches: list[Batch] = field(default_factory=list)
    offset_index: list[tuple[int, int]] = field(default_factory=list)
    time_index: list[tuple[int, int]] = field(default_factory=list)
    aborted: list[Aborted] = field(default_factory=list)
    # State in memory only: the largest timestamp with its offset, the bytes since an index entry.
    largest: tuple[int, int] = (-1, -1)
    unindexed_bytes: int = 0

    @property
    def size(self) -> int:
        return sum(batch.size for batch in self.batches)

    @property
    def next_offset(self) -> int:
        return self.batches[-1].next if self.batches else self.base

    @property
    def offset_index_bytes(self) -> int:
        return len(self.offset_index) * OFFSET_ENTRY_BYTES

    @property
    def time_index_bytes(self) -> int:
        return len(self.time_index) * TIME_ENTRY_BYTES

    def first_timestamp(self) -> int:
        """Returns the first batch's largest timestamp, -1 without a batch."""
        return self.batches[0].max_timestamp if self.batches else -1

    def largest_timestamp_ms(self, modified_ms: int | None = None) -> int:
        """If no record has a timestamp, the file's time."""
        if self.largest[0] >= 0:
            return self.largest[0]
        return self.modified_ms if modified_ms is None else modified_ms

    # Growing

    def append(self, batch: Batch, settings: TopicSettings) -> None:
        position = self.size
        self._see(batch)
        if self.unindexed_bytes > settings.index_interval_bytes:
            self.offset_index.append((batch.last, position))
            self._add_time()
            self.unindexed_bytes = 0
        self.batches.append(batch)
        self.unindexed_bytes += batch.size

    def _see(self, batch: Batch) -> None:
        if batch.max_timestamp > self.largest[0]:
            self.largest = (batch.max_timestamp, batch.last)

    def _add_time(self) -> None:
        """Adds only times later than the last entry's."""
        if self.largest[0] > (self.time_index[-1][0] if self.time_index else -1):
            self.time_index.append(self.largest)

    def close(self) -> None:
        """Called when the segment is no longer active, and when its log is closed."""
        self._add_time()

    def is_index_full(self, settings: TopicSettings) -> bool:
        return (
            len(self.offset_index) >= settings.index_bytes // OFFSET_ENTRY_BYTES
            or len(self.time_index) >= settings.index_bytes // TIME_ENTRY_BYTES - 1
        )

    # Reading

    def position_of(self, offset: int) -> int:
        """Returns the position at which a search for an offset starts: the last index entry at or
        below it.
        """
        return max((where for last, where in self.offset_index if last <= offset), default=0)

    def batches_from(self, position: int) -> list[Batch]:
        found, at = [], 0
        for batch in self.batches:
            if at >= position:
                found.append(batch)
            at += batch.size
        return found

    # Shrinking, loading

    def truncate(self, offset: int, now_ms: int) -> None:
        self.batches = [batch for batch in self.batches if batch.last < offset]
        self.offset_index = [entry for entry in self.offset_index if entry[0] < offset]
        self.time_index = [entry for entry in self.time_index if entry[1] < offset]
        self.aborted = [txn for txn in self.aborted if txn.last < offset]
        self.modified_ms = now_ms
        self.unindexed_bytes = 0
        if not self.batches:
            self.created_ms = now_ms
        self._look_for_largest()

    def _look_for_largest(self) -> None:
        self.largest = self.time_index[-1] if self.time_index else (-1, -1)
        for batch in self.batches:
            self._see(batch)

    def load(self, now_ms: int) -> None:
        """Loads the segment as an opened log does: state in memory is lost."""
        self.created_ms, self.unindexed_bytes = now_ms, 0
        self.largest = self.time_index[-1] if self.time_index else (-1, -1)

    def rebuild_indexes(self, settings: TopicSettings) -> None:
        """Rebuilds the indexes as after a crash, except for that of aborted transactions."""
        batches, self.batches = self.batches, []
        self.offset_index, self.time_index, self.aborted = [], [], []
        self.largest, self.unindexed_bytes = (-1, -1), 0
        for batch in batches:
            self.append(batch, settings)
        self.close()
        self.unindexed_bytes = 0

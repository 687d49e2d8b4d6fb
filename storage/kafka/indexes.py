"""A segment's indexes of offsets and of times (transaction_index.py has the third).

The offset index gets an entry at the first batch after every `index.interval.bytes`. The time index
gets one at the same batch if the largest time has grown, and one more when the segment ends.

    >>> indexes = IndexGrowth(index_interval_bytes=100)
    >>> for offset in range(3):
    ...     indexes.add_batch(offset, size_bytes=80, max_timestamp_ms=1000 + offset)
    >>> indexes.offset_index_bytes, indexes.time_index_bytes
    (8, 12)

Source: LogSegment.append, OffsetIndex, TimeIndex of Kafka 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from ledgerfold.storage.kafka.batch import NO_TIMESTAMP

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12


@dataclass(slots=True, kw_only=True)
class IndexGrowth:
    """The offset and time index of a growing segment: their numbers of entries."""

    index_interval_bytes: int = 4096
    offset_entries: int = 0
    time_entries: int = 0
    last_time_entry_ms: int = NO_TIMESTAMP
    max_timestamp_ms: int = NO_TIMESTAMP
    max_timestamp_offset: int = -1
    unindexed_bytes: int = 0

    @property
    def offset_index_bytes(self) -> int:
        return self.offset_entries * OFFSET_ENTRY_BYTES

    @property
    def time_index_bytes(self) -> int:
        return self.time_entries * TIME_ENTRY_BYTES

    def add_batch(self, last_offset: int, size_bytes: int, max_timestamp_ms: int) -> None:
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms, self.max_timestamp_offset = max_timestamp_ms, last_offset
        if self.unindexed_bytes > self.index_interval_bytes:
            self.offset_entries += 1
            self.end()
            self.unindexed_bytes = 0
        self.unindexed_bytes += size_bytes

    def end(self) -> None:
        """Adds a time entry if the largest time has none: another segment follows, or the log is
        closed.
        """
        if self.max_timestamp_ms > self.last_time_entry_ms:
            self.time_entries += 1
            self.last_time_entry_ms = self.max_timestamp_ms

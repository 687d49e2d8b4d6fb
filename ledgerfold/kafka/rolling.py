"""When the active segment ends, and how large Kafka's indexes of it would be.

A segment ends before an append that would make it larger than `segment.bytes`, when an index is
full, when the offset would not fit into 31 bits beside the base, or when it is as old as
`segment.ms` says: by the records' times where they have any, else by the clock. Nothing ends by
itself: an idle log keeps its active segment.

Indexes get an entry with the first batch behind every `index.interval.bytes`: 8 bytes in the offset
index, 12 in the time index, where only times that grow get one, and one more when the segment ends.
Grouping asks for their sizes (compactor/kafka/), and these rules whether they are full.

    >>> growth = Growth(base_offset=0, created_ms=0, index_interval_bytes=100)
    >>> for offset in range(3):
    ...     growth.append(last_offset=offset, size_bytes=80, max_timestamp_ms=1000 + offset)
    >>> growth.size_bytes, growth.offset_index_bytes, growth.time_index_bytes
    (240, 8, 12)

Source: LogSegment.shouldRoll and append, AbstractIndex, OffsetIndex, TimeIndex,
UnifiedLog.maybeRoll of Kafka 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from ledgerfold.kafka.segment import NO_TIMESTAMP, Segment
from ledgerfold.storage.kafka.batch import BatchHeader
from ledgerfold.v1.records_pb2 import KafkaSegmentFigures

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
_INT_MAX = 2**31 - 1
_INDEX_BYTES_MAX = 10 * 1024 * 1024


@dataclass(slots=True)
class Growth:
    """The active segment: what an append adds to. The index settings are those it began with."""

    base_offset: int
    created_ms: int
    index_interval_bytes: int = 4096
    index_bytes_max: int = _INDEX_BYTES_MAX
    # Taken away from segment.ms (LogConfig.roll_jitter_ms, broker/kafka/config.py).
    jitter_ms: int = 0
    next_offset: int = -1
    size_bytes: int = 0
    offset_entries: int = 0
    time_entries: int = 0
    last_time_entry_ms: int = NO_TIMESTAMP
    first_batch_timestamp_ms: int | None = None
    max_timestamp_ms: int = NO_TIMESTAMP
    max_timestamp_offset: int = -1
    modified_ms: int = 0
    unindexed_bytes: int = 0

    def __post_init__(self) -> None:
        if self.next_offset < 0:
            self.next_offset = self.base_offset
        self.modified_ms = self.modified_ms or self.created_ms

    @property
    def offset_index_bytes(self) -> int:
        return self.offset_entries * OFFSET_ENTRY_BYTES

    @property
    def time_index_bytes(self) -> int:
        return self.time_entries * TIME_ENTRY_BYTES

    def append(
        self, *, last_offset: int, size_bytes: int, max_timestamp_ms: int, time_ms: int = 0
    ) -> None:
        """One batch more. `time_ms`: now, for the file's modification time."""
        if self.first_batch_timestamp_ms is None:
            self.first_batch_timestamp_ms = max_timestamp_ms
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms, self.max_timestamp_offset = max_timestamp_ms, last_offset
        if self.unindexed_bytes > self.index_interval_bytes:
            self.offset_entries += 1
            self._add_time_entry()
            self.unindexed_bytes = 0
        self.unindexed_bytes += size_bytes
        self.size_bytes += size_bytes
        self.next_offset = last_offset + 1
        self.modified_ms = time_ms

    def add(self, header: BatchHeader, time_ms: int) -> None:
        """As append(), of a batch."""
        self.append(
            last_offset=header.last_offset,
            size_bytes=header.size_bytes,
            max_timestamp_ms=header.max_timestamp_ms,
            time_ms=time_ms,
        )

    def end(self) -> None:
        """Another segment follows, or the log is closed."""
        self._add_time_entry()

    def know(self, figures: KafkaSegmentFigures) -> None:
        """What it held when the log was closed, or it ended. Its indexes go on from there."""
        self.next_offset, self.size_bytes = figures.next_offset, figures.size_bytes
        self.first_batch_timestamp_ms = figures.first_batch_timestamp_ms
        self.offset_entries = figures.offset_index_bytes // OFFSET_ENTRY_BYTES
        self.time_entries = figures.time_index_bytes // TIME_ENTRY_BYTES
        self.max_timestamp_ms = self.last_time_entry_ms = figures.largest_timestamp_ms
        if figures.HasField("last_time_entry_ms"):
            self.last_time_entry_ms = figures.last_time_entry_ms
        self.max_timestamp_offset = figures.largest_timestamp_offset
        self.modified_ms = figures.modified_ms
        self.unindexed_bytes = 0

    def segment(self, ledger_id: int) -> Segment:
        """As the other rules see it."""
        first = self.first_batch_timestamp_ms
        return Segment(
            ledger_id,
            self.base_offset,
            self.next_offset,
            self.size_bytes,
            self.offset_index_bytes,
            self.time_index_bytes,
            NO_TIMESTAMP if first is None else first,
            self.max_timestamp_ms,
            self.max_timestamp_offset,
            self.modified_ms,
        )

    def must_end(
        self,
        *,
        size_bytes: int,
        max_timestamp_ms: int,
        last_offset: int,
        segment_bytes: int,
        roll_ms: int,
        now_ms: int,
    ) -> bool:
        """Whether what is to be appended needs a new segment; the first three are its figures.

        That one's base is the first offset of what is appended. An empty segment of that very base
        just goes on: with an index too small for an entry, each batch has a segment of its own.
        """
        return (
            self.size_bytes > segment_bytes - size_bytes
            or (
                self.size_bytes > 0
                and self.age_ms(max_timestamp_ms, now_ms) > self._due_ms(roll_ms)
            )
            or self.is_index_full
            or not 0 <= last_offset - self.base_offset <= _INT_MAX
        )

    def age_ms(self, max_timestamp_ms: int, now_ms: int) -> int:
        first = self.first_batch_timestamp_ms
        if first is not None and first >= 0:
            return max_timestamp_ms - first
        return now_ms - self.created_ms

    @property
    def is_index_full(self) -> bool:
        """One entry of the time index is left for the end."""
        return (
            self.offset_entries >= self.index_bytes_max // OFFSET_ENTRY_BYTES
            or self.time_entries >= self.index_bytes_max // TIME_ENTRY_BYTES - 1
        )

    def _due_ms(self, roll_ms: int) -> int:
        return roll_ms - self.jitter_ms

    def _add_time_entry(self) -> None:
        if self.max_timestamp_ms > self.last_time_entry_ms:
            self.time_entries += 1
            self.last_time_entry_ms = self.max_timestamp_ms

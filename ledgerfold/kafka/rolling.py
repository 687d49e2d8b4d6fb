"""Rolling: when the active segment ends, and the sizes of its Kafka indexes.

A segment rolls before an append that would exceed `segment.bytes`, when an index is full, when the
offset relative to its base would exceed 31 bits, or at the age of `segment.ms`: by record times if
there are any, otherwise by the clock. Only appends roll: an idle log keeps its active segment.

Grouping uses the sizes of the indexes (storage/kafka/indexes.py), and rolling checks whether they
are full.

    >>> growth = Growth(base_offset=0, created_ms=0, index_interval_bytes=100)
    >>> for offset in range(3):
    ...     growth.append(last_offset=offset, size_bytes=80, max_timestamp_ms=1000 + offset)
    >>> growth.size_bytes, growth.offset_index_bytes, growth.time_index_bytes
    (240, 8, 12)

Source: LogSegment.shouldRoll and append, AbstractIndex, OffsetIndex, TimeIndex,
UnifiedLog.maybeRoll of Kafka 4.1.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from ledgerfold.kafka.segment import NO_TIMESTAMP, Segment
from ledgerfold.storage.kafka.batch import BatchHeader
from ledgerfold.storage.kafka.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, IndexGrowth
from ledgerfold.v1.records_pb2 import KafkaSegmentFigures

_INT_MAX = 2**31 - 1
_INDEX_BYTES_MAX = 10 * 1024 * 1024


@dataclass(slots=True)
class Growth(IndexGrowth):
    """The size tracker of a growing segment. Index settings are those of its creation."""

    base_offset: int
    created_ms: int
    _: KW_ONLY
    index_bytes_max: int = _INDEX_BYTES_MAX
    # Subtracted from segment.ms (LogConfig.roll_jitter_ms, broker/kafka/config/config.py).
    jitter_ms: int = 0
    next_offset: int = -1
    size_bytes: int = 0
    first_batch_timestamp_ms: int | None = None
    modified_ms: int = 0

    def __post_init__(self) -> None:
        if self.next_offset < 0:
            self.next_offset = self.base_offset
        self.modified_ms = self.modified_ms or self.created_ms

    def append(
        self, *, last_offset: int, size_bytes: int, max_timestamp_ms: int, time_ms: int = 0
    ) -> None:
        """Adds one batch. `time_ms`: the present, for the file's modification time."""
        if self.first_batch_timestamp_ms is None:
            self.first_batch_timestamp_ms = max_timestamp_ms
        self.add_batch(last_offset, size_bytes, max_timestamp_ms)
        self.size_bytes += size_bytes
        self.next_offset = last_offset + 1
        self.modified_ms = time_ms

    def add(self, header: BatchHeader, time_ms: int) -> None:
        """Adds a batch by its header, as append() does."""
        self.append(
            last_offset=header.last_offset,
            size_bytes=header.size_bytes,
            max_timestamp_ms=header.max_timestamp_ms,
            time_ms=time_ms,
        )

    def restore(self, figures: KafkaSegmentFigures) -> None:
        """Restores the figures of a clean close or an ended segment. Its indexes continue from
        there.
        """
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
        """Returns the segment as the other rules see it."""
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
        """Returns whether an append with these figures needs a new segment.

        The new base offset is the append's first. An empty segment at that offset continues: if an
        index is too small for an entry, each batch has a separate segment.
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
        """True if an index is full. One entry of the time index is reserved for the end."""
        return (
            self.offset_entries >= self.index_bytes_max // OFFSET_ENTRY_BYTES
            or self.time_entries >= self.index_bytes_max // TIME_ENTRY_BYTES - 1
        )

    def _due_ms(self, roll_ms: int) -> int:
        return roll_ms - self.jitter_ms

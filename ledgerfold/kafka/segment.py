"""What the rules ask of a Kafka partition's segment, and of all of them in their order.

A partition's segments follow one another by base offset; the last one is *active*: appends go
there, and no round touches it. There is always one.

    >>> first = Segment(1, 0, 7, 700, modified_ms=9)
    >>> log = [first, Segment(2, 7, 9, 200), Segment(3, 9, 9, 0)]
    >>> [each.base_offset for each in closed_from(log, 8)], floor_index(log, 8)
    ([7], 1)
    >>> first.largest_timestamp_ms
    9

Source: LogSegment, LogSegments.nonActiveLogSegmentsFrom of Kafka 4.1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True)
class Segment:
    """Sizes are those of the batches alone, and of the indexes that Kafka would keep."""

    ledger_id: int
    base_offset: int
    # Behind its last batch; the base offset while there is none.
    next_offset: int
    size_bytes: int
    offset_index_bytes: int = 0
    time_index_bytes: int = 0
    # The largest timestamp of the first batch; NO_TIMESTAMP when there is no batch.
    first_batch_timestamp_ms: int = NO_TIMESTAMP
    # The largest of all, and the last offset of the first batch that has it.
    max_timestamp_ms: int = NO_TIMESTAMP
    max_timestamp_offset: int = -1
    # Of its file: the last append, or what a round carried over.
    modified_ms: int = 0

    @property
    def largest_timestamp_ms(self) -> int:
        """Of its records; of its file, if no record has one."""
        return self.max_timestamp_ms if self.max_timestamp_ms >= 0 else self.modified_ms

    @property
    def is_empty(self) -> bool:
        return not self.size_bytes


Segments = Sequence[Segment]


def floor_index(segments: Segments, offset: int) -> int:
    """Of the segment that contains the offset, or would; the first for one that is before it."""
    behind = bisect_right(segments, offset, key=_base_offset)
    return max(0, behind - 1)


def closed_from(segments: Segments, offset: int) -> Segments:
    """Those that are not active, from the one that contains the offset on."""
    if offset >= segments[-1].base_offset:
        return ()
    return segments[floor_index(segments, offset) : -1]


def _base_offset(segment: Segment) -> int:
    return segment.base_offset

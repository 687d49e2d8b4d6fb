"""A Kafka partition's segments, as the cleaner's and retention's rules see them.

Segments are ordered by base offset. The last one is *active*: appends go to it, and no cleaning
reads it. There is always one.

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
    """A segment's figures. Sizes are those of its batches only, and of the indexes that Kafka would
    keep.
    """

    ledger_id: int
    base_offset: int
    # The offset after its last batch, or the base offset if it is empty.
    next_offset: int
    size_bytes: int
    offset_index_bytes: int = 0
    time_index_bytes: int = 0
    # The largest timestamp of the first batch; NO_TIMESTAMP if there is none.
    first_batch_timestamp_ms: int = NO_TIMESTAMP
    # The largest timestamp, and the last offset of the first batch that has it.
    max_timestamp_ms: int = NO_TIMESTAMP
    max_timestamp_offset: int = -1
    # The file's modification time: of the last append, or carried over by a cleaning.
    modified_ms: int = 0

    @property
    def largest_timestamp_ms(self) -> int:
        """The largest timestamp of its records, or its file's modification time if no record has
        one.
        """
        return self.max_timestamp_ms if self.max_timestamp_ms >= 0 else self.modified_ms

    @property
    def is_empty(self) -> bool:
        return not self.size_bytes


Segments = Sequence[Segment]


def floor_index(segments: Segments, offset: int) -> int:
    """Returns the index of the segment that would contain the offset; 0 for offsets before the
    first.
    """
    behind = bisect_right(segments, offset, key=_base_offset)
    return max(0, behind - 1)


def closed_from(segments: Segments, offset: int) -> Segments:
    """Returns the closed segments from the one that contains the offset."""
    if offset >= segments[-1].base_offset:
        return ()
    return segments[floor_index(segments, offset) : -1]


def _base_offset(segment: Segment) -> int:
    return segment.base_offset

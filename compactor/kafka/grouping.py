"""Groups the segments that a cleaning combines into one.

Rules: a group grows while its sizes, of batches and of both indexes, stay within the limits, and
its last offset is within 2^31 - 1 of its base offset. The last offset is taken from the next
segment's base offset, or the upper bound of the cleaning. A segment that is too large forms a group
alone. Sizes are those before the cleaning.

    >>> from ledgerfold.v1.compactor_pb2 import CleanSegment
    >>> log = [CleanSegment(base_offset=n, size_bytes=5) for n in range(3)]
    >>> [len(group) for group in groups_of(log, Limits(10, 80), upper_bound=3)]
    [2, 1]

Source: LogCleaner.groupSegmentsBySize of Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ledgerfold.v1.compactor_pb2 import CleanSegment

_OFFSETS_MAX = 2**31 - 1


class Limits(NamedTuple):
    """The limits of a group: segment.bytes, and segment.index.bytes for each of the indexes."""

    size_bytes: int
    index_bytes: int


def groups_of(
    segments: Sequence[CleanSegment], limits: Limits, upper_bound: int
) -> list[list[CleanSegment]]:
    """Returns the groups, in order. `upper_bound`: of the cleaning."""
    groups: list[list[CleanSegment]] = []
    sizes = (0, 0, 0)
    ends = [*(segment.base_offset for segment in segments[1:]), upper_bound]
    for segment, end in zip(segments, ends, strict=False):
        added = (segment.size_bytes, segment.offset_index_bytes, segment.time_index_bytes)
        grown = (sizes[0] + added[0], sizes[1] + added[1], sizes[2] + added[2])
        if (
            groups
            and grown[0] <= limits.size_bytes
            and max(grown[1:]) <= limits.index_bytes
            and (not segment.size_bytes or end - 1 - groups[-1][0].base_offset <= _OFFSETS_MAX)
        ):
            groups[-1].append(segment)
            sizes = grown
        else:
            groups.append([segment])
            sizes = added
    return groups

"""Adds many batches to a growing segment at once, as ledgerfold/kafka/rolling.py does one by one.

>>> one, many = Growth(0, 0, index_interval_bytes=100), Growth(0, 0, index_interval_bytes=100)
>>> for offset in range(9):
...     one.append(last_offset=offset, size_bytes=60, max_timestamp_ms=offset % 5, time_ms=7)
>>> columns = np.arange(9), np.full(9, 60), np.arange(9) % 5
>>> grow(many, *columns, 7)
>>> many == one
True
"""

from __future__ import annotations

import numpy as np

from ledgerfold.compactor.positions import Integers
from ledgerfold.kafka.rolling import Growth
from ledgerfold.v1.compactor_pb2 import CleanedGroup


class IndexFull(Exception):
    """A full index, found during the copy: a defect of Kafka 4.1.0 that a profile enables."""


def grow(
    growth: Growth,
    last_offset: Integers,
    size_bytes: Integers,
    max_timestamp_ms: Integers,
    time_ms: int = 0,
    *,
    must_fit: bool = False,
) -> None:
    """Adds at least one batch; none of them rolls the segment.

    Raises IndexFull if the indexes must fit and do not.
    """
    behind = np.cumsum(size_bytes)
    before = behind - size_bytes
    latest = np.maximum.accumulate(np.maximum(max_timestamp_ms, growth.max_timestamp_ms))
    if growth.first_batch_timestamp_ms is None:
        growth.first_batch_timestamp_ms = int(max_timestamp_ms[0])
    interval, since = growth.index_interval_bytes, -growth.unindexed_bytes
    at = int(np.searchsorted(before, since + interval, "right"))
    # The batch of the entry after one at each batch. Items of these views are Python integers.
    following = np.searchsorted(before, before + interval, "right").data
    starts, times = before.data, latest.data
    while at < len(before):
        if must_fit and growth.is_index_full:
            raise IndexFull(
                f"The index of the new segment {growth.base_offset} is full: "
                f"{growth.index_bytes_max} bytes."
            )
        growth.offset_entries += 1
        if times[at] > growth.last_time_entry_ms:
            growth.time_entries += 1
            growth.last_time_entry_ms = times[at]
        since, at = starts[at], following[at]
    growth.unindexed_bytes = int(behind[-1]) - since
    if latest[-1] > growth.max_timestamp_ms:
        growth.max_timestamp_ms = int(latest[-1])
        growth.max_timestamp_offset = int(last_offset[np.argmax(max_timestamp_ms)])
    growth.size_bytes += int(behind[-1])
    growth.next_offset = int(last_offset[-1]) + 1
    growth.modified_ms = time_ms


def group_of(batches: Integers, growth: Growth, *, must_fit: bool = False) -> CleanedGroup:
    """Returns the figures of a cleaned segment. `growth`: of the empty segment.

    `batches`: rows of last offset, size and largest timestamp, in order. Raises IndexFull as `grow`
    does.
    """
    if len(batches):
        grow(growth, *batches.T, must_fit=must_fit)
    growth.end()
    segment = growth.segment(-1)
    return CleanedGroup(
        base_offset=segment.base_offset,
        next_offset=segment.next_offset,
        batches=len(batches),
        size_bytes=segment.size_bytes,
        offset_index_bytes=segment.offset_index_bytes,
        time_index_bytes=segment.time_index_bytes,
        max_timestamp_ms=segment.max_timestamp_ms,
        max_timestamp_offset=segment.max_timestamp_offset,
        first_batch_timestamp_ms=segment.first_batch_timestamp_ms,
    )

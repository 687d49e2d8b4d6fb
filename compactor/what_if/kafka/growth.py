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


def grow(
    growth: Growth,
    last_offset: Integers,
    size_bytes: Integers,
    max_timestamp_ms: Integers,
    time_ms: int,
) -> None:
    """Adds at least one batch; none of them rolls the segment."""
    behind = np.cumsum(size_bytes)
    before = behind - size_bytes
    latest = np.maximum.accumulate(np.maximum(max_timestamp_ms, growth.max_timestamp_ms))
    if growth.first_batch_timestamp_ms is None:
        growth.first_batch_timestamp_ms = int(max_timestamp_ms[0])
    interval, since = growth.index_interval_bytes, -growth.unindexed_bytes
    at = int(np.searchsorted(before, since + interval, "right"))
    while at < len(before):
        growth.offset_entries += 1
        if latest[at] > growth.last_time_entry_ms:
            growth.time_entries += 1
            growth.last_time_entry_ms = int(latest[at])
        since = int(before[at])
        at = int(np.searchsorted(before, since + interval, "right"))
    growth.unindexed_bytes = int(behind[-1]) - since
    if latest[-1] > growth.max_timestamp_ms:
        growth.max_timestamp_ms = int(latest[-1])
        growth.max_timestamp_offset = int(last_offset[np.argmax(max_timestamp_ms)])
    growth.size_bytes += int(behind[-1])
    growth.next_offset = int(last_offset[-1]) + 1
    growth.modified_ms = time_ms

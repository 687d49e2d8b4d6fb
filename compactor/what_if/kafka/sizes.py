"""Sizes of batches that are rebuilt with some of their records, or with a delete horizon.

As compactor/kafka/rewrite.py builds them, like Kafka: only a record's length and its time change.
The time is relative to the batch's base timestamp: the delete horizon, or the first record's time.
The size of an uncompressed batch is exact. A compressed batch's size is scaled like that of its
uncompressed records.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ledgerfold.compactor.kafka.varints import varint_bytes
from ledgerfold.compactor.positions import Integers
from ledgerfold.compactor.what_if.kafka.history import History
from ledgerfold.storage.kafka.batch import BATCH_HEADER_BYTES, NO_TIMESTAMP


class Rebuilt(NamedTuple):
    """The figures of each rebuilt batch."""

    size_bytes: Integers
    max_timestamp_ms: Integers


def rebuilt(history: History, rows: Integers, which: Integers, horizon_ms: Integers) -> Rebuilt:
    """Returns the figures of these batches, ascending. `rows`: the remaining records; each has
    some.

    `horizon_ms`: the resulting horizon of each; -1: none.
    """
    batches, records = history.batches, history.records
    of = np.searchsorted(which, history.batch_of[rows])
    starts = np.searchsorted(of, np.arange(len(which)))
    times = records.time_ms[rows]
    base = np.where(horizon_ms >= 0, horizon_ms, times[starts])
    # After the length: attributes, of one byte, the time, and the rest.
    time_sizes, _ = varint_bytes(times - base[of])
    bodies = 1 + time_sizes + records.rest_bytes[rows]
    length_sizes, _ = varint_bytes(bodies)
    raw_bytes = np.add.reduceat(length_sizes + bodies, starts)
    section_bytes = batches.size_bytes[which] - BATCH_HEADER_BYTES
    shares = np.ceil(section_bytes * raw_bytes / batches.raw_bytes[which]).astype(np.int64)
    sizes = np.where(batches.is_compressed[which], shares, raw_bytes)
    latest = np.maximum(np.maximum.reduceat(times, starts), NO_TIMESTAMP)
    appended = batches.has_append_time[which]
    return Rebuilt(
        BATCH_HEADER_BYTES + sizes, np.where(appended, batches.max_timestamp_ms[which], latest)
    )

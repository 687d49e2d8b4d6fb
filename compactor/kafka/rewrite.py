"""Rebuilds batches that lost records or get a delete horizon, many at once.

Remaining records are not decoded: only a record's length and its timestamp, which is relative to
the batch's base timestamp, change; the rest is copied.

* The rest of the header stays: also base and last offset, although their records may be removed.
* The base timestamp is the delete horizon if there is one, else the time of the first remaining
  record. A horizon is set once: a batch that has one keeps it. If it would exceed 64 bits, none is
  set.
* The largest timestamp is that of the remaining records, at least -1. Under log append time it is
  unchanged.
* Compressed records are compressed again, with the same codec at its default level.

Source: KIP-534; `org.apache.kafka.common.record.MemoryRecords.filterTo`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from ledgerfold.compactor.job.distinct import slices
from ledgerfold.compactor.kafka.batches import COMPRESSION, HORIZON, KIND, Batches
from ledgerfold.compactor.kafka.record_filter import Kept
from ledgerfold.compactor.kafka.records import Records
from ledgerfold.compactor.kafka.varints import Bytes, varint_bytes
from ledgerfold.compactor.positions import Integers
from ledgerfold.storage.kafka.batch import NO_TIMESTAMP
from ledgerfold.storage.kafka.compression import compress


def rebuilt(
    batches: Batches, records: Records, selection: Kept, changed: Integers, horizon_ms: int
) -> tuple[NDArray[Any], list[bytes]]:
    """Rebuilds these of the batches with their remaining records, of which each has some.

    A batch gets `horizon_ms` if it has no horizon and keeps a tombstone; NO_TIMESTAMP sets none.
    Returns headers, without lengths and checksums, and records.
    """
    is_theirs = np.zeros(len(records.batches), np.bool_)
    is_theirs[changed] = True
    chosen = is_theirs[records.batch[selection.rows]]
    rows, is_null = selection.rows[chosen], selection.is_null[chosen]
    of = np.searchsorted(changed, records.batch[rows])
    counts = np.bincount(of, minlength=len(changed))
    starts = np.cumsum(counts) - counts
    indexes = records.batches[changed]
    has_horizon = batches.has_horizon[indexes]
    stamped = ~has_horizon & np.logical_or.reduceat(is_null, starts)
    stamped &= horizon_ms != NO_TIMESTAMP
    base = batches.column("base_timestamp_ms")[indexes]
    columns = records.columns(rows)
    deltas, rests_at = columns.timestamp_deltas()
    times = base[of] + deltas
    max_times = batches.column("max_timestamp_ms")[indexes]
    appended = batches.has_append_time[indexes]
    times = np.where(appended[of], max_times[of], times)
    new_base = np.where(has_horizon, base, np.where(stamped, horizon_ms, times[starts]))
    found_max = np.maximum(np.maximum.reduceat(times, starts), NO_TIMESTAMP)
    blob, ends = _sections(records.blob, rests_at, columns.end, times - new_base[of])
    attributes = batches.attributes[indexes]
    headers = batches.headers[indexes]
    headers["attributes"] = (attributes & (COMPRESSION | KIND)) | np.where(
        has_horizon | stamped, HORIZON, 0
    )
    headers["base_timestamp_ms"] = new_base
    headers["max_timestamp_ms"] = np.where(appended, max_times, found_max)
    headers["record_count"] = counts
    section_ends = [0, *ends[np.cumsum(counts) - 1].tolist()]
    sections = [blob[start:end] for start, end in pairwise(section_ends)]
    for number in np.flatnonzero(attributes & COMPRESSION).tolist():
        sections[number] = compress(int(attributes[number]) & COMPRESSION, sections[number])
    return headers, sections


def _sections(
    blob: Bytes, rests_at: Integers, ends: Integers, timestamp_deltas: Integers
) -> tuple[bytes, Integers]:
    """Returns records concatenated, and where each ends, from the parts after their timestamps."""
    rests, count = slices(blob, rests_at, ends), len(ends)
    time_sizes, time_columns = varint_bytes(timestamp_deltas)
    length_sizes, length_columns = varint_bytes(1 + time_sizes + ends - rests_at)
    # Length, attributes (none), time.
    sizes = length_sizes + 1 + time_sizes
    starts = np.cumsum(sizes) - sizes
    fronts = np.zeros(int(sizes.sum()), np.uint8)
    for at, part_sizes, part_columns in (
        (starts, length_sizes, length_columns),
        (starts + length_sizes + 1, time_sizes, time_columns),
    ):
        for number, column in enumerate(part_columns):
            has_it = part_sizes > number
            fronts[at[has_it] + number] = column[has_it]
    offsets = np.append(starts, len(fronts)).astype("<i4")
    front = pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(fronts)]
    )
    joined = compute.binary_join_element_wise(front, rests, pa.scalar(b"", pa.binary()))
    _, places, content = joined.buffers()
    joined_ends = np.frombuffer(places, "<i4", count, (joined.offset + 1) * 4).astype(np.int64)
    return content.to_pybytes(), joined_ends

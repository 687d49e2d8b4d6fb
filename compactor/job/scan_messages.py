"""Phase one, first half, for a message strategy: the messages that it reads, in order, by bucket.

As in scan.py, but emits whole messages instead of fragments: only the class can decide on them.
Messages without a key are dropped and counted here, regardless of the topic's policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from ledgerfold.compactor.job.arrow_integers import from_arrow, to_arrow
from ledgerfold.compactor.job.chunk import packed
from ledgerfold.compactor.job.distinct import HashedKeys
from ledgerfold.compactor.job.message_columns import MessageColumns
from ledgerfold.compactor.job.plan import InputSegment
from ledgerfold.compactor.job.rows import Counts, Positions, Row
from ledgerfold.compactor.job.segment_map import SegmentMap
from ledgerfold.compactor.positions import Integers, grouped

# Bounds of a chunk, give or take one entry. A scan task holds three times as much while it splits a
# chunk into buckets. A merge task holds its part of a chunk at once, as Python objects.
CHUNK_ROWS_MAX = 100_000
CHUNK_BYTES_MAX = 16 * 1024 * 1024


def scan_messages(
    segments: Sequence[InputSegment], reads: frozenset[str], buckets: int
) -> Iterator[Row]:
    """Yields rows for the merge tasks: Messages (chunk.py), Counts.

    Raises Corruption, MissingFile, IncompatibleFormat, DiskFailure.
    """
    columns = MessageColumns(reads)
    for segment in segments:
        with SegmentMap(segment) as mapped:
            for entry in mapped.in_range():
                columns.add(mapped, entry)
                if (
                    columns.keys.rows >= CHUNK_ROWS_MAX
                    or columns.keys.key_bytes + columns.value_bytes >= CHUNK_BYTES_MAX
                ):
                    yield from _chunk(columns, buckets)
                    columns = MessageColumns(reads)
    if columns.keys.rows:
        yield from _chunk(columns, buckets)


def _chunk(columns: MessageColumns, buckets: int) -> Iterator[Row]:
    columns.check()
    if len(passing := columns.keys.passing()):
        yield 0, Positions.of(columns.keys.facts().positions[passing])
    keys, rows = columns.keys.keys(), columns.rows()
    has_key, is_live = columns.has_key(), columns.keys.is_live()
    live = columns.keys.rows
    if is_live is not None:
        has_key, live = has_key & is_live, int(np.count_nonzero(is_live))
    keyless = live - int(np.count_nonzero(has_key))
    if keyless or is_live is not None:
        chosen = to_arrow(np.flatnonzero(has_key))
        keys, rows = keys.take(chosen), rows.take(chosen)
    is_value = from_arrow(rows.column("places")) & 1
    yield from _in_buckets(keys, columns.entries(), rows, buckets)
    yield (
        0,
        Counts(
            messages_in=columns.keys.messages,
            entries_in=columns.keys.entries,
            bytes_in=columns.keys.size_bytes,
            tombstones=len(is_value) - int(is_value.sum()),
            null_keys=keyless,
            removed_events=keyless,
        ),
    )


def _in_buckets(
    keys: pa.BinaryArray, entries: Mapping[str, Integers], rows: pa.RecordBatch, buckets: int
) -> Iterator[Row]:
    distinct, hashes, codes = HashedKeys.of(keys).numbered()
    of_key = (hashes % buckets).astype(np.min_scalar_type(buckets))
    # Keys and messages are grouped by bucket; keys are numbered by their new indexes.
    key_order, key_ends = grouped(of_key, buckets)
    order, ends = grouped(of_key[codes], buckets)
    new_numbers = np.empty(len(distinct), np.int32)
    new_numbers[key_order] = np.arange(len(distinct), dtype=np.int32)
    distinct, rows = distinct.take(to_arrow(key_order)), rows.take(to_arrow(order))
    numbers = new_numbers[codes[order]]
    first_key = first = 0
    for bucket, (end_key, end) in enumerate(zip(key_ends, ends, strict=True)):
        if first < end:
            yield (
                bucket,
                packed(
                    distinct.slice(first_key, end_key - first_key),
                    numbers[first:end] - first_key,
                    entries,
                    rows.slice(first, end - first),
                ),
            )
        first_key, first = end_key, end

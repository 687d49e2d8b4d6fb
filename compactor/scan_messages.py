"""Phase one, first half, for a strategy of messages: what it looks at, in order, by bucket.

As scan.py, but whole messages leave instead of fragments: only the class can say what becomes of
them. Messages without a key are dropped here, whatever the topic's policy says, and counted.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ledgerfold.compactor.arrow_integers import from_arrow, to_arrow
from ledgerfold.compactor.message_columns import MessageColumns
from ledgerfold.compactor.plan import InputSegment
from ledgerfold.compactor.rows import Counts, Messages, Row
from ledgerfold.compactor.segment_map import SegmentMap

# Bounds of a chunk, one entry more or less: what a scan task holds, three times over while it is
# cut into buckets. A merge task takes its part of a chunk in hand at once, as Python objects.
CHUNK_ROWS_MAX = 100_000
CHUNK_BYTES_MAX = 16 * 1024 * 1024


def scan_messages(
    segments: Sequence[InputSegment], reads: frozenset[str], buckets: int
) -> Iterator[Row]:
    """Rows for the merge tasks: Messages, Counts.

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
    rows = columns.rows()
    has_key = columns.has_key()
    keyless = len(has_key) - int(np.count_nonzero(has_key))
    if keyless:
        rows = rows.take(to_arrow(np.flatnonzero(has_key)))
    is_value = from_arrow(rows.column("place")) & 1
    yield from _in_buckets(rows, buckets)
    yield (
        0,
        Counts(
            messages_in=columns.keys.rows,
            entries_in=columns.keys.entries,
            bytes_in=columns.keys.size_bytes,
            tombstones=len(is_value) - int(is_value.sum()),
            null_keys=keyless,
            removed_events=keyless,
        ),
    )


def _in_buckets(rows: pa.RecordBatch, buckets: int) -> Iterator[Row]:
    if not len(rows):
        return
    if buckets == 1:
        yield 0, Messages.of(rows)
        return
    encoded = rows.column("key").dictionary_encode()
    of_key = np.fromiter(
        map(zlib.crc32, encoded.dictionary.to_pylist()), np.int64, len(encoded.dictionary)
    )
    hashes = (of_key % buckets)[from_arrow(encoded.indices)]
    rows = rows.take(to_arrow(np.argsort(hashes, kind="stable")))
    ends = np.cumsum(np.bincount(hashes, minlength=buckets)).tolist()
    for bucket, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if start < end:
            yield bucket, Messages.of(rows.slice(start, end - start))

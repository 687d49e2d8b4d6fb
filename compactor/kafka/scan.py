"""The map, first half: a task reads keys and emits them in buckets by hash.

Records of the range that is mapped fold into one fragment for each key of a chunk: its last
offset and its first. Records below it, the clean part, stay one by one, with NOT_MAPPED for a first
offset: they are left out when the map has their key at all. Of what is aborted nothing is read, and
nothing of a batch behind the range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ledgerfold.compactor.arrow_integers import from_arrow
from ledgerfold.compactor.kafka.batches import Batches, LogFile
from ledgerfold.compactor.kafka.plan import Range
from ledgerfold.compactor.kafka.records import Columns, read_records
from ledgerfold.compactor.kafka.rows import Facts, Mapped, Row, Span
from ledgerfold.compactor.kafka.transactions import AbortedIndex, Line, facts_of
from ledgerfold.compactor.plan import InputSegment
from ledgerfold.compactor.positions import Integers
from ledgerfold.compactor.scan import in_buckets

NOT_MAPPED = -1


# Of keys that wait to be folded: bounds a task's memory to about 40 bytes a record and three times
# the keys. The more fold at once the less goes through the shuffle.
CHUNK_ROWS = 2_000_000
CHUNK_KEY_BYTES = 64 * 1024 * 1024


def scan(
    files: Sequence[InputSegment],
    lines: Sequence[Line],
    mapped: Range,
    buckets: int,
    passed_over: Sequence[Line] = (),
) -> Iterator[Row]:
    """`passed_over`: of data that is not mapped (passed_over.py).

    Raises Corruption, MissingFile, IncompatibleFormat, DiskFailure.
    """
    aborted, passed = AbortedIndex(lines), AbortedIndex(passed_over)
    chunk = _Chunk(mapped.first, buckets)
    unmapped = _Chunk(mapped.stop, buckets)
    for file in files:
        first = last = -1
        with LogFile(file) as opened:
            for batches in opened.stretches():
                first = int(batches.base_offset[0]) if first < 0 else first
                last = int(batches.last_offset[-1])
                facts = facts_of(batches)
                if len(facts):
                    yield 0, Facts.of(facts)
                yield 0, _read(batches, aborted, passed, mapped, chunk, unmapped)
                if chunk.is_full:
                    yield from chunk.folded()
                    chunk = _Chunk(mapped.first, buckets)
                if unmapped.is_full:
                    yield from unmapped.folded()
                    unmapped = _Chunk(mapped.stop, buckets)
        if last >= 0:
            yield 0, Span(file.ordinal, first, last)
    yield from chunk.folded()
    yield from unmapped.folded()


def keyed_batches(batches: Batches, aborted: AbortedIndex, upto: int) -> Integers:
    """Those whose records may be in the map."""
    return np.flatnonzero(
        ~batches.is_control
        & (batches.record_count > 0)
        & (batches.base_offset <= upto)
        & ~aborted.covers(batches)
    )


def _read(
    batches: Batches,
    aborted: AbortedIndex,
    passed: AbortedIndex,
    mapped: Range,
    chunk: _Chunk,
    unmapped: _Chunk,
) -> Mapped:
    """Adds the keys to one of the chunks, and counts."""
    is_passed = passed.covers(batches)
    which = keyed_batches(batches, aborted, mapped.stop - 1)
    in_range = (batches.last_offset >= mapped.first) & (batches.last_offset <= mapped.last)
    unread = int(batches.record_count[in_range].sum())
    unread -= int(batches.record_count[which][in_range[which]].sum())
    messages, keyless = unread, 0
    for records in read_records(batches, which):
        columns = records.columns()
        is_in = columns.offset <= mapped.last
        last_offset = batches.last_offset[records.batches][records.batch]
        is_read = (columns.offset < mapped.stop) & (last_offset >= mapped.first)
        messages += int(np.count_nonzero(is_read))
        keyless += int(np.count_nonzero(is_in & ~columns.has_key))
        is_keyed = is_in & columns.has_key
        if is_passed.any():
            is_unmapped = is_passed[records.batches][records.batch]
            unmapped.add(columns, np.flatnonzero(is_keyed & is_unmapped))
            is_keyed &= ~is_unmapped
        chunk.add(columns, np.flatnonzero(is_keyed))
    return Mapped(messages, keyless)


class _Chunk:
    """Keys and offsets of a task, in order, until there are enough of them to be folded."""

    def __init__(self, first_mapped: int, buckets: int) -> None:
        self._first_mapped, self._buckets = first_mapped, buckets
        self._keys: list[pa.BinaryArray] = []
        self._offsets: list[Integers] = []
        self._rows = self._key_bytes = 0

    def add(self, columns: Columns, which: Integers) -> None:
        if len(which):
            self._keys.append(columns.keys(which))
            self._offsets.append(columns.offset[which])
            self._rows += len(which)
            self._key_bytes += int(columns.key_bytes[which].sum())

    @property
    def is_full(self) -> bool:
        return self._rows >= CHUNK_ROWS or self._key_bytes >= CHUNK_KEY_BYTES

    def folded(self) -> Iterator[Row]:
        """Fragments of what was added."""
        if not self._keys:
            return
        keys, offsets = pa.concat_arrays(self._keys), np.concatenate(self._offsets)
        clean = int(np.searchsorted(offsets, self._first_mapped))
        if clean:
            firsts = np.full(clean, NOT_MAPPED, np.int64)
            yield from in_buckets(keys.slice(0, clean), (offsets[:clean], firsts), self._buckets)
        offsets = offsets[clean:]
        if not len(offsets):
            return
        encoded = keys.slice(clean).dictionary_encode()
        codes = from_arrow(encoded.indices)
        last, first = (np.empty(len(encoded.dictionary), np.int64) for _ in range(2))
        # Of several for one code the last one stays: rows are in order.
        last[codes] = offsets
        first[codes[::-1]] = offsets[::-1]
        yield from in_buckets(encoded.dictionary, (last, first), self._buckets)

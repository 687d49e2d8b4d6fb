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

from ledgerfold.compactor.job.plan import InputSegment
from ledgerfold.compactor.job.scan import in_buckets
from ledgerfold.compactor.kafka.batches import STRETCH_BYTES, Batches, LogFile
from ledgerfold.compactor.kafka.distinct import Keys
from ledgerfold.compactor.kafka.plan import Range
from ledgerfold.compactor.kafka.records import Columns, read_records
from ledgerfold.compactor.kafka.rows import Facts, Mapped, Row, Span
from ledgerfold.compactor.kafka.throttle import Pace
from ledgerfold.compactor.kafka.transactions import AbortedIndex, Line, facts_of
from ledgerfold.compactor.positions import Integers

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
    passed_over: Sequence[Line],
    pace: Pace,
) -> Iterator[Row]:
    """`passed_over`: of data that is not mapped (skipped_in_map.py).

    Raises Corruption, MissingFile, IncompatibleFormat, DiskFailure.
    """
    aborted, passed = AbortedIndex(lines), AbortedIndex(passed_over)
    chunk = _Chunk(mapped.first, buckets)
    unmapped = _Chunk(mapped.stop, buckets)
    for file in files:
        first = last = -1
        with LogFile(file) as opened:
            for batches in opened.stretches(pace.at_once(STRETCH_BYTES)):
                first = int(batches.base_offset[0]) if first < 0 else first
                last = int(batches.last_offset[-1])
                facts = facts_of(batches)
                if len(facts):
                    yield 0, Facts.of(facts)
                yield 0, _read(batches, aborted, passed, mapped, chunk, unmapped)
                pace.spend(batches.stored_bytes)
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
    pace.settle()


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
    """Adds the keys to one of the chunks, and counts.

    As Kafka does, from the batch on that holds the first dirty offset, what comes before it in that
    batch included, and of a marker one message, even if its header alone is left.
    """
    is_passed = passed.covers(batches)
    which = keyed_batches(batches, aborted, mapped.stop - 1)
    in_range = (batches.last_offset >= mapped.first) & (batches.last_offset <= mapped.last)
    counts = np.where(batches.is_control, 1, batches.record_count)
    unread = int(counts[in_range].sum())
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
    """Keys and offsets of a task, in order, until there are enough of them to be handed on.

    What is mapped is folded as it comes, and once more at the end.
    """

    def __init__(self, first_mapped: int, buckets: int) -> None:
        self._first_mapped, self._buckets = first_mapped, buckets
        self._clean, self._mapped = _Rows(), _Rows()

    def add(self, columns: Columns, which: Integers) -> None:
        offsets = columns.offset[which]
        clean = int(np.searchsorted(offsets, self._first_mapped))
        if clean:
            keys = columns.keys(which[:clean])
            firsts = np.full(clean, NOT_MAPPED, np.int64)
            self._clean.add(keys.column(), offsets[:clean], firsts)
        if clean < len(which):
            offsets = offsets[clean:]
            self._mapped.add(*_folded(columns.keys(which[clean:]), offsets, offsets))

    @property
    def is_full(self) -> bool:
        each = (self._clean, self._mapped)
        return (
            sum(rows.count for rows in each) >= CHUNK_ROWS
            or sum(rows.key_bytes for rows in each) >= CHUNK_KEY_BYTES
        )

    def folded(self) -> Iterator[Row]:
        """Fragments of what was added."""
        if self._clean.count:
            keys, last, first = self._clean.columns()
            yield from in_buckets(keys, (last, first), self._buckets, Keys.of(keys).hashes)
        if self._mapped.count:
            keys, last, first = self._mapped.columns()
            keys, last, first = _folded(Keys.of(keys), last, first)
            yield from in_buckets(keys, (last, first), self._buckets, Keys.of(keys).hashes)


class _Rows:
    """Keys, their last offsets, their first ones: as they were added."""

    def __init__(self) -> None:
        self.count = self.key_bytes = 0
        self._keys: list[pa.BinaryArray] = []
        self._offsets: list[tuple[Integers, Integers]] = []

    def add(self, keys: pa.BinaryArray, last: Integers, first: Integers) -> None:
        self._keys.append(keys)
        self._offsets.append((last, first))
        self.count += len(keys)
        self.key_bytes += keys.nbytes

    def columns(self) -> tuple[pa.BinaryArray, Integers, Integers]:
        last, first = (np.concatenate(each) for each in zip(*self._offsets, strict=True))
        return pa.concat_arrays(self._keys), last, first


def _folded(
    keys: Keys, last: Integers, first: Integers
) -> tuple[pa.BinaryArray, Integers, Integers]:
    """One row for each key, in order of its last one; rows are in order of offset."""
    groups = keys.grouped()
    by_last = np.argsort(groups.last)
    rows = groups.last[by_last]
    return keys.column(rows), last[rows], first[groups.first[by_last]]

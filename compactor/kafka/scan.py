"""The two tasks of the map: reads keys, and selects the surviving records of a bucket.

Records in the mapped range fold into one fragment for each key of a buffer: its last offset, where
that record begins in its batch, and the first offset if it is needed (map_limit.py). Records of the
clean part stay separate; they are dropped if the map has their key. The complement of their start,
which is negative, marks them. Aborted data and batches after the range are not read.

In the mapped range the last record of each key survives. In the clean part, which is not mapped,
records survive unless the map has a later offset for their key. Records after the range survive in
any case and are not considered.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ledgerfold.compactor.job.distinct import HashedKeys
from ledgerfold.compactor.job.joined_keys import joined_keys
from ledgerfold.compactor.job.plan import InputSegment
from ledgerfold.compactor.job.rows import Fragments
from ledgerfold.compactor.job.scan import in_buckets
from ledgerfold.compactor.job.words import Hashed
from ledgerfold.compactor.kafka.batches import CHUNK_BYTES, Batches, LogFile
from ledgerfold.compactor.kafka.plan import Range
from ledgerfold.compactor.kafka.records import Columns, read_records
from ledgerfold.compactor.kafka.rows import (
    Chosen,
    Distinct,
    Facts,
    Firsts,
    Mapped,
    Row,
    Shown,
)
from ledgerfold.compactor.kafka.throttle import TaskThrottle
from ledgerfold.compactor.kafka.transactions import AbortedIndex, facts_of
from ledgerfold.compactor.positions import Integers
from ledgerfold.compactor.strategies.strategy import FragmentColumns
from ledgerfold.storage.kafka.transaction_index import AbortedTransaction
from ledgerfold.storage.limits import COLUMN_BYTES_MAX

# Limits of keys to be folded: they bound a task's memory to about 100 bytes a key and three times
# the keys. More of them would fold a little more, but miss the processor's cache.
FOLD_ROWS = 400_000
FOLD_KEY_BYTES = 16 * 1024 * 1024


def scan(
    files: Sequence[InputSegment],
    lines: Sequence[AbortedTransaction],
    mapped: Range,
    buckets: int,
    skipped: Sequence[AbortedTransaction],
    throttle: TaskThrottle,
    *,
    with_firsts: bool = False,
) -> Iterator[Row]:
    """Scans files. `skipped`: transactions whose data the map skips (map_limit.py). `with_firsts`:
    fragments have first offsets.

    Raises Corruption, MissingFile, IncompatibleFormat, DiskFailure.
    """
    aborted, passed = AbortedIndex(lines), AbortedIndex(skipped)
    chunk = _FoldBuffer(mapped.first, buckets, with_firsts=with_firsts)
    unmapped = _FoldBuffer(mapped.stop, buckets, with_firsts=with_firsts)
    for file in files:
        with LogFile(file) as opened:
            for batches in opened.chunks(throttle.chunk_bytes(CHUNK_BYTES)):
                facts = facts_of(batches)
                if len(facts):
                    yield 0, Facts.of(facts)
                yield from _read(batches, aborted, passed, mapped, chunk, unmapped)
                throttle.spend(batches.stored_bytes)
    yield from chunk.folded()
    yield from unmapped.folded()
    throttle.settle()


def keyed_batches(batches: Batches, aborted: AbortedIndex, last: int) -> Integers:
    """Returns the batches whose records may be in the map."""
    return np.flatnonzero(
        ~batches.is_control
        & (batches.record_count > 0)
        & (batches.base_offset <= last)
        & ~aborted.covers(batches)
    )


def _read(
    batches: Batches,
    aborted: AbortedIndex,
    passed: AbortedIndex,
    mapped: Range,
    chunk: _FoldBuffer,
    unmapped: _FoldBuffer,
) -> Iterator[Row]:
    """Adds keys to one of the buffers, and counts. Yields what full buffers hold, and Mapped.

    As in Kafka, counting begins with the batch that holds the first dirty offset, including its
    earlier records; a marker counts as one message, even if only its header is left.
    """
    is_passed = passed.covers(batches)
    indexes = keyed_batches(batches, aborted, mapped.stop - 1)
    in_range = (batches.last_offset >= mapped.first) & (batches.last_offset <= mapped.last)
    counts = np.where(batches.is_control, 1, batches.record_count)
    unread = int(counts[in_range].sum())
    unread -= int(batches.record_count[indexes][in_range[indexes]].sum())
    messages, keyless = unread, 0
    for records in read_records(batches, indexes):
        columns = records.columns()
        # Offsets ascend.
        bounds = (mapped.last + 1, mapped.stop)
        mapped_rows, read_rows = np.searchsorted(columns.offset, bounds).tolist()
        is_counted = batches.last_offset[records.batches] >= mapped.first
        messages += int(records.counts[is_counted].sum()) - (len(records) - read_rows)
        is_keyed = columns.has_key[:mapped_rows]
        keyless += mapped_rows - int(np.count_nonzero(is_keyed))
        if is_passed.any():
            is_unmapped = is_passed[records.batches][records.batch[:mapped_rows]]
            unmapped.add(columns, np.flatnonzero(is_keyed & is_unmapped))
            is_keyed &= ~is_unmapped
        chunk.add(columns, np.flatnonzero(is_keyed))
        # Their columns take as much memory as the fold.
        del records, columns
        # Here, and not at the end: batches may be many times larger when decompressed.
        yield from chunk.emptied()
        yield from unmapped.emptied()
    yield 0, Mapped(messages, keyless)


class _FoldBuffer:
    """Keys and offsets of a task, in order, until there are enough to be emitted.

    Mapped records are folded as they are added, and once more at the end.
    """

    def __init__(self, first_mapped: int, buckets: int, *, with_firsts: bool) -> None:
        self._first_mapped, self._buckets = first_mapped, buckets
        self._with_firsts = with_firsts
        self._clean, self._mapped = _Rows(), _Rows()

    def add(self, columns: Columns, selected: Integers) -> None:
        offsets = columns.offset.take(selected)
        clean = int(np.searchsorted(offsets, self._first_mapped))
        if clean:
            rows, last = selected[:clean], offsets[:clean]
            starts = ~columns.records.starts_in_batches(rows)
            column, hashed = columns.keys(rows).where(np.arange(clean))
            firsts = last if self._with_firsts else None
            self._clean.add(_Part(column, hashed, last, starts, firsts))
        if clean < len(selected):
            rows, last = selected[clean:], offsets[clean:]
            keys = columns.keys(rows)
            winners, firsts = _folded(keys, last if self._with_firsts else None)
            starts = columns.records.starts_in_batches(rows.take(winners))
            self._mapped.add(_Part(*keys.where(winners), last.take(winners), starts, firsts))

    def emptied(self) -> Iterator[Row]:
        """Yields the fragments of everything added, if it is enough, and empties the buffer."""
        each = (self._clean, self._mapped)
        if (
            sum(rows.count for rows in each) >= FOLD_ROWS
            or sum(rows.key_bytes for rows in each) >= FOLD_KEY_BYTES
        ):
            yield from self.folded()

    def folded(self) -> Iterator[Row]:
        """Yields the fragments of everything added, and empties the buffer."""
        clean, mapped = self._clean, self._mapped
        self._clean, self._mapped = _Rows(), _Rows()
        if clean.count:
            keys, numbers = clean.joined()
            yield from in_buckets(keys.column(), numbers, self._buckets, keys.hashes)
        if mapped.count:
            column, numbers, hashes = _last_of_each(*mapped.joined())
            yield from in_buckets(column, numbers, self._buckets, hashes)


class _Part(NamedTuple):
    """Keys with their last offsets, where the last record begins in its batch, or its complement,
    and first offsets if they are needed.
    """

    keys: pa.BinaryArray
    hashed: Hashed
    last: Integers
    start: Integers
    first: Integers | None


class _Rows:
    """Keys with offsets, as added, until they are joined once."""

    def __init__(self) -> None:
        self.count = self.key_bytes = 0
        self._parts: list[_Part] = []

    def add(self, part: _Part) -> None:
        self._parts.append(part)
        self.count += len(part.keys)
        self.key_bytes += part.keys.nbytes

    def joined(self) -> tuple[HashedKeys, FragmentColumns]:
        columns, hashed, *numbers = map(list, zip(*self._parts, strict=True))
        # Each column is released once it is joined, so that few are in memory twice.
        self._parts.clear()
        column = pa.concat_arrays(columns)
        columns.clear()
        keys = HashedKeys.of(column, Hashed.joined(hashed))
        hashed.clear()
        return keys, _numbers(*(np.concatenate(each) for each in numbers if each[0] is not None))


def _numbers(last: Integers, start: Integers, first: Integers | None = None) -> FragmentColumns:
    """Returns the columns of fragments. A start takes 32 bits (Located)."""
    return last, start.astype(np.int32), *(() if first is None else (first,))


def _folded(keys: HashedKeys, first: Integers | None) -> tuple[Integers, Integers | None]:
    """Folds rows, in offset order, into one for each key, in order of its last one.

    Returns the last row of each key, and the first offset if there are any.
    """
    groups = keys.grouped()
    return groups.last, None if first is None else first.take(groups.first)


def _last_of_each(
    keys: HashedKeys, numbers: FragmentColumns
) -> tuple[pa.BinaryArray, FragmentColumns, NDArray[np.uint64]]:
    """Folds rows with these numbers. Returns the keys, numbers and hashes."""
    last, start, *first = numbers
    rows, firsts = _folded(keys, first[0] if first else None)
    return keys.column(rows), _numbers(last.take(rows), start.take(rows), firsts), keys.hashes[rows]


def _received(
    rows: Iterable[Row],
) -> Generator[Row, None, tuple[Iterator[pa.BinaryArray], FragmentColumns] | None]:
    """Returns the keys and fragments of these rows, and passes others on; None without any."""
    keys: list[pa.BinaryArray] = []
    columns: list[FragmentColumns] = []
    for row in rows:
        content = row[1]
        if isinstance(content, Fragments):
            key_column, numbers = content.columns
            keys.append(key_column)
            columns.append(numbers)
        else:
            yield row
    if not keys:
        return None
    return iter(keys), tuple(map(np.concatenate, zip(*columns, strict=True)))


def merge(rows: Iterable[Row], firsts_max: int, shown_max: int = 0) -> Iterator[Row]:
    """Joins the fragments of a bucket. They have first offsets if `firsts_max` is not 0.

    Yields Chosen, Distinct, Firsts and Shown (the smallest of each), and passes other rows on.
    Raises LimitExceeded.
    """
    received = yield from _received(rows)
    if received is None:
        return
    keys, (last, start, *first) = received
    del received
    joined = joined_keys(keys, COLUMN_BYTES_MAX)
    codes = joined.codes
    is_mapped = start >= 0
    # The highest mapped offset of each key, whose fragments come in any order.
    latest = np.full(len(joined), -1)
    np.maximum.at(latest, codes[is_mapped], last[is_mapped])
    latest_of = latest.take(codes)
    stays = np.flatnonzero(np.where(is_mapped, last == latest_of, last > latest_of))
    # Fragments of a task are in order already: a stable sort merges such runs.
    stays = stays[np.argsort(last[stays], kind="stable")]
    start = start[stays]
    yield 0, Chosen.of(last[stays], np.where(start < 0, ~start, start))
    mapped = np.flatnonzero(latest >= 0)
    yield 0, Distinct(len(mapped))
    if shown_max and len(mapped):
        shown = mapped[np.argsort(latest[mapped])[:shown_max]]
        yield 0, Shown(tuple(joined.keys_of(shown)), tuple(latest[shown].tolist()))
    if firsts_max and len(mapped):
        firsts = np.full(len(joined), np.iinfo(np.int64).max)
        np.minimum.at(firsts, codes[is_mapped], first[0][is_mapped])
        yield 0, Firsts(np.sort(firsts[mapped])[:firsts_max].tobytes())

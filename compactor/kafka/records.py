"""The records of many batches as columns, and where each begins.

Only lengths are read sequentially: step i reads that of record i, for all batches that have one, so
a chunk takes as many steps as its longest batch has records. (A few remaining long batches are
walked one by one.) All other fields are read for all records at once, directly in the mapped file
if nothing is compressed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ledgerfold.compactor.job.distinct import HashedKeys
from ledgerfold.compactor.job.words import Hashed
from ledgerfold.compactor.kafka.batches import COMPRESSION, Batches
from ledgerfold.compactor.kafka.fields import read_fields
from ledgerfold.compactor.kafka.rows import Located
from ledgerfold.compactor.kafka.varints import NOWHERE, Bytes, read_varints, spans, varint_ends
from ledgerfold.compactor.positions import Booleans, Integers, ranges
from ledgerfold.storage.errors import KafkaError
from ledgerfold.storage.kafka.compression import KafkaCompression, decompress
from ledgerfold.storage.kafka.varints import read_varint

# The decompressed size of the batches read at once: with the limit of one batch, this limits a
# task's memory.
SECTIONS_BYTES = 64 * 1024 * 1024
# The minimum of batches that are walked together.
TOGETHER_MIN = 8


@dataclass(frozen=True)
class Records:
    """All records of batches, or some of them. Rows are records, in order; positions are in `blob`,
    with the sections.
    """

    source: Batches
    blob: Bytes
    # The index of each batch in its chunk, its number of rows, and where its section begins.
    batches: Integers
    counts: Integers
    section_starts: Integers
    # The batch of each row, and where the record begins and ends.
    batch: Integers
    start: Integers
    end: Integers
    # The offset of each record, if known.
    known_offset: Integers | None = None

    def __len__(self) -> int:
        return len(self.start)

    def starts_in_batches(self, rows: Integers) -> Integers:
        """Returns where each of these records begins in the section of its batch."""
        found: Integers = self.start.take(rows) - self.section_starts.take(self.batch.take(rows))
        return found

    @cached_property
    def offset(self) -> Integers:
        """The offset of each record. Raises Corruption.

        If batches have a record at every offset, offsets can rise in only one way, and the stored
        deltas need not be read.
        """
        if self.known_offset is not None:
            return self.known_offset
        base = self.source.base_offset[self.batches]
        spans = self.source.last_offset[self.batches] - base + 1
        if not np.array_equal(spans, self.counts):
            return self.columns().offset
        firsts = np.cumsum(self.counts) - self.counts
        offset: Integers = np.arange(len(self)) + (base - firsts)[self.batch]
        return offset

    def columns(self, rows: Integers | None = None) -> Columns:
        """Returns the fields of these rows, ascending, or of all, with key hashes. Raises
        Corruption.
        """
        base = self.source.base_offset[self.batches]
        deltas_max = self.source.last_offset[self.batches] - base
        if rows is None:
            rows, firsts = np.arange(len(self)), np.cumsum(self.counts) - self.counts
            base, deltas_max = (np.repeat(each, self.counts) for each in (base, deltas_max))
            hashed = Hashed(len(self))
            found = self._columns(rows, self.start, self.end, base, deltas_max, hashed)
            # Offsets rise across batches if the log is in order, and within one if its producer was
            # correct.
            rises = np.ones(len(rows), np.bool_)
            np.greater(found.offset[1:], found.offset[:-1], out=rises[1:])
            rises[firsts] = True
            found.check(rises)
            return found
        of = self.batch[rows]
        found = self._columns(rows, self.start[rows], self.end[rows], base[of], deltas_max[of])
        found.check(found.offset == self.offset[rows])
        return found

    def _columns(
        self,
        rows: Integers,
        start: Integers,
        end: Integers,
        base: Integers,
        deltas_max: Integers,
        hashed: Hashed | None = None,
    ) -> Columns:
        key_at, delta, key_bytes = read_fields(self.blob, start, hashed)
        found = Columns(self, rows, start, key_at, key_bytes, end, base + delta, hashed)
        # Negative deltas are large as unsigned numbers.
        fits = delta.view(np.uint64) <= deltas_max.view(np.uint64)
        fits &= key_at + np.maximum(key_bytes, 0) < end
        found.check(fits)
        return found


@dataclass(frozen=True)
class Columns:
    """The fields of some of the records."""

    records: Records
    rows: Integers
    # The positions where record and key begin, and the record ends; -1 key bytes: null.
    start: Integers
    key_at: Integers
    key_bytes: Integers
    end: Integers
    offset: Integers
    hashed: Hashed | None

    @property
    def has_key(self) -> Booleans:
        return self.key_bytes >= 0

    def is_null(self) -> Booleans:
        """Returns which have no value. Raises Corruption."""
        size_at = self.key_at + np.maximum(self.key_bytes, 0)
        value_bytes, value_at = read_varints(self.records.blob, size_at)
        self.check((value_bytes < NOWHERE) & (value_at + np.maximum(value_bytes, 0) < self.end))
        found: Booleans = value_bytes < 0
        return found

    def timestamp_deltas(self) -> tuple[Integers, Integers]:
        """Returns the timestamps relative to the base timestamps of their batches, and where each
        ends.
        """
        blob = self.records.blob
        # One byte of attributes is between length and timestamp.
        return read_varints(blob, varint_ends(blob, self.start) + 1)

    def keys(self, chosen: Integers) -> HashedKeys:
        """Returns the keys of these rows, ascending, which have one. `self` has all rows."""
        assert self.hashed is not None
        if len(chosen) == len(self.rows):
            return HashedKeys(self.records.blob, self.key_at, self.key_bytes, self.hashed)
        starts, sizes = self.key_at.take(chosen), self.key_bytes.take(chosen)
        return HashedKeys(self.records.blob, starts, sizes, self.hashed.where(chosen))

    def check(self, fits: Booleans) -> None:
        """Raises Corruption unless `fits` is true for all."""
        if not fits.all():
            records = self.records
            batch = records.batch[self.rows[int(np.argmin(fits))]]
            records.source.refuse(int(records.batches[batch]), "an invalid record")


def read_records(batches: Batches, indexes: Integers) -> Iterator[Records]:
    """Yields the records of these batches, all at once unless they are large when decompressed.

    Each batch has at least one. Raises Corruption; sections are verified.
    """
    for sections in _read_sections(batches, indexes):
        yield _read_all(batches, sections)


def read_chosen(batches: Batches, indexes: Integers, chosen: Located) -> Iterator[Records]:
    """Yields the chosen records of these batches, as read_records does, without the others."""
    for sections in _read_sections(batches, indexes):
        yield _read_chosen(batches, sections, chosen)


class _Sections(NamedTuple):
    """The decompressed records of these batches, in a buffer."""

    indexes: Integers
    blob: Bytes
    starts: Integers
    ends: Integers


def _read_sections(batches: Batches, indexes: Integers) -> Iterator[_Sections]:
    if not len(indexes):
        return
    starts, ends = batches.sections(indexes)
    codecs = batches.attributes[indexes] & COMPRESSION
    if not codecs.any():
        origin = starts[0]
        blob = batches.file.view[origin : ends[-1]]
        yield _Sections(indexes, blob, starts - origin, ends - origin)
        return
    sections: list[bytes] = []
    first = size_bytes = 0
    places = zip(indexes.tolist(), codecs.tolist(), starts.tolist(), ends.tolist(), strict=True)
    for number, (index, codec, start, end) in enumerate(places, 1):
        sections.append(_section(batches, index, codec, batches.file.bytes[start:end]))
        size_bytes += len(sections[-1])
        if size_bytes >= SECTIONS_BYTES or number == len(indexes):
            sizes = np.fromiter(map(len, sections), np.int64, len(sections))
            blob, behind = np.frombuffer(b"".join(sections), np.uint8), np.cumsum(sizes)
            yield _Sections(indexes[first:number], blob, behind - sizes, behind)
            sections, first, size_bytes = [], number, 0


def _section(batches: Batches, index: int, codec: int, section: bytes) -> bytes:
    if codec == KafkaCompression.NONE:
        return section
    try:
        return decompress(codec, section)
    except KafkaError as error:
        batches.refuse(index, error.message)


def _read_all(batches: Batches, sections: _Sections) -> Records:
    indexes, blob, section_starts, ends = sections
    counts = batches.record_count[indexes]
    starts, bad = _record_starts(blob, section_starts, ends, counts)
    if bad >= 0:
        batches.refuse(int(indexes[bad]), "its records do not fill it")
    of = np.repeat(np.arange(len(indexes)), counts)
    end = np.empty_like(starts)
    end[:-1] = starts[1:]
    end[np.cumsum(counts) - 1] = ends
    return Records(batches, blob, indexes, counts, section_starts, of, starts, end)


def _read_chosen(batches: Batches, sections: _Sections, chosen: Located) -> Records:
    indexes, blob, section_starts, ends = sections
    offsets = chosen.offsets
    first = np.searchsorted(offsets, batches.base_offset[indexes])
    counts = np.searchsorted(offsets, batches.last_offset[indexes] + 1) - first
    of, rows = np.repeat(np.arange(len(indexes)), counts), ranges(first, counts)
    start = section_starts[of] + chosen.starts[rows]
    end = start + spans(blob, start)
    fits = (start >= section_starts[of]) & (end <= ends[of])
    if not fits.all():
        batches.refuse(int(indexes[of[np.argmin(fits)]]), "an invalid record")
    return Records(
        batches, blob, indexes, counts, section_starts, of, start, end, known_offset=offsets[rows]
    )


def _record_starts(
    buffer: Bytes, section_starts: Integers, section_ends: Integers, counts: Integers
) -> tuple[Integers, int]:
    """Returns where each record begins, in order, and a batch whose records do not fill it, or -1.

    Positions only grow: if the last record of a batch ends with its section, no other record ends
    beyond it.
    """
    # The section cannot hold as many.
    has_too_many = counts > section_ends - section_starts
    if has_too_many.any():
        return np.empty(0, np.int64), int(np.argmax(has_too_many))
    order = np.argsort(-counts, kind="stable")
    at, ends, left = section_starts[order], section_ends[order], counts[order]
    rows = (np.cumsum(counts) - counts)[order]
    starts = np.empty(int(counts.sum()), np.int64)
    # The number of batches with more than i records.
    active = np.searchsorted(-left, -np.arange(int(left[0])), side="left")
    steps = int(np.searchsorted(-active, -TOGETHER_MIN, side="right"))
    for many in active[:steps].tolist():
        places, at_rows = at[:many], rows[:many]
        starts[at_rows] = places
        at_rows += 1
        places += spans(buffer, places)
    for index in range(int(active[steps]) if steps < len(active) else 0):
        first, behind = int(rows[index]), int(rows[index]) + int(left[index]) - steps
        starts[first:behind], at[index] = _walked(
            buffer[: int(ends[index])], int(at[index]), behind - first
        )
    unfilled = np.flatnonzero(at != ends)
    return starts, int(order[unfilled[0]]) if len(unfilled) else -1


def _walked(buffer: Bytes, at: int, count: int) -> tuple[list[int], int]:
    """Returns where `count` consecutive records begin, and where the last one ends."""
    data = buffer[at:].tobytes()
    places, place = [at] * count, 0
    try:
        for number in range(count):
            places[number] = at + place
            length, body = read_varint(data, place)
            if length < 0:
                return places, NOWHERE
            place = body + length
    except (KafkaError, IndexError):
        return places, NOWHERE
    return places, at + place

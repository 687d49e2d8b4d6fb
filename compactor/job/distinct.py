"""Groups equal keys without converting them to Python objects.

Each row writes its number into a slot of a table, which the hash of its key (words.py) selects; the
last row of a slot wins. All rows with the winner's key form its group. Rows of other keys in the
same slot go into a second table, and so on. Arrow's dictionary encoding groups long keys, and the
few keys that remain after some tables.

>>> keys = HashedKeys.of(pa.array([b"a", b"b", b"a"]))
>>> groups = keys.grouped()
>>> groups.first.tolist(), groups.last.tolist(), groups.codes.tolist()
([1, 0], [1, 2], [1, 0, 1])
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ledgerfold.compactor.job.arrow_integers import from_arrow, offsets_of, to_arrow
from ledgerfold.compactor.job.words import BLOCK_ROWS, HASHED_BYTES, Hashed, Words
from ledgerfold.compactor.positions import Booleans, Bytes, Integers

# The number of tables after the first one: more are needed only for keys with equal hashes.
_TABLES_MAX = 7
# Keys are mostly distinct if more than this share of the rows of one key in 64 differ,
_SAMPLE_MASK = np.uint64(63)
DISTINCT_SHARE = 0.9
# and no key has more than so many of so many rows: of 2 M, about 1,000. Rows of one key that are
# not folded are all in one bucket.
_SAMPLE_ROWS = 16 * 1024
SAMPLED_MAX = 8
# An odd factor, by which keys that share a place get different places in the next table.
_NEXT_TABLE = np.uint64(0x9E37_79B9_7F4A_7C15)


class Groups(NamedTuple):
    """Rows grouped by key. `last_of`: for each row the last one with the same key."""

    last_of: Integers

    @classmethod
    def of(cls, codes: NDArray[np.integer]) -> Groups:
        """Groups rows by the numbers of their keys, which begin at 0."""
        return cls(_last_at(codes, np.arange(len(codes)), int(codes.max()) + 1))

    @property
    def last(self) -> Integers:
        """The last row of each key, ascending."""
        return np.flatnonzero(self.last_of == np.arange(len(self.last_of)))

    @property
    def first(self) -> Integers:
        """The first row of each key, in the order of their last ones."""
        count = len(self.last_of)
        table = np.full(count, count)
        np.minimum.at(table, self.last_of, np.arange(count))
        first: Integers = table[self.last]
        return first

    @property
    def codes(self) -> Integers:
        """The number of each row's key. Keys are numbered in the order of their last rows."""
        numbers: Integers = np.cumsum(self.last_of == np.arange(len(self.last_of))) - 1
        return numbers[self.last_of]


class NumberedKeys(NamedTuple):
    """A column of keys, their hashes, and the number of each row's key in it."""

    keys: pa.BinaryArray
    hashes: NDArray[np.uint64]
    codes: Integers

    def take(self, codes: NDArray[np.integer]) -> NumberedKeys:
        """Returns these keys, by their numbers, as rows."""
        keys = self.keys.take(to_arrow(codes))
        return NumberedKeys(keys, self.hashes[codes], np.arange(len(codes)))


class HashedKeys:
    """Keys as parts of a buffer, which ascend and do not overlap."""

    def __init__(self, blob: Bytes, starts: Integers, sizes: Integers, hashed: Hashed) -> None:
        self._blob, self._starts, self._sizes, self._hashed = blob, starts, sizes, hashed

    @classmethod
    def of(cls, column: pa.BinaryArray, hashed: Hashed | None = None) -> HashedKeys:
        """Returns the keys of a column, hashed as `hashed` if that is known."""
        ends = offsets_of(column).astype(np.int64)
        starts, sizes, blob = ends[:-1], np.diff(ends), column.buffers()[2]
        buffer = np.frombuffer(blob, np.uint8) if blob is not None else np.empty(0, np.uint8)
        if hashed is None:
            words, hashed = Words(buffer), Hashed(len(starts))
            for first in range(0, len(starts), BLOCK_ROWS):
                block = slice(first, first + BLOCK_ROWS)
                hashed.fill(words, block, starts[block], sizes[block])
        return cls(buffer, starts, sizes, hashed)

    def __len__(self) -> int:
        return len(self._starts)

    def where(self, rows: Integers) -> tuple[pa.BinaryArray, Hashed]:
        """Returns the keys of these rows, ascending, as a column, and hashed."""
        return self.column(rows), self._hashed.where(rows)

    def column(self, rows: Integers | None = None) -> pa.BinaryArray:
        """Returns all keys, or those of these rows, ascending."""
        starts, sizes = self._starts, self._sizes
        if rows is not None:
            starts, sizes = starts.take(rows), sizes.take(rows)
        return slices(self._blob, starts, starts + sizes)

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """The hashes of the keys, which do not depend on other keys."""
        return self._hashed.hashes

    @property
    def are_mostly_distinct(self) -> bool:
        """True if grouping the rows would hardly make them fewer.

        Two samples decide: all rows of some of the keys, and some of all rows, which no key may
        have many of.
        """
        of_keys = self.hashes[self.hashes & _SAMPLE_MASK == 0]
        if len(np.unique(of_keys)) <= DISTINCT_SHARE * len(of_keys):
            return False
        some = np.random.default_rng(len(self)).integers(0, len(self), _SAMPLE_ROWS)
        _, counts = np.unique(self.hashes[some], return_counts=True)
        return int(counts.max()) <= SAMPLED_MAX

    def numbered(self) -> NumberedKeys:
        """Numbers the keys."""
        groups = self.grouped()
        rows = groups.last
        return NumberedKeys(self.column(rows), self.hashes[rows], groups.codes)

    def grouped(self) -> Groups:
        """Groups the rows."""
        if int(self._sizes.max(initial=0)) > HASHED_BYTES:
            return Groups.of(self._codes())
        last_of = _last_with_hash(np.arange(len(self)), self.hashes)
        rows = np.flatnonzero(~self._are_equal(slice(None), last_of))
        hashes = self.hashes[rows]
        for _ in range(_TABLES_MAX):
            if not len(rows):
                return Groups(last_of)
            hashes *= _NEXT_TABLE
            last = _last_with_hash(rows, hashes)
            last_of[rows] = last
            is_other = ~self._are_equal(rows, last)
            rows, hashes = rows[is_other], hashes[is_other]
        if len(rows):
            last_of[rows] = rows[Groups.of(self._codes(rows)).last_of]
        return Groups(last_of)

    def _are_equal(self, rows: Integers | slice, others: Integers) -> Booleans:
        """Returns whether each row has the same key as the other one."""
        are_equal: Booleans = self._sizes[rows] == self._sizes.take(others)
        for part in self._hashed.parts:
            are_equal &= part[rows] == part.take(others)
        return are_equal

    def _codes(self, rows: Integers | None = None) -> NDArray[np.integer]:
        """Returns the number of each row's key, or of these rows'."""
        return from_arrow(self.column(rows).dictionary_encode().indices)


def _last_with_hash(rows: Integers, hashes: NDArray[np.uint64]) -> Integers:
    """Returns the last of the rows at the place of each in a table of as many places or more."""
    bits = len(rows).bit_length()
    return _last_at((hashes >> np.uint64(64 - bits)).view(np.int64), rows, 1 << bits)


def _last_at(places: NDArray[np.integer], rows: Integers, count: int) -> Integers:
    """Returns the last of the rows at the place of each. `count`: the number of places."""
    table = np.zeros(count, np.int64)
    # An assignment to the places would be faster, but numpy does not promise its order.
    np.maximum.at(table, places, rows)
    return table.take(places)


def slices(blob: Bytes, starts: Integers, ends: Integers) -> pa.BinaryArray:
    """Returns the parts of `blob` between these bounds, which ascend and do not overlap."""
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    places = np.empty(2 * count, "<i4")
    places[0::2], places[1::2] = starts, ends
    # Every other element is the gap between two parts.
    all_parts = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(places), pa.py_buffer(blob)]
    )
    return all_parts.take(to_arrow(np.arange(0, 2 * count, 2)))

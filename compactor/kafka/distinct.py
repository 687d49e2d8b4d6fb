"""Groups equal keys without converting them to Python objects.

The upper bits of a key's hash (words.py) and, below, its row form one number: sorted, equal keys
are adjacent, in row order. Adjacent keys are then compared; if some differ, or keys are long,
Arrow's dictionary encoding is used instead.

>>> keys = Keys.of(pa.array([b"a", b"b", b"a"]))
>>> groups = keys.grouped()
>>> sorted(zip(groups.first.tolist(), groups.last.tolist()))
[(0, 2), (1, 1)]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ledgerfold.compactor.job.arrow_integers import from_arrow, offsets_of, to_arrow
from ledgerfold.compactor.kafka.varints import Bytes
from ledgerfold.compactor.kafka.words import BLOCK_ROWS, HASHED_BYTES, Hashed, Words
from ledgerfold.compactor.positions import Booleans, Integers


class Groups(NamedTuple):
    """Rows grouped by key; those of one key are adjacent and ascend."""

    rows: Integers
    is_first: Booleans

    @classmethod
    def of(cls, codes: NDArray[np.integer]) -> Groups:
        """Groups rows by the numbers of their keys."""
        rows: Integers = np.argsort(codes, kind="stable")
        is_first = np.ones(len(rows), np.bool_)
        np.not_equal(codes[rows][1:], codes[rows][:-1], out=is_first[1:])
        return cls(rows, is_first)

    @property
    def first(self) -> Integers:
        """The first row of each key."""
        return self.rows[self.is_first]

    @property
    def last(self) -> Integers:
        """The last row of each key, in the same order."""
        last: Integers = self.rows[np.append(self.is_first[1:], True)]
        return last

    @property
    def numbers(self) -> Integers:
        """The number of the key, from 0, of each of `rows`."""
        numbers: Integers = np.cumsum(self.is_first) - 1
        return numbers


class Keys:
    """Keys as parts of a buffer, which ascend and do not overlap."""

    def __init__(self, blob: Bytes, starts: Integers, sizes: Integers, hashed: Hashed) -> None:
        self._blob, self._starts, self._sizes, self._hashed = blob, starts, sizes, hashed

    @classmethod
    def of(cls, column: pa.BinaryArray) -> Keys:
        ends = offsets_of(column).astype(np.int64)
        starts, sizes, blob = ends[:-1], np.diff(ends), column.buffers()[2]
        buffer = np.frombuffer(blob, np.uint8) if blob is not None else np.empty(0, np.uint8)
        words, hashed = Words(buffer), Hashed(len(starts))
        for first in range(0, len(starts), BLOCK_ROWS):
            block = slice(first, first + BLOCK_ROWS)
            hashed.fill(words, block, starts[block], sizes[block])
        return cls(buffer, starts, sizes, hashed)

    def __len__(self) -> int:
        return len(self._starts)

    def column(self, rows: Integers | None = None) -> pa.BinaryArray:
        """Returns all keys, or those of these rows, ascending."""
        starts, sizes = self._starts, self._sizes
        if rows is not None:
            starts, sizes = starts[rows], sizes[rows]
        return slices(self._blob, starts, starts + sizes)

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """The hashes of the keys, which do not depend on other keys."""
        return self._hashed.hashes

    def grouped(self) -> Groups:
        """Groups the rows, of which there is at least one."""
        count = len(self)
        shortest, longest = (int(each) for each in (self._sizes.min(), self._sizes.max()))
        if longest > HASHED_BYTES:
            return self._by_dictionary()
        row_bits = np.uint64((count - 1).bit_length())
        upper = ~((np.uint64(1) << row_bits) - np.uint64(1))
        ordered = (self.hashes & upper) | np.arange(count, dtype=np.uint64)
        ordered.sort()
        rows = (ordered & ~upper).view(np.int64)
        ordered &= upper
        is_first = np.ones(count, np.bool_)
        np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
        is_other = np.zeros(count - 1, np.bool_)
        # Parts distinguish only keys of one size.
        sizes = () if shortest == longest else (self._sizes,)
        for part in (*self._hashed.parts, *sizes):
            of_rows = part.take(rows)
            is_other |= of_rows[1:] != of_rows[:-1]
        if (is_other & ~is_first[1:]).any():
            return self._by_dictionary()
        return Groups(rows, is_first)

    def _by_dictionary(self) -> Groups:
        return Groups.of(from_arrow(self.column().dictionary_encode().indices))


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

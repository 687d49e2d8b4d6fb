"""The position of a message within a run: one integer, in order of id.

    ordinal of the segment << ROW_BITS | row in that segment

It takes 60 bits (RUN_SEGMENTS_MAX): a strategy may store two bits of its own in the same number.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ROW_BITS = 40
ROW_MASK = (1 << ROW_BITS) - 1

# A table of rows has at most this many places for each row.
_TABLE_SHARE = 8

Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Booleans = NDArray[np.bool_]


def grouped(numbers: NDArray[np.integer], count: int) -> tuple[Integers, list[int]]:
    """Returns the rows of each of `count` numbers, one after the other, and the end of each."""
    # Two-byte numbers are sorted by counting.
    narrow = numbers.astype(np.min_scalar_type(count))
    order = np.argsort(narrow, kind="stable")
    return order, np.cumsum(np.bincount(narrow, minlength=count)).tolist()


def sums_of(sizes: NDArray[np.integer]) -> Integers:
    """Returns the sums before each row, and the total."""
    sums = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=sums[1:])
    return sums


def ascending(rows: Integers) -> Integers:
    """Sorts different rows of a segment.

    If they are many of its rows, they are marked in a table, which takes a tenth of the time.
    """
    count = int(rows.max(initial=-1)) + 1
    if count > _TABLE_SHARE * len(rows):
        return np.sort(rows)
    is_marked = np.zeros(count, np.bool_)
    is_marked[rows] = True
    return np.flatnonzero(is_marked)


def ranges(starts: Integers, counts: Integers) -> Integers:
    """Returns start, start + 1, ... of each range, `counts` each, one after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    rows: Integers = np.arange(total, dtype=np.int64) + np.repeat(starts - (ends - counts), counts)
    return rows

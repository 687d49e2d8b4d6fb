"""Which messages stay under a strategy that was asked in a job of its own: a bit for each message.

A strategy of one's own is asked in Python processes that no other strategy uses. To be compared
with others all the same, its job tells what stays under it, and the job that compares is given
that. It takes an eighth of a byte a message.

    >>> told = Survivors.of(np.array([1, 3, (1 << ROW_BITS) + 8]))
    >>> told.among(np.array([0, 1, 2, 3, 9, 1 << ROW_BITS, 2 << ROW_BITS])).tolist()
    [1, 3]
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ledgerfold.compactor.positions import ROW_BITS, Booleans, Integers

_ROW_MASK = (1 << ROW_BITS) - 1


class Survivors(NamedTuple):
    """By the ordinal of a segment: a bit for each of its rows, up to the last that stays."""

    segments: dict[int, bytes]

    @classmethod
    def of(cls, positions: Integers) -> Survivors:
        """`positions` ascend."""
        return cls(
            {
                int(rows[0] >> ROW_BITS): np.packbits(_marked(rows & _ROW_MASK)).tobytes()
                for rows in _by_segment(positions)
            }
        )

    @classmethod
    def joined(cls, parts: Iterable[Survivors]) -> Survivors:
        """Of parts that have no segment in common."""
        return cls({ordinal: bits for part in parts for ordinal, bits in part.segments.items()})

    def among(self, positions: Integers) -> Integers:
        """Those of these positions, which ascend, that stay."""
        found = [rows[self._stays(rows)] for rows in _by_segment(positions)]
        return np.concatenate(found) if found else positions

    def _stays(self, positions: Integers) -> Booleans:
        """Of positions in one segment."""
        bits = self.segments.get(int(positions[0] >> ROW_BITS), b"")
        marks = np.unpackbits(np.frombuffer(bits, np.uint8)).astype(np.bool_)
        rows = positions & _ROW_MASK
        is_known = rows < len(marks)
        is_known[is_known] = marks[rows[is_known]]
        return is_known


def _by_segment(positions: Integers) -> list[Integers]:
    starts = np.flatnonzero(np.diff(positions >> ROW_BITS, prepend=-1))
    bounds = [*starts.tolist(), len(positions)]
    return [positions[start:end] for start, end in pairwise(bounds)]


def _marked(rows: Integers) -> Booleans:
    marks = np.zeros(int(rows[-1]) + 1, np.bool_)
    marks[rows] = True
    return marks

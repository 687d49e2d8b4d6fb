"""The survivors of a strategy that ran in a separate job: a bit for each message.

A user-defined strategy runs in Python processes of its own job. To compare it with others, its job
returns its survivors, which are passed to the comparing job. They take an eighth of a byte a
message.

    >>> survivors = Survivors.of(np.array([1, 3, (1 << ROW_BITS) + 8]))
    >>> survivors.among(np.array([0, 1, 2, 3, 9, 1 << ROW_BITS, 2 << ROW_BITS])).tolist()
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
    """The rows that survive, by segment ordinal: a bit for each row, up to the last survivor."""

    segments: dict[int, bytes]

    @classmethod
    def of(cls, positions: Integers) -> Survivors:
        """Creates survivors from ascending positions."""
        return cls(
            {
                int(rows[0] >> ROW_BITS): np.packbits(_marked(rows & _ROW_MASK)).tobytes()
                for rows in _by_segment(positions)
            }
        )

    @classmethod
    def joined(cls, parts: Iterable[Survivors]) -> Survivors:
        """Joins parts that have no segment in common."""
        return cls({ordinal: bits for part in parts for ordinal, bits in part.segments.items()})

    def among(self, positions: Integers) -> Integers:
        """Returns those of these ascending positions that survive."""
        found = [rows[self._stays(rows)] for rows in _by_segment(positions)]
        return np.concatenate(found) if found else positions

    def _stays(self, positions: Integers) -> Booleans:
        """Returns which positions of one segment survive."""
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

"""Rows that the tasks of an analysis exchange, as compactor/job/rows.py for runs.

A row is a pair (partition number, content): a bucket after the scan, a sizing task after the merge.
`Counts`, `Failure` and `Messages` are those of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ledgerfold.compactor.job.joined_keys import joined_keys
from ledgerfold.compactor.job.rows import Counts, Failure, Fragments, Messages
from ledgerfold.compactor.positions import ROW_BITS, ROW_MASK, Booleans, Integers
from ledgerfold.compactor.strategies.strategy import Codes, FragmentColumns

# The strategies that a message survives under, a bit for each: at most 16.
Marks = NDArray[np.uint16]


def packed(values: Integers) -> bytes:
    return values.astype("<i8", copy=False).tobytes()


def unpacked(blob: bytes) -> Integers:
    return np.frombuffer(blob, "<i8").astype(np.int64, copy=False)


def key_blob(keys: pa.BinaryArray) -> bytes:
    return Fragments.of(keys, ()).blob


def key_column(blob: bytes) -> pa.BinaryArray:
    """Returns the keys, in the blob's own memory."""
    return Fragments(blob).columns[0]


def joined_blobs(blobs: Iterable[bytes]) -> tuple[pa.BinaryArray, list[Codes]]:
    """Returns the distinct keys of all blobs, and for each blob its keys as indexes into them."""
    columns = list(map(key_column, blobs))
    joined = joined_keys(columns)
    ends = accumulate(map(len, columns), initial=0)
    return joined.keys, [joined.codes[start:end] for start, end in pairwise(ends)]


def joined_codes(chunks: Sequence[tuple[bytes, Codes]]) -> Integers:
    """Returns one column of codes. Each chunk has keys, and codes that are indexes into them.

    Equal keys get equal codes, in all chunks. The code -1 means no key, -2 an entry that always
    survives.
    """
    joined = [np.empty(0, np.int64)]
    _, numbered = joined_blobs(keys for keys, _ in chunks)
    for numbers, (_, codes) in zip(numbered, chunks, strict=True):
        # The codes -1 and -2 index the last elements.
        joined.append(np.append(numbers, (-2, -1))[codes])
    return np.concatenate(joined).astype(np.int64)


class Part(NamedTuple):
    """One strategy's fragments of a chunk. `codes` None: one for each key, in order.

    Otherwise codes ascend; 32 bits each.
    """

    codes: bytes | None
    columns: tuple[bytes, ...]

    @classmethod
    def of(cls, codes: Codes | None, columns: FragmentColumns) -> Part:
        narrow = None if codes is None else codes.astype("<u4").tobytes()
        return cls(narrow, tuple(map(packed, columns)))

    @property
    def code_column(self) -> Codes | None:
        return None if self.codes is None else np.frombuffer(self.codes, "<u4")


class Shared(NamedTuple):
    """Positions, ascending, and each message's share of its entry (chunks.py)."""

    positions: bytes
    shares: bytes

    @classmethod
    def of(cls, positions: Integers, shares: Integers) -> Shared:
        return cls(packed(positions), shares.astype("<u4").tobytes())

    @property
    def columns(self) -> tuple[Integers, Integers]:
        return unpacked(self.positions), np.frombuffer(self.shares, "<u4").astype(np.int64)


class Chunk(NamedTuple):
    """Keys of a bucket, and the fragments of each column strategy, by number.

    Codes are indexes into `keys`. Several strategies may have the same part object, also after a
    shuffle. `first`: a lower bound of its positions, and an upper bound of those of earlier chunks.
    `candidates`: messages that may survive under any strategy. `places`, if differences are
    requested: the position of each message, and its key's code.
    """

    first: int
    keys: bytes
    parts: dict[int, Part]
    candidates: Shared
    places: tuple[bytes, bytes] | None


class Entries(NamedTuple):
    """Entries of the input: first position, rows, bytes of header.

    `hidden`: messages without a row, of an entry that cannot be opened; they survive with its only
    row.
    """

    positions: bytes
    counts: bytes
    header_bytes: bytes
    hidden: bytes


class Kept(NamedTuple):
    """Messages that survive under any strategy, with Marks."""

    messages: Shared
    marks: bytes

    @classmethod
    def of(cls, positions: Integers, shares: Integers, marks: Marks) -> Kept:
        return cls(Shared.of(positions, shares), marks.astype("<u2", copy=False).tobytes())

    @property
    def mark_column(self) -> Marks:
        return np.frombuffer(self.marks, "<u2")


class StrategyCounts(NamedTuple):
    """The counts of a bucket's keys under one strategy."""

    strategy: int
    keys: int
    removed_events: int


class Sized(NamedTuple):
    """The survivors of a sizing task's segments under one strategy."""

    strategy: int
    messages: int
    entries: int
    bytes: int
    bytes_estimated: int


class Differing(NamedTuple):
    """Keys whose survivors differ between strategies: their number, and the first of them.

    Each with its key and, by strategy, the number of surviving messages and the position of the
    last one (-1: none): first the job's strategies, then those whose survivors were passed in.
    """

    keys: int
    listed: tuple[tuple[bytes, tuple[tuple[int, int], ...]], ...]

    def in_order(self, order: Sequence[int]) -> Differing:
        """Returns the differences with the strategies in this order."""
        listed = ((key, tuple(survivors[at] for at in order)) for key, survivors in self.listed)
        return self._replace(listed=tuple(listed))


class Survivors(NamedTuple):
    """The rows that survive, by segment ordinal: a bit for each row, up to the last survivor.

    A user-defined strategy runs in Python processes of its own job. To compare it with others, its
    job returns its survivors, which are passed to the comparing job. They take an eighth of a byte
    a message.

        >>> survivors = Survivors.of(np.array([1, 3, (1 << ROW_BITS) + 8]))
        >>> survivors.among(np.array([0, 1, 2, 3, 9, 1 << ROW_BITS, 2 << ROW_BITS])).tolist()
        [1, 3]
    """

    segments: dict[int, bytes]

    @classmethod
    def of(cls, positions: Integers) -> Survivors:
        """Creates survivors from ascending positions."""
        return cls(
            {
                int(rows[0] >> ROW_BITS): np.packbits(_marked(rows & ROW_MASK)).tobytes()
                for rows in _by_segment(positions)
            }
        )

    @classmethod
    def joined(cls, parts: Iterable[Survivors]) -> Survivors:
        """Joins parts that have no segment in common."""
        return cls({ordinal: bits for part in parts for ordinal, bits in part.segments.items()})

    def among(self, positions: Integers) -> Integers:
        """Returns those of these ascending positions that survive."""
        surviving = [rows[self._stays(rows)] for rows in _by_segment(positions)]
        return np.concatenate(surviving) if surviving else positions

    def _stays(self, positions: Integers) -> Booleans:
        """Returns which positions of one segment survive."""
        bits = self.segments.get(int(positions[0] >> ROW_BITS), b"")
        marks = np.unpackbits(np.frombuffer(bits, np.uint8)).astype(np.bool_)
        rows = positions & ROW_MASK
        is_known = rows < len(marks)
        is_known[is_known] = marks[rows[is_known]]
        return is_known


AnalysisContent = (
    Chunk
    | Messages
    | Entries
    | Kept
    | StrategyCounts
    | Sized
    | Survivors
    | Differing
    | Counts
    | Failure
)
AnalysisRow = tuple[int, AnalysisContent]


def _by_segment(positions: Integers) -> list[Integers]:
    starts = np.flatnonzero(np.diff(positions >> ROW_BITS, prepend=-1))
    bounds = [*starts.tolist(), len(positions)]
    return [positions[start:end] for start, end in pairwise(bounds)]


def _marked(rows: Integers) -> Booleans:
    marks = np.zeros(int(rows[-1]) + 1, np.bool_)
    marks[rows] = True
    return marks

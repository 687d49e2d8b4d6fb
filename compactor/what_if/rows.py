"""Rows that the tasks of an analysis exchange, as compactor/job/rows.py for runs.

A row is a pair (partition number, content): a bucket after the scan, a sizing task after the merge.
`Counts`, `Failure` and `Messages` are those of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ledgerfold.compactor.job.arrow_integers import from_arrow
from ledgerfold.compactor.job.rows import Counts, Failure, Fragments, Messages
from ledgerfold.compactor.positions import Integers
from ledgerfold.compactor.strategies.strategy import Codes, FragmentColumns
from ledgerfold.compactor.what_if.survivors import Survivors

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


def joined_keys(blobs: Iterable[bytes]) -> tuple[pa.BinaryArray, list[Codes]]:
    """Returns the distinct keys of all blobs, and for each blob its keys as indexes into them."""
    columns = [pa.array([], pa.binary()), *map(key_column, blobs)]
    encoded = pa.concat_arrays(columns).dictionary_encode()
    ends = np.cumsum([len(column) for column in columns])
    codes = from_arrow(encoded.indices)
    return encoded.dictionary, [codes[start:end] for start, end in pairwise(ends)]


def joined_codes(chunks: Sequence[tuple[bytes, Codes]]) -> Integers:
    """Returns one column of codes. Each chunk has keys, and codes that are indexes into them.

    Equal keys get equal codes, whatever their chunk; the code -1 is for no key.
    """
    joined = [np.empty(0, np.int64)]
    _, found = joined_keys(keys for keys, _ in chunks)
    for numbers, (_, codes) in zip(found, chunks, strict=True):
        # The code -1 indexes the last element.
        joined.append(np.append(numbers, -1)[codes])
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
    """Positions, ascending, and each message's share of its entry (shares.py)."""

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
    """Entries of the input: first position, messages, bytes of header."""

    positions: bytes
    counts: bytes
    header_bytes: bytes


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

    Each with its key and, by strategy, the number of surviving messages and the last one's position
    (-1): first the job's strategies, then those whose survivors were given.
    """

    keys: int
    listed: tuple[tuple[bytes, tuple[tuple[int, int], ...]], ...]

    def in_order(self, order: Sequence[int]) -> Differing:
        """Returns the differences with the strategies in this order."""
        listed = ((key, tuple(kept[at] for at in order)) for key, kept in self.listed)
        return self._replace(listed=tuple(listed))


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

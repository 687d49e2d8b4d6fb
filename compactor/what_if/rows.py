"""What the tasks of an analysis hand to each other, as compactor/rows.py has it for runs.

A row is a pair (partition number, content); the number is a bucket after the scan, a sizing task
after the merge. `Counts`, `Failure` and `Messages` are those of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ledgerfold.compactor.positions import Integers
from ledgerfold.compactor.rows import Counts, Failure, Fragments, Messages
from ledgerfold.compactor.strategies.strategy import Codes, FragmentColumns
from ledgerfold.compactor.what_if.survivors import Survivors

# Which strategies a message stays under: a bit for each, so that there are 16 of them at most.
Marks = NDArray[np.uint16]


def packed(values: Integers) -> bytes:
    return values.astype("<i8", copy=False).tobytes()


def unpacked(blob: bytes) -> Integers:
    return np.frombuffer(blob, "<i8").astype(np.int64, copy=False)


def key_blob(keys: pa.BinaryArray) -> bytes:
    return Fragments.of(keys, ()).blob


def key_column(blob: bytes) -> pa.BinaryArray:
    """Over the blob's own memory."""
    return Fragments(blob).columns[0]


class Part(NamedTuple):
    """What one strategy makes of a chunk: `codes` None: a fragment for each key, in their order.

    Else they ascend; 32 bits each.
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
    """Positions, ascending, and the share that each message has of its entry (shares.py)."""

    positions: bytes
    shares: bytes

    @classmethod
    def of(cls, positions: Integers, shares: Integers) -> Shared:
        return cls(packed(positions), shares.astype("<u4").tobytes())

    @property
    def columns(self) -> tuple[Integers, Integers]:
        return unpacked(self.positions), np.frombuffer(self.shares, "<u4").astype(np.int64)


class Chunk(NamedTuple):
    """Keys of a bucket, and what strategies over columns make of them, by number.

    Codes are places in `keys`. Several strategies may have one part, the same object, also on the
    other side of a shuffle. `first`: a position before which the chunk has none, and no chunk of
    earlier messages any behind. `candidates`: what may stay under any strategy.
    `places`, where differences are asked for: the position of each message, and its key's code.
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
    """Messages that stay under any strategy, and the Marks of which."""

    messages: Shared
    marks: bytes

    @classmethod
    def of(cls, positions: Integers, shares: Integers, marks: Marks) -> Kept:
        return cls(Shared.of(positions, shares), marks.astype("<u2", copy=False).tobytes())

    @property
    def mark_column(self) -> Marks:
        return np.frombuffer(self.marks, "<u2")


class Judged(NamedTuple):
    """What the keys of a bucket came to under one strategy."""

    strategy: int
    keys: int
    removed_events: int


class Sized(NamedTuple):
    """What stays of a sizing task's segments under one strategy."""

    strategy: int
    messages: int
    entries: int
    bytes: int
    bytes_estimated: int


class Differing(NamedTuple):
    """Keys that the strategies leave with other messages: how many, and the first of them.

    Each with its key and, by strategy, how many messages stay and the last one's position (-1):
    first the strategies that the job asked, then those that it was given the survivors of.
    """

    keys: int
    listed: tuple[tuple[bytes, tuple[tuple[int, int], ...]], ...]

    def in_order(self, order: Sequence[int]) -> Differing:
        """With the strategies in another one: which of these comes first, and so on."""
        listed = ((key, tuple(kept[at] for at in order)) for key, kept in self.listed)
        return self._replace(listed=tuple(listed))


AnalysisContent = (
    Chunk | Messages | Entries | Kept | Judged | Sized | Survivors | Differing | Counts | Failure
)
AnalysisRow = tuple[int, AnalysisContent]

"""What the tasks of an analysis hand to each other, as compactor/rows.py has it for runs.

A row is a pair (partition number, content); the number is a bucket after the scan, a sizing task
after the merge. `Counts`, `Failure` and `Messages` are those of a run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ledgerfold.compactor.positions import Integers
from ledgerfold.compactor.rows import Counts, Failure, Fragments, Messages
from ledgerfold.compactor.strategies.strategy import FragmentColumns

# In the place of a strategy's number: what has no key, and stays under all those over columns.
KEYLESS = -1


def packed(values: Integers) -> bytes:
    return values.astype("<i8", copy=False).tobytes()


def unpacked(blob: bytes) -> Integers:
    return np.frombuffer(blob, "<i8").astype(np.int64, copy=False)


class Part(NamedTuple):
    """What one strategy makes of a chunk: `codes` None: a fragment for each key, in their order."""

    codes: bytes | None
    columns: tuple[bytes, ...]

    @classmethod
    def of(cls, codes: Integers | None, columns: FragmentColumns) -> Part:
        return cls(None if codes is None else packed(codes), tuple(map(packed, columns)))


class Chunk(NamedTuple):
    """Keys of a bucket, and what strategies over columns make of them, by number.

    Codes are places in `keys`.
    `places`, where differences are asked for: the position of each message, and its key's code.
    """

    keys: bytes
    parts: dict[int, Part]
    places: tuple[bytes, bytes] | None

    @classmethod
    def of(
        cls,
        keys: pa.BinaryArray,
        parts: dict[int, Part],
        places: tuple[Integers, Integers] | None,
    ) -> Chunk:
        packed_places = None if places is None else (packed(places[0]), packed(places[1]))
        return cls(Fragments.of(keys, ()).blob, parts, packed_places)

    @property
    def key_column(self) -> pa.BinaryArray:
        return Fragments(self.keys).columns[0]


class Entries(NamedTuple):
    """Entries of the input: first position, messages, bytes of header; and a share a message."""

    positions: bytes
    counts: bytes
    header_bytes: bytes
    shares: bytes


class Kept(NamedTuple):
    """Positions that stay under one strategy, or KEYLESS ones, ascending."""

    strategy: int
    positions: bytes


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

    Each with its key and, by strategy, how many messages stay and the last one's position (-1).
    """

    keys: int
    listed: tuple[tuple[bytes, tuple[tuple[int, int], ...]], ...]


AnalysisContent = Chunk | Messages | Entries | Kept | Judged | Sized | Differing | Counts | Failure
AnalysisRow = tuple[int, AnalysisContent]

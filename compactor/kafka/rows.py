"""What a round's tasks hand to each other, beside what a compaction's do (compactor/job/rows.py).

Positions here are offsets. The first of a row's pair is a bucket, then a copy task.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ledgerfold.compactor.job.rows import Failure, Fragments, Positions, WriteTimes, Written
from ledgerfold.compactor.positions import Integers


class Span(NamedTuple):
    """The offsets of a file's batches."""

    ordinal: int
    first_offset: int
    last_offset: int


class Facts(NamedTuple):
    """Of transactional and control batches (transactions.facts_of), little-endian i64."""

    blob: bytes

    @classmethod
    def of(cls, rows: Integers) -> Facts:
        return cls(rows.astype("<i8").tobytes())

    @property
    def rows(self) -> Integers:
        return np.frombuffer(self.blob, "<i8").astype(np.int64).reshape(-1, 3)


class Mapped(NamedTuple):
    """What a scan counted up to the map's last offset."""

    messages: int = 0
    keyless: int = 0


class Distinct(NamedTuple):
    """How many keys of a bucket are in the map."""

    keys: int


class Firsts(NamedTuple):
    """The first offset of each of a bucket's keys, ascending, as Positions are."""

    blob: bytes


class Shown(NamedTuple):
    """Of a bucket's keys in the map those with the lowest offsets, ascending."""

    keys: tuple[bytes, ...]
    offsets: tuple[int, ...]


class Copied(NamedTuple):
    """What a copy task did: messages read and written, and each batch that it left, in order."""

    task: int
    messages_read: int
    messages_written: int
    # Rows of (last offset, size, largest timestamp), i64: 24 bytes a batch is what a driver holds.
    batches: bytes


Content = (
    Fragments
    | Positions
    | Span
    | Facts
    | Mapped
    | Distinct
    | Firsts
    | Shown
    | Copied
    | Written
    | WriteTimes
    | Failure
)
Row = tuple[int, Content]

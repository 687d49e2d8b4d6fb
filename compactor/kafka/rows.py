"""Rows that the tasks of a cleaning exchange, in addition to compactor/job/rows.py.

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
    """Facts about transactional and control batches (transactions.facts_of), little-endian i64."""

    blob: bytes

    @classmethod
    def of(cls, rows: Integers) -> Facts:
        return cls(rows.astype("<i8").tobytes())

    @property
    def rows(self) -> Integers:
        return np.frombuffer(self.blob, "<i8").astype(np.int64).reshape(-1, 3)


class Mapped(NamedTuple):
    """The counts of a scan up to the map's last offset."""

    messages: int = 0
    keyless: int = 0


class Distinct(NamedTuple):
    """The number of keys of a bucket in the map."""

    keys: int


class Firsts(NamedTuple):
    """The first offset of each of a bucket's keys, ascending, encoded as Positions."""

    blob: bytes


class Shown(NamedTuple):
    """A bucket's keys with the lowest offsets in the map, ascending."""

    keys: tuple[bytes, ...]
    offsets: tuple[int, ...]


class Copied(NamedTuple):
    """The results of a copy task: messages read and written, and each written batch, in order."""

    task: int
    messages_read: int
    messages_written: int
    # Rows of (last offset, size, largest timestamp), i64: the driver holds 24 bytes a batch.
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

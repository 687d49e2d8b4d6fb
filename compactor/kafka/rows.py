"""Rows that the tasks of a cleaning exchange, in addition to compactor/job/rows.py.

A row's partition number is a bucket, and after the first job a copy task.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ledgerfold.compactor.job.rows import Failure, Fragments, WriteTimes, Written
from ledgerfold.compactor.positions import Integers


class Located(NamedTuple):
    """Records: their offsets, which are unique and ascend, and where each begins in the section of
    its batch.
    """

    offsets: Integers
    # A section is smaller than 2 GiB (storage/kafka/compression.py).
    starts: NDArray[np.int32]


class Chosen(NamedTuple):
    """Records that the map chose, little-endian: offsets as i64, starts as i32 (Located)."""

    offset_blob: bytes
    start_blob: bytes

    @classmethod
    def of(cls, offsets: Integers, starts: NDArray[np.signedinteger]) -> Chosen:
        """`offsets` and `starts`: of Located."""
        return cls(
            offsets.astype("<i8", copy=False).tobytes(), starts.astype("<i4", copy=False).tobytes()
        )

    @property
    def records(self) -> Located:
        offsets = np.frombuffer(self.offset_blob, "<i8").astype(np.int64, copy=False)
        return Located(offsets, np.frombuffer(self.start_blob, "<i4"))

    @classmethod
    def joined(cls, rows: Iterable[Row]) -> Located:
        """Returns the chosen records of these rows, of several buckets in any order."""
        parts = [content.records for _, content in rows if isinstance(content, cls)]
        offsets = np.concatenate([np.empty(0, np.int64), *(each.offsets for each in parts)])
        starts = np.concatenate([np.empty(0, np.int32), *(each.starts for each in parts)])
        order = np.argsort(offsets, kind="stable")
        return Located(offsets[order], starts[order])


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
    """The first offset of each of a bucket's keys, ascending, little-endian i64."""

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
    | Chosen
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

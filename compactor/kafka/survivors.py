"""Builds the entries of a chunk's surviving batches.

Their headers are columns, as they were read (batches.py); only checksums are computed one by one.
Entries get the position (0, last offset): the ledger is then ordered by offset, and the first entry
at or after (0, x) is the first batch whose last offset is at or above x.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from ledgerfold.compactor.job.header_blocks import HEADER, checksums, parts_of
from ledgerfold.compactor.kafka.batches import (
    BATCH,
    KIND,
    LOG_OVERHEAD_BYTES,
    Batches,
)
from ledgerfold.compactor.positions import Booleans, Integers
from ledgerfold.storage.entry import FORMAT_VERSION, HEADER_BYTES, Buffer, Position
from ledgerfold.storage.kafka.batch import BATCH_HEADER_BYTES, NO_TIMESTAMP
from ledgerfold.storage.segment import Totals

_HEADERS = np.dtype([("entry", HEADER), ("batch", BATCH)])
# The bytes that the checksums of a batch header and an entry cover.
_BATCH_CHECKED_AT = 21
_ENTRY_CHECKED, _HEADER_CHECKED = (4, 72), (0, HEADER_BYTES - 4)


class Survivors:
    """The surviving batches of a chunk, unchanged or replaced."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self.stays: Booleans = np.zeros(len(batches), np.bool_)
        self._headers = batches.headers.copy()
        self._new: dict[int, bytes] = {}

    def keep(self, indexes: Integers) -> None:
        """Keeps batches unchanged; their sections were verified."""
        self.stays[indexes] = True

    def replace(self, indexes: Integers, headers: NDArray[Any], sections: Iterable[bytes]) -> None:
        """Replaces batches by these headers, without lengths and checksums, and records."""
        self.stays[indexes] = True
        self._headers[indexes] = headers
        self._new.update(zip(indexes.tolist(), sections, strict=True))

    def keep_headers(self, indexes: Integers) -> None:
        """Keeps only headers, for a producer's last sequence number or for the log's end.

        The header has no horizon and no compression; its largest timestamp stays.
        """
        headers = self._headers[indexes]
        headers["attributes"] &= KIND
        headers["base_timestamp_ms"], headers["record_count"] = NO_TIMESTAMP, 0
        self.replace(indexes, headers, [b""] * len(indexes))

    def entries(self) -> SurvivorEntries:
        return SurvivorEntries(self._batches, np.flatnonzero(self.stays), self._headers, self._new)


class SurvivorEntries:
    """The entries of surviving batches: a Block of compactor/job/output.py."""

    def __init__(
        self,
        batches: Batches,
        indexes: Integers,
        headers: NDArray[Any],
        new: dict[int, bytes],
    ) -> None:
        self._source, self._first = batches.file.source, batches.first
        self._indexes = indexes
        self._rows = rows = np.empty(len(indexes), _HEADERS)
        rows["entry"], rows["batch"] = batches.entries[indexes], headers[indexes]
        starts, ends = (each.tolist() for each in batches.section_bounds(indexes))
        view = memoryview(batches.file.bytes)
        self._sections: list[Buffer] = [
            new[index] if index in new else view[start:end]
            for index, start, end in zip(indexes.tolist(), starts, ends, strict=True)
        ]
        if new:
            is_new = np.fromiter((index in new for index in indexes.tolist()), np.bool_)
            self._seal(np.flatnonzero(is_new))
        self.last_offset: Integers = batches.last_offset[indexes]
        self._stamp()

    def _seal(self, rows: Integers) -> None:
        """Computes lengths and checksums of rebuilt batches."""
        entries, batches = self._rows["entry"][rows], self._rows["batch"][rows]
        sections = [self._sections[row] for row in rows.tolist()]
        size_bytes = np.fromiter(map(len, sections), np.int64, len(rows))
        batches["length"] = size_bytes + (BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES)
        checked = checksums(parts_of(batches, _BATCH_CHECKED_AT, BATCH_HEADER_BYTES))
        batches["crc"] = list(map(google_crc32c.extend, checked.tolist(), sections))
        entries["message_count"] = batches["record_count"]
        entries["key_crc"] = checksums(parts_of(batches, 0, BATCH_HEADER_BYTES))
        entries["value_bytes"] = size_bytes
        entries["value_crc"] = checksums(sections)
        self._rows["entry"][rows], self._rows["batch"][rows] = entries, batches

    def _stamp(self) -> None:
        """Sets the headers of entries for their new positions."""
        entries = np.ascontiguousarray(self._rows["entry"])
        entries["version"] = FORMAT_VERSION
        entries["ledger_id"], entries["entry_id"] = 0, self.last_offset
        entries["durable_entries"] = 0
        entries["crc"] = checksums(parts_of(entries, *_ENTRY_CHECKED))
        entries["header_crc"] = checksums(parts_of(entries, *_HEADER_CHECKED))
        self._rows["entry"] = entries

    @property
    def size_bytes(self) -> Integers:
        """The sizes of the batches."""
        size: Integers = self._rows["batch"]["length"].astype(np.int64) + LOG_OVERHEAD_BYTES
        return size

    @property
    def max_timestamp_ms(self) -> Integers:
        times: Integers = self._rows["batch"]["max_timestamp_ms"].astype(np.int64)
        return times

    @property
    def ends(self) -> Integers:
        ends: Integers = np.cumsum(self.size_bytes + HEADER_BYTES)
        return ends

    def ordinal(self, index: int) -> int:
        return self._source.entries_before + self._first + int(self._indexes[index])

    def totals(self, start: int, end: int) -> Totals:
        entries = self._rows["entry"][start:end]
        return Totals(
            entries=len(entries),
            messages=int(entries["message_count"].sum(dtype=np.int64)),
            size_bytes=int((self.size_bytes[start:end] + HEADER_BYTES).sum()),
            key_bytes=BATCH_HEADER_BYTES * len(entries),
            first=Position(0, int(entries["entry_id"][0])),
            last=Position(0, int(entries["entry_id"][-1])),
            publish_time_min_ms=int(entries["publish_time_ms"].min()),
            publish_time_max_ms=int(entries["publish_time_ms"].max()),
            append_time_max_ms=int(entries["append_time_ms"].max()),
            crcs=entries["crc"].tobytes(),
        )

    def buffers(self, start: int, end: int) -> list[Buffer]:
        headers = parts_of(self._rows[start:end], 0, _HEADERS.itemsize)
        return list(chain.from_iterable(zip(headers, self._sections[start:end], strict=True)))

"""Stretches of a file's batches: their headers as columns.

The headers of an entry and of its batch (storage/kafka/batch.py, the entry's key section) have one
fixed layout each: those of many batches are gathered into one numpy array, and nothing is done
entry by entry but to hop to the next one and to compute checksums.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from itertools import chain, pairwise
from types import TracebackType
from typing import Any, NoReturn

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from ledgerfold.compactor.kafka.varints import Bytes
from ledgerfold.compactor.plan import InputSegment
from ledgerfold.compactor.positions import Booleans, Integers
from ledgerfold.compactor.rebuild import RawEntry
from ledgerfold.compactor.segment_map import map_file
from ledgerfold.storage.entry import (
    FORMAT_VERSION,
    HEADER_BYTES,
    Codec,
    EntryHeader,
    read_header,
    verify_sections,
)
from ledgerfold.storage.errors import Corruption
from ledgerfold.storage.kafka.batch import BATCH_HEADER_BYTES, MAGIC, BatchHeader

# Of one stretch, as its batches are stored: bounds what a task holds to a few times that, and what
# the records' columns take, about 100 bytes each.
STRETCH_BYTES = 32 * 1024 * 1024
STRETCH_RECORDS = 500_000

ENTRY = np.dtype(
    [
        ("crc", "<u4"),
        ("version", "u1"),
        ("codec", "u1"),
        ("compression", "u1"),
        ("flags", "u1"),
        ("ledger_id", "<i8"),
        ("entry_id", "<i8"),
        ("publish_time_ms", "<i8"),
        ("append_time_ms", "<i8"),
        ("sequence_id", "<i8"),
        ("producer_number", "<u4"),
        ("message_count", "<u4"),
        ("key_bytes", "<u4"),
        ("key_crc", "<u4"),
        ("value_bytes", "<u4"),
        ("value_crc", "<u4"),
        ("durable_entries", "<u4"),
        ("header_crc", "<u4"),
    ]
)
BATCH = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp_ms", ">i8"),
        ("max_timestamp_ms", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
assert ENTRY.names == EntryHeader._fields
assert ENTRY.itemsize == HEADER_BYTES
assert BATCH.names == BatchHeader._fields
assert BATCH.itemsize == BATCH_HEADER_BYTES
# Sizes of the key section and, behind its checksum, of the value section.
_SIZES, _SIZES_AT = struct.Struct("<I4xI"), 56
_CHECKED_BYTES = HEADER_BYTES - 4
LOG_OVERHEAD_BYTES = 12
# Of a batch's attributes.
COMPRESSION, HORIZON = 0b111, 1 << 6
_LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 1 << 3, 1 << 4, 1 << 5
# What stays when a batch is built anew, of which the compression only where records stay.
KIND = _LOG_APPEND_TIME | _TRANSACTIONAL | _CONTROL


class LogFile:
    """A sealed file, mapped into memory. Use as a context manager.

    Raises MissingFile, DiskFailure; reading raises Corruption, IncompatibleFormat.
    """

    def __init__(self, source: InputSegment) -> None:
        self.source = source

    def __enter__(self) -> LogFile:
        self.bytes: mmap.mmap = map_file(self.source.path, self.source.record.size_bytes)
        self.view: Bytes = np.frombuffer(self.bytes, np.uint8)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        del self.view
        # What still looks at it, such as an error's traceback, keeps it until it is gone itself.
        with suppress(BufferError):
            self.bytes.close()

    def stretches(self) -> Iterator[Batches]:
        """All batches, some at a time."""
        size_bytes, at, first = self.source.record.size_bytes, 0, 0
        last = (-1, -1)
        while at < size_bytes:
            end = min(at + STRETCH_BYTES, size_bytes)
            places: list[int] = []
            while at < end:
                if size_bytes - at < HEADER_BYTES:
                    self.refuse(at, f"{size_bytes - at} bytes")
                key_bytes, value_bytes = _SIZES.unpack_from(self.bytes, at + _SIZES_AT)
                places.append(at)
                at += HEADER_BYTES + key_bytes + value_bytes
            batches = Batches(self, places, first)
            if at > size_bytes:
                self.refuse(places[-1], f"{size_bytes - places[-1]} bytes")
            last = batches.check_order(last)
            yield from batches.split()
            first += len(places)

    def gathered(self, places: Integers, layout: np.dtype[Any]) -> NDArray[Any]:
        """A structure from each of these places."""
        found = self.view[places[:, None] + np.arange(layout.itemsize)]
        structures: NDArray[Any] = found.view(layout).reshape(-1)
        return structures

    def refuse(self, offset: int, found: str) -> NoReturn:
        """Raises Corruption."""
        raise Corruption(self.source.path, offset, "a whole record batch", found)


class Batches:
    """Batches that lie one behind the other in one file."""

    def __init__(self, file: LogFile, places: list[int], first: int) -> None:
        """`places`: where their entries begin; `first`: how many of the file lie before them.

        Raises Corruption, IncompatibleFormat.
        """
        self.file, self.first = file, first
        self._columns: dict[str, Integers] = {}
        self._places = np.array(places, np.int64)
        self.entries = file.gathered(self._places, ENTRY)
        self._check_headers(places)
        self.headers = file.gathered(self._places + HEADER_BYTES, BATCH)
        fits = (
            (self.headers["magic"] == MAGIC)
            & (self.size_bytes == self.entries["value_bytes"] + np.int64(BATCH_HEADER_BYTES))
            & (self.column("last_offset_delta") >= 0)
            & (self.record_count == self.entries["message_count"])
        )
        if not fits.all():
            self.refuse(int(np.argmin(fits)), "its header does not fit its entry")

    def _check_headers(self, places: list[int]) -> None:
        data, crc = self.file.bytes, google_crc32c.value
        keys_at, keys_end = HEADER_BYTES, HEADER_BYTES + BATCH_HEADER_BYTES
        headers = [crc(data[at : at + _CHECKED_BYTES]) for at in places]
        keys = [crc(data[at + keys_at : at + keys_end]) for at in places]
        entries = self.entries
        good = (
            (entries["header_crc"] == headers)
            & (entries["version"] == FORMAT_VERSION)
            & (entries["codec"] == Codec.KAFKA)
            & (entries["key_bytes"] == BATCH_HEADER_BYTES)
            & (entries["key_crc"] == keys)
        )
        if not good.all():
            bad = int(np.argmin(good))
            header = self._entry_header(bad)
            with memoryview(data) as view:
                verify_sections(view, header, places[bad], self.file.source.path, keys_only=True)
            self.refuse(bad, f"an entry of codec {header.codec}")

    def check_order(self, last: tuple[int, int]) -> tuple[int, int]:
        """Raises Corruption unless they rise from that position on; gives the last one's."""
        ids = list(
            zip(self.entries["ledger_id"].tolist(), self.entries["entry_id"].tolist(), strict=True)
        )
        for index, (before, after) in enumerate(zip(chain((last,), ids), ids, strict=False)):
            if after <= before:
                self.refuse(index, f"position {after} behind {before}")
        return ids[-1]

    def split(self) -> Iterator[Batches]:
        """In parts of not too many records each."""
        parts = np.cumsum(self.record_count) // STRETCH_RECORDS
        if parts[-1] == 0:
            yield self
            return
        bounds = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(self)]
        for start, end in pairwise(bounds):
            yield Batches(self.file, self._places[start:end].tolist(), self.first + start)

    def __len__(self) -> int:
        return len(self._places)

    def column(self, name: str) -> Integers:
        """A field of all headers."""
        if name not in self._columns:
            self._columns[name] = self.headers[name].astype(np.int64)
        return self._columns[name]

    def _entry_header(self, index: int) -> EntryHeader:
        with memoryview(self.file.bytes) as view:
            return read_header(view, int(self._places[index]), self.file.source.path)

    def _key_section(self, index: int) -> bytes:
        at = int(self._places[index]) + HEADER_BYTES
        return self.file.bytes[at : at + BATCH_HEADER_BYTES]

    def section_bounds(self, which: Integers) -> tuple[Integers, Integers]:
        """Where in the file the records of these begin and end."""
        starts = self._places[which] + (HEADER_BYTES + BATCH_HEADER_BYTES)
        return starts, starts + self.entries["value_bytes"][which]

    def sections(self, which: Integers) -> tuple[Integers, Integers]:
        """The same, verified. Raises Corruption."""
        starts, ends = self.section_bounds(which)
        view, crc = self.file.view, google_crc32c.value
        found = np.fromiter(
            (crc(view[at:end]) for at, end in zip(starts.tolist(), ends.tolist(), strict=True)),
            np.uint32,
            len(which),
        )
        expected = self.entries["value_crc"][which]
        if not np.array_equal(found, expected):
            bad = int(np.argmax(found != expected))
            raise Corruption(
                self.file.source.path,
                int(starts[bad]),
                f"value section CRC32C {expected[bad]:08x}",
                f"{found[bad]:08x}",
            )
        return starts, ends

    def raw(self, index: int) -> RawEntry:
        """The entry as it is stored, verified."""
        at = int(self._places[index])
        header = self.file.bytes[at : at + HEADER_BYTES]
        (start,), (end,) = (each.tolist() for each in self.sections(np.array([index])))
        return RawEntry(header, self._key_section(index), self.file.bytes[start:end])

    def refuse(self, index: int, why: str) -> NoReturn:
        """Raises Corruption."""
        self.file.refuse(int(self._places[index]), why)

    @property
    def base_offset(self) -> Integers:
        return self.column("base_offset")

    @cached_property
    def last_offset(self) -> Integers:
        last: Integers = self.base_offset + self.column("last_offset_delta")
        return last

    @cached_property
    def size_bytes(self) -> Integers:
        size: Integers = self.column("length") + LOG_OVERHEAD_BYTES
        return size

    @property
    def record_count(self) -> Integers:
        return self.column("record_count")

    @property
    def producer_id(self) -> Integers:
        return self.column("producer_id")

    @property
    def attributes(self) -> Integers:
        return self.column("attributes")

    @cached_property
    def is_control(self) -> Booleans:
        return self._has(_CONTROL)

    @cached_property
    def is_transactional(self) -> Booleans:
        return self._has(_TRANSACTIONAL)

    @cached_property
    def has_horizon(self) -> Booleans:
        return self._has(HORIZON)

    @property
    def has_append_time(self) -> Booleans:
        return self._has(_LOG_APPEND_TIME)

    def _has(self, flag: int) -> Booleans:
        found: Booleans = (self.attributes & flag) != 0
        return found

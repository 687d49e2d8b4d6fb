"""Chunks of a file's batches, with their headers as columns.

The headers of an entry and of its batch (storage/kafka/batch.py, the entry's key section) have
fixed layouts: those of many batches are gathered in one numpy array. The only work for each entry
is the step to the next one and its checksums.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from typing import Any, NoReturn

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from ledgerfold.compactor.job.header_blocks import HEADER, checksums, parts_of, record_type
from ledgerfold.compactor.job.plan import InputSegment
from ledgerfold.compactor.job.rebuild import RawEntry
from ledgerfold.compactor.job.segment_map import map_file
from ledgerfold.compactor.kafka.varints import Bytes
from ledgerfold.compactor.positions import Booleans, Integers
from ledgerfold.storage.entry import (
    FORMAT_VERSION,
    HEADER_BYTES,
    Codec,
    EntryHeader,
    read_header,
    verify_sections,
)
from ledgerfold.storage.errors import Corruption
from ledgerfold.storage.kafka.batch import BATCH_HEADER, BATCH_HEADER_BYTES, MAGIC, BatchHeader

# The limits of a chunk of stored batches: a task holds a few times as much, and about 100 bytes for
# each record of its columns. The file's pages of a chunk are released with it.
CHUNK_BYTES = 16 * 1024 * 1024
CHUNK_RECORDS = 250_000

BATCH = record_type(BATCH_HEADER, BatchHeader._fields)
_FRONT = np.dtype([("entry", HEADER), ("batch", BATCH)])
# Sizes of the key section and, after its checksum, of the value section.
_SIZES, _SIZES_AT = struct.Struct("<I4xI"), 56
_CHECKED_BYTES = HEADER_BYTES - 4
LOG_OVERHEAD_BYTES = 12
# Bits of a batch's attributes.
COMPRESSION, HORIZON = 0b111, 1 << 6
_LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 1 << 3, 1 << 4, 1 << 5
# The bits that a rebuilt batch keeps; the compression only if records stay.
KIND = _LOG_APPEND_TIME | _TRANSACTIONAL | _CONTROL


class LogFile:
    """A sealed file, mapped into memory. A context manager.

    Raises MissingFile, DiskFailure; reading raises Corruption, IncompatibleFormat.
    """

    def __init__(self, source: InputSegment) -> None:
        self.source = source

    def __enter__(self) -> LogFile:
        self.bytes: mmap.mmap = map_file(self.source.path, self.source.record.size_bytes)
        self.view: Bytes = np.frombuffer(self.bytes, np.uint8)
        return self

    def __exit__(self, *exc_info: object) -> None:
        del self.view
        # Other references to it, as in an error's traceback, keep it open until they are released.
        with suppress(BufferError):
            self.bytes.close()

    def chunks(self, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Batches]:
        """Yields all batches in chunks of about `chunk_bytes`, each of at least one batch."""
        size_bytes, at, first = self.source.record.size_bytes, 0, 0
        last, data, sizes_of = (-1, -1), self.bytes, _SIZES.unpack_from
        while at < size_bytes:
            end = min(at + chunk_bytes, size_bytes)
            places: list[int] = []
            fronts: list[bytes] = []
            while at < end:
                if size_bytes - at < HEADER_BYTES:
                    self.refuse(at, f"{size_bytes - at} bytes")
                front = data[at : at + _FRONT.itemsize]
                key_bytes, value_bytes = sizes_of(front, _SIZES_AT)
                places.append(at)
                fronts.append(front)
                at += HEADER_BYTES + key_bytes + value_bytes
            batches = Batches.checked(self, places, fronts, first)
            if at > size_bytes:
                self.refuse(places[-1], f"{size_bytes - places[-1]} bytes")
            last = batches.check_order(last)
            yield from batches.split()
            self._unmap(places[0], at)
            first += len(places)

    def _unmap(self, start: int, end: int) -> None:
        """Releases the pages that were read; if they are read again, the kernel maps them again."""
        start -= start % mmap.PAGESIZE
        self.bytes.madvise(mmap.MADV_DONTNEED, start, end - start)

    def refuse(self, offset: int, actual: str) -> NoReturn:
        """Raises Corruption."""
        raise Corruption(self.source.path, offset, "a whole record batch", actual)


def batches_of(files: Iterable[InputSegment], chunk_bytes: int = CHUNK_BYTES) -> Iterator[Batches]:
    """Yields all batches of the files in chunks. Raises as LogFile does."""
    for file in files:
        with LogFile(file) as opened:
            yield from opened.chunks(chunk_bytes)


class Batches:
    """Consecutive batches of one file."""

    def __init__(
        self,
        file: LogFile,
        places: Integers,
        entries: NDArray[Any],
        headers: NDArray[Any],
        first: int,
    ) -> None:
        """Creates a chunk. `places`: where entries begin; `first`: the number of batches before
        them.
        """
        self.file, self.first = file, first
        self.entries, self.headers = entries, headers
        self._places = places
        self._columns: dict[str, Integers] = {}

    @classmethod
    def checked(cls, file: LogFile, places: list[int], fronts: list[bytes], first: int) -> Batches:
        """Verifies headers and returns their batches. Raises Corruption, IncompatibleFormat.

        `fronts`: both headers of each.
        """
        # An entry of another kind may be shorter, at the end of the file.
        fronts[-1] = fronts[-1].ljust(_FRONT.itemsize, b"\0")
        both = np.frombuffer(b"".join(fronts), _FRONT)
        batches = cls(
            file, np.array(places, np.int64), both["entry"].copy(), both["batch"].copy(), first
        )
        batches._check_headers(both)
        fits = (
            (batches.headers["magic"] == MAGIC)
            & (batches.size_bytes == batches.entries["value_bytes"] + np.int64(BATCH_HEADER_BYTES))
            & (batches.column("last_offset_delta") >= 0)
            & (batches.record_count == batches.entries["message_count"])
        )
        if not fits.all():
            batches.refuse(int(np.argmin(fits)), "its header does not fit its entry")
        return batches

    def _check_headers(self, both: NDArray[Any]) -> None:
        entries = self.entries
        good = (
            (entries["header_crc"] == checksums(parts_of(both, 0, _CHECKED_BYTES)))
            & (entries["version"] == FORMAT_VERSION)
            & (entries["codec"] == Codec.KAFKA)
            & (entries["key_bytes"] == BATCH_HEADER_BYTES)
            & (entries["key_crc"] == checksums(parts_of(both, HEADER_BYTES, _FRONT.itemsize)))
        )
        if not good.all():
            bad = int(np.argmin(good))
            header, at = self._entry_header(bad), int(self._places[bad])
            with memoryview(self.file.bytes) as view:
                verify_sections(view, header, at, self.file.source.path, keys_only=True)
            self.refuse(bad, f"an entry of codec {header.codec}")

    def check_order(self, last: tuple[int, int]) -> tuple[int, int]:
        """Raises Corruption unless positions rise, from `last` on. Returns the last position."""
        ledgers, entries = (
            np.append(before, self.entries[name])
            for before, name in zip(last, ("ledger_id", "entry_id"), strict=True)
        )
        rises = (ledgers[1:] > ledgers[:-1]) | (
            (ledgers[1:] == ledgers[:-1]) & (entries[1:] > entries[:-1])
        )
        if not rises.all():
            bad = int(np.argmin(rises))
            before, after = ((int(ledgers[at]), int(entries[at])) for at in (bad, bad + 1))
            self.refuse(bad, f"position {after} after {before}")
        return int(ledgers[-1]), int(entries[-1])

    def split(self) -> Iterator[Batches]:
        """Splits into parts of at most about CHUNK_RECORDS records."""
        parts = np.cumsum(self.record_count) // CHUNK_RECORDS
        if parts[-1] == 0:
            yield self
            return
        bounds = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(self)]
        for start, end in pairwise(bounds):
            part = slice(start, end)
            columns = self._places[part], self.entries[part], self.headers[part]
            yield Batches(self.file, *columns, self.first + start)

    def __len__(self) -> int:
        return len(self._places)

    def column(self, name: str) -> Integers:
        """Returns a field of all headers."""
        if name not in self._columns:
            self._columns[name] = self.headers[name].astype(np.int64)
        return self._columns[name]

    def _entry_header(self, index: int) -> EntryHeader:
        with memoryview(self.file.bytes) as view:
            return read_header(view, int(self._places[index]), self.file.source.path)

    def _key_section(self, index: int) -> bytes:
        at = int(self._places[index]) + HEADER_BYTES
        return self.file.bytes[at : at + BATCH_HEADER_BYTES]

    def section_bounds(self, indexes: Integers) -> tuple[Integers, Integers]:
        """Returns where the records of these batches begin and end in the file."""
        starts = self._places[indexes] + (HEADER_BYTES + BATCH_HEADER_BYTES)
        return starts, starts + self.entries["value_bytes"][indexes]

    def sections(self, indexes: Integers) -> tuple[Integers, Integers]:
        """Returns section_bounds(), after verifying the records. Raises Corruption."""
        starts, ends = self.section_bounds(indexes)
        view, crc = self.file.view, google_crc32c.value
        bounds = zip(starts.tolist(), ends.tolist(), strict=True)
        found = np.array([crc(view[at:end]) for at, end in bounds], np.uint32)
        expected = self.entries["value_crc"][indexes]
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
        """Returns an entry as stored, verified."""
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
    def stored_bytes(self) -> int:
        """Their size in the file."""
        sizes = self.entries["key_bytes"].astype(np.int64) + self.entries["value_bytes"]
        return int(sizes.sum()) + HEADER_BYTES * len(self)

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
        has_flag: Booleans = (self.attributes & flag) != 0
        return has_flag

"""A memory-mapped segment of the plan: the entries of its range, and their sections.

A row is the index of a message among all in the file, including those outside the range; row and
ordinal form a message's position within the run.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ledgerfold.compactor.job.header_blocks import HeaderBlock, header_at, header_blocks, pieces
from ledgerfold.compactor.job.plan import InputSegment
from ledgerfold.compactor.job.rebuild import RawEntry
from ledgerfold.compactor.positions import ROW_BITS
from ledgerfold.storage.deletion_vector import DeletionVector, load_vector, place_of
from ledgerfold.storage.entry import HEADER_BYTES, EntryHeader, crc32c, read_header
from ledgerfold.storage.errors import Corruption, DiskFailure, MissingFile
from ledgerfold.storage.files import REAL
from ledgerfold.storage.segment import scan_segment


class PlacedEntry(NamedTuple):
    """An entry's header, the offset of the entry in the file, and the number of its first row."""

    header: EntryHeader
    offset: int
    row: int


class SegmentMap:
    """A sealed segment file, mapped into memory. Use as a context manager.

    Raises MissingFile, DiskFailure; reading raises Corruption, IncompatibleFormat.
    """

    def __init__(self, segment: InputSegment) -> None:
        self.segment = segment
        self.path = segment.path
        self.first_position = segment.ordinal << ROW_BITS
        self.vector: DeletionVector | None = None

    def __enter__(self) -> SegmentMap:
        self.vector = vector_of(self.segment)
        self._bytes = map_file(self.path, self.segment.record.size_bytes)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._bytes.close()

    def entries(self) -> Iterator[PlacedEntry]:
        """Yields all entries of the file, in order; headers are verified."""
        row = 0
        for header, offset in scan_segment(Path(self.path), self.segment.record):
            yield PlacedEntry(header, offset, row)
            row += header.message_count

    def blocks(self) -> Iterator[HeaderBlock]:
        """Yields all entries of the file, many at a time; otherwise as `entries`."""
        record = self.segment.record
        if record.sealed and REAL.size(Path(self.path)) > record.size_bytes:
            raise MissingFile(self.path, "a segment record")
        yield from header_blocks(self._bytes, self.path, record.size_bytes)

    def in_block(self, block: HeaderBlock, row: int) -> Iterator[PlacedEntry]:
        """Yields the entries of a block whose first row is `row`, and which are in the run's range
        and have a live message.
        """
        for index, offset in enumerate(block.offsets.tolist()):
            entry = PlacedEntry(header_at(block, index), offset, row)
            row += entry.header.message_count
            if self._is_in_range(entry):
                yield entry

    def has_all(self, block: HeaderBlock) -> bool:
        """Returns whether all entries of a block are in the run's range, with all messages."""
        after, up_to = self.segment.after, self.segment.up_to
        return self.vector is None and after < block.position(0) and block.position(-1) <= up_to

    def entry_at(self, offset: int, row: int) -> PlacedEntry:
        """Returns the entry that begins at `offset` with `row`. Raises Corruption."""
        stored = self._bytes[offset : offset + HEADER_BYTES]
        return PlacedEntry(read_header(stored, 0, self.path), offset, row)

    def in_range(self) -> Iterator[PlacedEntry]:
        """Yields the entries in the run's range that have a live message.

        A raw segment may extend beyond the range at both ends. A compacted one may begin before it,
        with messages that retention has removed since. It may not end after it: the previous run
        would have stored entries that it never read.
        """
        return filter(self._is_in_range, self.entries())

    def _is_in_range(self, entry: PlacedEntry) -> bool:
        # NOTE: a plain tuple: a Position takes several times as long, for each small entry.
        position, up_to = entry.header[5:7], self.segment.up_to
        if position > up_to and self.segment.is_compacted:
            found = str(entry.header.position)
            raise Corruption(self.path, entry.offset, f"an entry up to the horizon {up_to}", found)
        return self.segment.after < position <= up_to and not self._is_dead(entry)

    def _is_dead(self, entry: PlacedEntry) -> bool:
        index = self._vector_index(entry)
        return index is not None and self.vector is not None and self.vector.is_whole(index)

    def dead_rows(self, entry: PlacedEntry) -> list[int]:
        """Returns the entry's dead rows, counted from its first one."""
        index = self._vector_index(entry)
        return [] if index is None or self.vector is None else self.vector.dead_rows(index)

    def _vector_index(self, entry: PlacedEntry) -> int | None:
        """Returns the entry's index in the vector. Raises Corruption if they do not match."""
        if self.vector is None:
            return None
        return place_of(self.vector, entry.header, entry.offset, self.path)

    def key_section(self, entry: PlacedEntry) -> bytes:
        """Returns the verified key section. Reads nothing else of the file."""
        start = entry.offset + entry.header.header_bytes
        section = self._bytes[start : start + entry.header.key_bytes]
        self._verify("key", start, entry.header.key_crc, section)
        return section

    def raw(self, entry: PlacedEntry) -> RawEntry:
        """Returns the stored entry, with both sections verified."""
        section = self.value_section(entry)
        keys_at = entry.offset + entry.header.header_bytes
        return RawEntry(self._bytes[entry.offset : keys_at], self.key_section(entry), section)

    def key_sections(self, block: HeaderBlock) -> list[bytes]:
        """Returns the key sections of a block, not verified."""
        starts = block.keys_at
        return pieces(self._bytes, starts.tolist(), (starts + block.column("key_bytes")).tolist())

    def value_section(self, entry: PlacedEntry) -> bytes:
        """Returns the verified value section, compressed as stored."""
        header = entry.header
        start = entry.offset + header.header_bytes + header.key_bytes
        section = self._bytes[start : start + header.value_bytes]
        self._verify("value", start, header.value_crc, section)
        return section

    def _verify(self, name: str, offset: int, crc: int, section: bytes) -> None:
        found = crc32c(section)
        if found != crc:
            raise Corruption(self.path, offset, f"{name} section CRC32C {crc:08x}", f"{found:08x}")


def vector_of(segment: InputSegment) -> DeletionVector | None:
    """Returns a segment's deletion vector, if it has one. Raises as load_vector()."""
    if not segment.record.HasField("dead"):
        return None
    return load_vector(Path(segment.path).parent.parent, segment.record, REAL)


def map_file(path: str, size_bytes: int) -> mmap.mmap:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise MissingFile(path, "the compaction plan") from error
    except OSError as error:
        raise DiskFailure(path, "open", error) from error
    try:
        if os.fstat(descriptor).st_size < size_bytes:
            raise MissingFile(path, "the compaction plan")
        return mmap.mmap(descriptor, size_bytes, access=mmap.ACCESS_READ)
    finally:
        os.close(descriptor)

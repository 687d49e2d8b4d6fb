"""A deletion vector: the messages of a segment that its ledger does not contain.

A run links an old segment into the new ledger although some of its messages have died, and writes
this file beside it (docs/FORMATS.md, "Deletion vector"). It is not derived data: without it, dead
messages would be read, so a segment without its vector is damaged.

    >>> entries = [DeadRows(0, 0, 4, [1, 3]), DeadRows(900, 9, 2, [0, 1])]
    >>> vector = DeletionVector.parse(DeletionVector.of(20, entries).encode(), "a.dead")
    >>> vector.at(0), vector.at(500), vector.at(900)
    (0, None, 1)
    >>> vector.live_rows(0), vector.is_whole(1), vector.dead_rows(1)
    (b'\\x05', True, [0, 1])

Readers look entries up by offset, because the offset is known before an entry is decoded.

Bounds: 24 bytes for each entry with a dead row, and at most a bit for each of its rows.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import accumulate, pairwise
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from ledgerfold.storage.columns import from_column, to_column
from ledgerfold.storage.entry import EntryHeader, crc32c
from ledgerfold.storage.errors import Corruption, IncompatibleFormat, MissingFile
from ledgerfold.storage.files import Files, size_if_any
from ledgerfold.storage.lru_cache import LruCache
from ledgerfold.storage.names import deletion_vector_path
from ledgerfold.v1.records_pb2 import DeletionVectorRecord, SegmentRecord

VERSION = 1
# CRC32C of the rest, version, rows of the segment, dead rows, entries with dead rows.
_HEAD = struct.Struct("<IIQQQ")
_ENTRY_BYTES = 24
# The size of a row number in a list, by the number of rows of the entry.
_SHORT_ROWS = 1 << 16
CACHED_BYTES_MAX = 64 * 1024 * 1024


class DeadRows(NamedTuple):
    """The dead rows of an entry. `offset`, `first_row`: where the entry begins in its segment."""

    offset: int
    first_row: int
    rows: int
    dead: Sequence[int]


def _row_code(rows: int) -> str:
    return "H" if rows <= _SHORT_ROWS else "I"


def _list_bytes(rows: int, dead: int) -> int:
    """Returns the size of a list of the dead rows; 0 if a bit for each row is smaller."""
    size = dead * (2 if rows <= _SHORT_ROWS else 4)
    return size if size < (rows + 7) // 8 else 0


def _stored_bytes(rows: int, dead: int) -> int:
    """Returns the size of an entry's rows in the file. If all rows of an entry are dead, none are
    stored.
    """
    return 0 if rows == dead else _list_bytes(rows, dead) or (rows + 7) // 8


class DeletionVector:
    """A decoded vector, by entry in order of offset. Never changes."""

    def __init__(
        self, rows: int, columns: Sequence[array[int]], blob: bytes, checksum: int = 0
    ) -> None:
        self.rows, self.blob, self.checksum = rows, blob, checksum
        self.offsets, self.first_rows, self.counts, self.dead_counts = columns
        sizes = map(_stored_bytes, self.counts, self.dead_counts)
        self._ends = array("Q", accumulate(sizes, initial=0))

    @classmethod
    def of(cls, rows: int, entries: Iterable[DeadRows]) -> DeletionVector:
        """Returns the vector of a segment with `rows` rows. `entries` are in order."""
        columns = [array(code) for code in "QQII"]
        blob: list[bytes] = []
        for offset, first_row, count, dead in entries:
            for column, value in zip(columns, (offset, first_row, count, len(dead)), strict=True):
                column.append(value)
            blob.append(_encoded(count, dead))
        return cls(rows, columns, b"".join(blob))

    def encode(self) -> bytes:
        dead, entries = sum(self.dead_counts), len(self.offsets)
        head = _HEAD.pack(0, VERSION, self.rows, dead, entries)
        columns = (self.offsets, self.first_rows, self.counts, self.dead_counts)
        stored = head[4:] + b"".join(
            to_column(code, each) for code, each in zip("QQII", columns, strict=True)
        )
        stored += self.blob
        return crc32c(stored).to_bytes(4, "little") + stored

    @classmethod
    def parse(cls, stored: bytes, path: str) -> DeletionVector:
        """Decodes and verifies a file. Raises Corruption, IncompatibleFormat."""
        if len(stored) < _HEAD.size:
            raise Corruption(path, 0, f"a head of {_HEAD.size} bytes", f"{len(stored)} bytes")
        crc, version, rows, dead, entries = _HEAD.unpack_from(stored)
        found = crc32c(stored[4:])
        if crc != found:
            raise Corruption(path, 0, f"CRC32C {crc:08x}", f"{found:08x}")
        if version != VERSION:
            raise IncompatibleFormat(f"deletion vector {path}", version, f"version {VERSION}")
        end = _HEAD.size + _ENTRY_BYTES * entries
        if len(stored) < end:
            raise Corruption(path, 0, f"{end} bytes of entries", f"{len(stored)} bytes")
        columns, at = [], _HEAD.size
        for code, width in zip("QQII", (8, 8, 4, 4), strict=True):
            columns.append(from_column(code, stored[at : at + width * entries]))
            at += width * entries
        vector = cls(rows, columns, stored[end:], crc)
        if not vector._is_consistent(dead):
            raise Corruption(path, 0, f"{dead} dead rows of {entries} entries", "other ones")
        return vector

    def _is_consistent(self, dead: int) -> bool:
        places = [*zip(self.offsets, self.first_rows, self.counts, strict=True)]
        return (
            self._ends[-1] == len(self.blob)
            and sum(self.dead_counts) == dead
            and all(
                0 < dead <= count for dead, count in zip(self.dead_counts, self.counts, strict=True)
            )
            and all(
                here[0] < after[0] and here[1] + here[2] <= after[1]
                for here, after in pairwise(places)
            )
            and (not places or places[-1][1] + places[-1][2] <= self.rows)
            and all(map(self._is_row_list, range(len(places))))
        )

    def _is_row_list(self, index: int) -> bool:
        if self.is_whole(index):
            return True
        dead, rows = self.dead_rows(index), self.counts[index]
        ascends = all(low < high for low, high in pairwise(dead))
        return ascends and len(dead) == self.dead_counts[index] and dead[-1] < rows

    def __len__(self) -> int:
        """The number of entries with dead rows."""
        return len(self.offsets)

    @property
    def size_bytes(self) -> int:
        """The size of the file."""
        return _HEAD.size + _ENTRY_BYTES * len(self) + len(self.blob)

    def next_from(self, offset: int) -> int:
        """Returns the index of the first entry at or after `offset`."""
        return bisect_left(self.offsets, offset)

    def at(self, offset: int) -> int | None:
        """Returns the index of the entry at `offset`; None if all of its messages are live."""
        index = self.next_from(offset)
        return index if index < len(self) and self.offsets[index] == offset else None

    def is_whole(self, index: int) -> bool:
        """Returns whether no message of the entry is live."""
        return self.dead_counts[index] == self.counts[index]

    def dead_rows(self, index: int) -> list[int]:
        """Returns the dead rows of an entry, ascending, counted from its first one."""
        rows, dead = self.counts[index], self.dead_counts[index]
        if rows == dead:
            return list(range(rows))
        stored = self.blob[self._ends[index] : self._ends[index + 1]]
        if _list_bytes(rows, dead):
            return from_column(_row_code(rows), stored).tolist()
        return [
            8 * at + bit
            for at, byte in enumerate(stored)
            if byte
            for bit in range(8)
            if byte >> bit & 1
        ]

    def live_rows(self, index: int) -> bytes:
        """Returns a bit for each row of an entry, set if its message is live."""
        rows, dead = self.counts[index], self.dead_counts[index]
        stored = self.blob[self._ends[index] : self._ends[index + 1]]
        size = (rows + 7) // 8
        every = (1 << rows) - 1
        if rows == dead:
            return bytes(size)
        if not _list_bytes(rows, dead):
            return (every ^ int.from_bytes(stored, "little")).to_bytes(size, "little")
        bits = bytearray(every.to_bytes(size, "little"))
        for row in from_column(_row_code(rows), stored):
            bits[row >> 3] &= ~(1 << (row & 7)) & 0xFF
        return bytes(bits)


def _encoded(rows: int, dead: Sequence[int]) -> bytes:
    if len(dead) == rows:
        return b""
    if _list_bytes(rows, len(dead)):
        return to_column(_row_code(rows), dead)
    bits = bytearray((rows + 7) // 8)
    for row in dead:
        bits[row >> 3] |= 1 << (row & 7)
    return bytes(bits)


def read_vector(path: Path, files: Files) -> DeletionVector:
    """Reads and verifies a vector. Raises Corruption, IncompatibleFormat, DiskFailure."""
    with closing(files.open_read(path)) as file:
        return DeletionVector.parse(file.pread(file.size_bytes, 0), str(path))


def load_vector(ledgers_dir: Path, segment: SegmentRecord, files: Files) -> DeletionVector:
    """Reads and verifies the vector of a segment whose record has one.

    Raises MissingFile (also if it has another size), Corruption, IncompatibleFormat, DiskFailure.
    """
    path, record = ledgers_dir / deletion_vector_path(segment.path), segment.dead
    if size_if_any(path, files) != record.size_bytes:
        raise MissingFile(str(path), "a segment record")
    vector = read_vector(path, files)
    if vector.checksum != record.checksum:
        expected = f"CRC32C {record.checksum:08x}"
        raise Corruption(str(path), 0, expected, f"{vector.checksum:08x}")
    if (vector.rows, sum(vector.dead_counts)) != (segment.messages, record.messages):
        expected = f"{record.messages} dead of {segment.messages} messages"
        raise Corruption(str(path), 0, expected, f"{sum(vector.dead_counts)} dead of {vector.rows}")
    return vector


def place_of(vector: DeletionVector, header: EntryHeader, offset: int, path: str) -> int | None:
    """Returns the index in the vector of the entry at `offset` of the segment; None if it has no
    dead row.

    Raises Corruption if the vector lists another entry there: it would hide the wrong messages.
    """
    index = vector.next_from(offset)
    if index == len(vector) or vector.offsets[index] >= offset + header.size_bytes:
        return None
    if (vector.offsets[index], vector.counts[index]) != (offset, header.message_count):
        expected = f"an entry of {header.message_count} messages at {offset}"
        found = f"one of {vector.counts[index]} at {vector.offsets[index]}"
        raise Corruption(deletion_vector_path(path), 0, expected, found)
    return index


class VectorCache:
    """The vectors of segments that are read. Threads may share it.

    Bound: CACHED_BYTES_MAX of files, or one vector.
    """

    def __init__(self, ledgers_dir: Path, files: Files) -> None:
        self._ledgers_dir, self._files = ledgers_dir, files
        # By the segment's path, and the vector's checksum.
        self._vectors = LruCache[tuple[str, int], DeletionVector](
            CACHED_BYTES_MAX, attrgetter("size_bytes")
        )

    def of(self, segment: SegmentRecord, wait: bool = True) -> DeletionVector | None:
        """Returns a segment's vector; None if it has none.

        Raises BlockingIOError without `wait` if the vector is not in memory, else as load_vector().
        """
        if not segment.HasField("dead"):
            return None

        def load() -> DeletionVector:
            if not wait:
                raise BlockingIOError
            return load_vector(self._ledgers_dir, segment, self._files)

        return self._vectors.get((segment.path, segment.dead.checksum), load)

    def forget(self, prefix: str) -> None:
        """Forgets the vectors of segments whose path begins with `prefix`."""
        self._vectors.forget(lambda at: at[0].startswith(prefix))


class DeadTally:
    """A tally of the entries of one segment, in order, with the dead rows of each.

    It builds the segment's deletion vector, and the vector's record.

    >>> from ledgerfold.storage.native import NativeBatchBuilder
    >>> from ledgerfold.storage.entry import read_header, stamp
    >>> tally = DeadTally()
    >>> for entry_id in range(2):
    ...     builder = NativeBatchBuilder("p")
    ...     builder.add(b"v", key=b"k")
    ...     entry = builder.build(sequence_id=entry_id, publish_time_ms=1)
    ...     header = read_header(stamp(entry, 7, entry_id, append_time_ms=1, producer_number=1))
    ...     tally.add(header, [] if entry_id else [0])
    >>> stored, record = tally.finish()
    >>> record.messages, record.entries, record.first.entry_id
    (1, 1, 1)
    """

    def __init__(self) -> None:
        self._offset = self._rows = 0
        self._entries: list[DeadRows] = []
        self._record = DeletionVectorRecord()

    @property
    def is_all_dead(self) -> bool:
        return self._record.messages == self._rows

    def add(self, header: EntryHeader, dead: Sequence[int]) -> None:
        """Adds the next entry. `dead`: its dead rows, ascending."""
        record, rows = self._record, header.message_count
        if dead:
            self._entries.append(DeadRows(self._offset, self._rows, rows, dead))
            record.messages += len(dead)
            record.entries += len(dead) == rows
            # The dead rows' share of the entry.
            record.bytes += header.size_bytes * len(dead) // rows
        if len(dead) < rows:
            if not record.HasField("first"):
                record.first.ledger_id, record.first.entry_id = header.position
            record.last.ledger_id, record.last.entry_id = header.position
        self._offset += header.size_bytes
        self._rows += rows

    def finish(self) -> tuple[bytes, DeletionVectorRecord]:
        """Returns the file and its record."""
        stored = DeletionVector.of(self._rows, self._entries).encode()
        self._record.size_bytes = len(stored)
        self._record.checksum = int.from_bytes(stored[:4], "little")
        return stored, self._record

"""The key index of a compacted segment: which rows may have a key (docs/FORMATS.md, "Key index").

A run with few new keys finds their old messages with it, instead of reading all old keys. The index
is derived data: a segment without a usable one is read.

    values: sorted; the high bits of the key's hash, then the row in the low `row_bits`
    blocks: BLOCK_VALUES values each; the head has the first value and the checksum of each block

A lookup reads the head and the blocks that its hashes fall into, and verifies what it reads. The
hash only selects candidates: compactor/job/lookup.py compares their keys.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ledgerfold.compactor.job.key_columns import KeyColumns, Place
from ledgerfold.compactor.job.key_sections import is_opaque, key_columns
from ledgerfold.compactor.key_hash import Hashes, hashes_of
from ledgerfold.compactor.positions import Booleans, Integers, ranges
from ledgerfold.storage.entry import EntryHeader, crc32c
from ledgerfold.storage.errors import (
    Corruption,
    DiskFailure,
    IncompatibleFormat,
    InvalidRequest,
    MissingFile,
)
from ledgerfold.storage.files import REAL, Files, replace_file
from ledgerfold.storage.names import key_index_path
from ledgerfold.v1.records_pb2 import KeyIndexRecord, SegmentRecord

VERSION = 1
BLOCK_VALUES = 8192
# A lookup reads as many neighbouring blocks at once: 16 MiB.
READ_BLOCKS = 256
# A segment with more keys gets no index: its columns are in memory while it is written.
KEY_BYTES_MAX = 256 * 1024 * 1024
ROWS_MAX = 16_000_000
# CRC32C of the rest of the head, version, rows, values, entries, row bits, CRC32C of the entries.
_HEAD = struct.Struct("<IIQQQII")


class EntryPlaces(NamedTuple):
    """The first row and the offset of each entry of a segment."""

    first_rows: Integers
    offsets: Integers


class KeyIndexBuilder:
    """Collects the keys of one segment.

    Bound: KEY_BYTES_MAX of keys, and about 150 bytes for each of up to ROWS_MAX messages.
    """

    def __init__(self) -> None:
        self._columns = KeyColumns()
        self._offsets: list[int] = []
        self._size_bytes = 0
        # The segment gets no index.
        self._is_without = False

    @property
    def is_given_up(self) -> bool:
        """Returns whether the segment gets no index."""
        return self._is_without

    @property
    def places(self) -> EntryPlaces:
        """The places of the entries that were added."""
        counts = np.array(self._columns.counts, np.int64)
        return EntryPlaces(np.cumsum(counts) - counts, np.array(self._offsets, np.int64))

    def has_key(self) -> Booleans:
        """Returns for each row whether it has a key."""
        return self._columns.has_key()

    def add(self, header: EntryHeader, keys: bytes, values: Callable[[], bytes]) -> None:
        """Adds the next entry. `values`: returns the value section, which only some codecs need.

        Raises Corruption if its keys do not parse.
        """
        if self._is_without:
            return
        try:
            section = key_columns(header, keys, values)
        except InvalidRequest as error:
            raise Corruption("its entry", 0, "a key section", str(error)) from error
        if is_opaque(section):
            # Its rows survive together, not one by one, as an index assumes.
            self._give_up()
            return
        location = Place("its entry", self._size_bytes)
        self._columns.add_section(location, header, self._columns.rows, section)
        self._offsets.append(self._size_bytes)
        self._size_bytes += header.size_bytes
        if self._columns.key_bytes > KEY_BYTES_MAX or self._columns.rows > ROWS_MAX:
            self._give_up()

    def _give_up(self) -> None:
        self._is_without, self._columns, self._offsets = True, KeyColumns(), []

    def write(self, ledgers_dir: Path, record: SegmentRecord, files: Files = REAL) -> None:
        """Writes the index next to the sealed segment, and names it in `record`."""
        columns = self._columns
        if self._is_without:
            return
        columns.check()
        row_bits = max(columns.rows - 1, 1).bit_length()
        values = hashes_of(columns.keys())
        values >>= np.uint64(row_bits)
        values <<= np.uint64(row_bits)
        values |= np.arange(len(values), dtype=np.uint64)
        has_key = columns.has_key()
        if not has_key.all():
            values = values[has_key]
        values.sort()
        stored = values.astype("<u8").tobytes()
        entries = columns.positions().astype("<u8").tobytes()
        entries += np.array(self._offsets, "<u8").tobytes()
        crcs = [crc32c(block) for block in _blocks(stored)]
        head = _HEAD.pack(
            0, VERSION, columns.rows, len(values), columns.entries, row_bits, crc32c(entries)
        )
        head += values[::BLOCK_VALUES].astype("<u8").tobytes() + np.array(crcs, "<u4").tobytes()
        checksum = crc32c(head[4:])
        head = checksum.to_bytes(4, "little") + head[4:]
        path = ledgers_dir / key_index_path(record.path)
        replace_file(path, [head, entries, stored], files)
        size_bytes = len(head) + len(entries) + len(stored)
        record.key_index.CopyFrom(
            KeyIndexRecord(size_bytes=size_bytes, checksum=checksum, keyed_messages=len(values))
        )


def _blocks(stored: bytes) -> Iterator[bytes]:
    size = BLOCK_VALUES * 8
    return (stored[at : at + size] for at in range(0, len(stored), size))


class Candidates(NamedTuple):
    """Pairs of a query, by its index, and a row of the segment that may have its key."""

    queries: Integers
    rows: Integers


class KeyIndex:
    """An open key index. Use as a context manager.

    Raises MissingFile (also if it cannot be read), Corruption, IncompatibleFormat.
    """

    def __init__(self, path: str, record: KeyIndexRecord) -> None:
        self.path, self._record = path, record

    def __enter__(self) -> KeyIndex:
        try:
            self._file = REAL.open_read(Path(self.path))
        except (OSError, DiskFailure) as error:
            raise MissingFile(self.path, "a segment record") from error
        try:
            if self._file.size_bytes != self._record.size_bytes:
                raise MissingFile(self.path, "a segment record")
            self._read_head()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()

    def _read(self, size: int, offset: int) -> bytes:
        """Reads `size` bytes; fewer at the end of the file, whose head may be damaged."""
        remaining = max(self._record.size_bytes - offset, 0)
        try:
            return self._file.pread(min(size, remaining), offset)
        except DiskFailure as error:
            raise MissingFile(self.path, "a segment record") from error

    def _read_head(self) -> None:
        head = self._read(_HEAD.size, 0)
        crc, version, self.rows, self._values, entries, row_bits, entries_crc = _HEAD.unpack(head)
        if crc != self._record.checksum:
            self._damaged(0, self._record.checksum, crc)
        blocks = -(-self._values // BLOCK_VALUES)
        of_blocks = self._read(blocks * 12, len(head))
        self._verify(0, head[4:] + of_blocks, crc)
        if version != VERSION:
            raise IncompatibleFormat(f"key index {self.path}", version, f"version {VERSION}")
        self._fences = np.frombuffer(of_blocks, "<u8", blocks)
        self._crcs = np.frombuffer(of_blocks, "<u4", blocks, blocks * 8)
        table_at = len(head) + len(of_blocks)
        table = self._read(entries * 16, table_at)
        self._verify(table_at, table, entries_crc)
        columns = np.frombuffer(table, "<u8").astype(np.int64)
        # The first row and the offset of each entry.
        self.first_rows, self.offsets = columns[:entries], columns[entries:]
        self._values_at = table_at + len(table)
        self._row_bits = np.uint64(row_bits)

    def candidates(self, hashes: Hashes) -> Candidates:
        """Returns the rows whose keys may have these hashes, which ascend."""
        mask = (np.uint64(1) << self._row_bits) - np.uint64(1)
        low, high = hashes & ~mask, hashes | mask
        # The values of a block are its fence and above, below the next fence.
        starts = np.searchsorted(high, self._fences, "left")
        ends = np.append(np.searchsorted(low, self._fences[1:], "left"), len(low))
        candidates = [Candidates(np.empty(0, np.int64), np.empty(0, np.int64))]
        for blocks in _neighbours(np.flatnonzero(starts < ends)):
            values = self._blocks(blocks)
            queries = np.arange(starts[blocks.start], ends[blocks.stop - 1])
            at = np.searchsorted(values, low[queries], "left")
            # Few hashes are in these blocks: the others are not searched again.
            near = values[np.minimum(at, len(values) - 1)]
            is_found = (low[queries] <= near) & (near <= high[queries])
            queries, at = queries[is_found], at[is_found]
            counts = np.searchsorted(values, high[queries], "right") - at
            rows = (values[ranges(at, counts)] & mask).astype(np.int64)
            candidates.append(Candidates(queries.repeat(counts), rows))
        return Candidates(*map(np.concatenate, zip(*candidates, strict=True)))

    def _blocks(self, blocks: range) -> Hashes:
        """Returns the values of these blocks."""
        first, end = (each * BLOCK_VALUES for each in (blocks.start, blocks.stop))
        at = self._values_at + first * 8
        stored = self._read((min(end, self._values) - first) * 8, at)
        for crc, block in zip(self._crcs[blocks.start : blocks.stop], _blocks(stored), strict=True):
            self._verify(at, block, int(crc))
            at += len(block)
        return np.frombuffer(stored, "<u8")

    def _verify(self, offset: int, stored: bytes, crc: int) -> None:
        found = crc32c(stored)
        if found != crc:
            self._damaged(offset, crc, found)

    def _damaged(self, offset: int, crc: int, computed_crc: int) -> None:
        raise Corruption(self.path, offset, f"CRC32C {crc:08x}", f"{computed_crc:08x}")


def _neighbours(blocks: NDArray[np.intp]) -> Iterator[range]:
    """Yields runs of consecutive numbers, of READ_BLOCKS at most."""
    ends = np.flatnonzero(np.diff(blocks) != 1) + 1
    for run in np.split(blocks, ends):
        for at in range(0, len(run), READ_BLOCKS):
            some = run[at : at + READ_BLOCKS]
            yield range(int(some[0]), int(some[-1]) + 1)


def complement(count: int, rows: Integers) -> Integers:
    """Returns the rows from 0 to `count` that are not among `rows`."""
    is_left: Booleans = np.ones(count, np.bool_)
    is_left[rows] = False
    others: Integers = np.flatnonzero(is_left)
    return others

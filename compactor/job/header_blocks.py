"""The headers of a segment as columns, many at a time.

A Python object for each header takes longer than all other work on an entry of one small message.
So headers are found by their lengths, verified, and decoded together. Unusual entries (version 1,
damage) are read one by one.

Bound: BLOCK_ENTRIES headers.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from ledgerfold.compactor.positions import Booleans, Integers
from ledgerfold.storage.entry import (
    FORMAT_VERSION,
    HEADER_BYTES,
    HEADER_BYTES_MIN,
    EntryHeader,
    Position,
    read_header,
)
from ledgerfold.storage.entry import HEADER as PACKED_HEADER
from ledgerfold.storage.errors import Corruption

BLOCK_ENTRIES = 4096


def record_type(packed: struct.Struct, names: Sequence[str]) -> np.dtype[np.void]:
    """Returns the type of an array of records that are packed like this, such as "<I2B".

    >>> record_type(struct.Struct("<I2B"), ("crc", "version", "codec"))
    dtype([('crc', '<u4'), ('version', 'u1'), ('codec', 'u1')])
    """
    order, kinds = packed.format[0], re.findall(r"(\d*)(\w)", packed.format[1:])
    each = [f"{order}{kind}" for count, kind in kinds for _ in range(int(count or 1))]
    return np.dtype(list(zip(names, each, strict=True)))


# The fields of version 2.
HEADER = record_type(PACKED_HEADER, EntryHeader._fields[:-2])
# The version, and the lengths of the sections.
_LENGTHS = struct.Struct("<4xB51xI4xI")
# The CRC32C of any bytes that are followed by their own CRC32C.
_INTACT = 0x48674BC7


class HeaderBlock(NamedTuple):
    """Neighbouring entries. `fields`: their headers, as a structured array."""

    offsets: Integers
    fields: NDArray[Any]
    # The offset after the last entry.
    end: int

    def column(self, name: str) -> Integers:
        column: Integers = self.fields[name].astype(np.int64)
        return column

    @property
    def keys_at(self) -> Integers:
        """The offset of each key section."""
        is_old: Booleans = self.fields["version"] < FORMAT_VERSION
        return self.offsets + np.where(is_old, HEADER_BYTES_MIN, HEADER_BYTES)

    def position(self, index: int) -> tuple[int, int]:
        """Returns an entry's position, as a plain tuple."""
        return int(self.fields["ledger_id"][index]), int(self.fields["entry_id"][index])


def header_blocks(data: mmap.mmap, path: str, size_bytes: int) -> Iterator[HeaderBlock]:
    """Yields all entries of a segment, in order; headers are verified.

    Raises Corruption (also if ids do not rise), IncompatibleFormat.
    """
    offset, last = 0, (-1, -1)
    while offset < size_bytes:
        block = _plain_block(data, offset, size_bytes)
        if block is None or block.position(0) <= last:
            block = _one(data, offset, size_bytes, last, path)
        yield block
        offset, last = block.end, block.position(-1)


def _plain_block(data: mmap.mmap, offset: int, size_bytes: int) -> HeaderBlock | None:
    """Returns the intact entries of version 2 from `offset` on; None if the first is another."""
    offsets: list[int] = []
    unpack = _LENGTHS.unpack_from
    while offset <= size_bytes - HEADER_BYTES and len(offsets) < BLOCK_ENTRIES:
        version, key_bytes, value_bytes = unpack(data, offset)
        if version != FORMAT_VERSION:
            break
        offsets.append(offset)
        offset += HEADER_BYTES + key_bytes + value_bytes
    stored = pieces(data, offsets, [offset + HEADER_BYTES for offset in offsets])
    fields = np.frombuffer(b"".join(stored), HEADER)
    ends = np.array([*offsets[1:], offset], np.int64)
    fits = (checksums(stored) == _INTACT) & (ends <= size_bytes)
    ledgers, entries = fields["ledger_id"], fields["entry_id"]
    fits[1:] &= (ledgers[1:] > ledgers[:-1]) | (
        (ledgers[1:] == ledgers[:-1]) & (entries[1:] > entries[:-1])
    )
    count = len(fits) if fits.all() else int(np.argmin(fits))
    if not count:
        return None
    return HeaderBlock(np.array(offsets[:count], np.int64), fields[:count], int(ends[count - 1]))


def _one(
    data: mmap.mmap, offset: int, size_bytes: int, last: tuple[int, int], path: str
) -> HeaderBlock:
    with memoryview(data) as view:
        header = read_header(view, offset, path)
    if header.position <= last:
        above = str(Position(*last))
        raise Corruption(path, offset, f"an entry above {above}", str(header.position))
    end = offset + header.size_bytes
    if end > size_bytes:
        remaining = f"{size_bytes - offset}"
        raise Corruption(path, offset, f"{header.size_bytes} bytes of entry", remaining)
    fields = np.array([header[:-2]], HEADER)
    return HeaderBlock(np.array([offset], np.int64), fields, end)


def header_at(block: HeaderBlock, index: int) -> EntryHeader:
    """Returns a header as an object."""
    return EntryHeader(*block.fields[index].item())


def pieces(data: mmap.mmap, starts: list[int], ends: list[int]) -> list[bytes]:
    """Returns the bytes between each start and end."""
    return list(map(data.__getitem__, map(slice, starts, ends)))


def parts_of(structures: NDArray[Any], start: int, end: int) -> list[bytes]:
    """Returns these bytes of each structure.

    >>> parts_of(np.array([(1, 2), (3, 4)], [("a", "<u2"), ("b", "u1")]), 1, 3)
    [b'\\x00\\x02', b'\\x00\\x04']
    """
    rows = np.ascontiguousarray(structures).view(np.uint8).reshape(-1, structures.itemsize)
    parts: list[bytes] = (
        np.ascontiguousarray(rows[:, start:end]).view(f"V{end - start}")[:, 0].tolist()
    )
    return parts


def checksums(parts: list[bytes]) -> Integers:
    """Returns the CRC32C of each part."""
    return np.fromiter(map(google_crc32c.value, parts), np.int64, len(parts))

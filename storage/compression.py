"""Compression of value sections.

A compressed section is the uncompressed size as a little-endian u32, then the compressed bytes
(docs/FORMATS.md, "Value section"). The size bounds the memory that a damaged or hostile section can
make the reader allocate.

    >>> section = compress(Compression.ZSTD, b"a" * 1000)
    >>> len(section) < 100, decompress(Compression.ZSTD, section) == b"a" * 1000
    (True, True)
"""

from __future__ import annotations

import zlib

import zstandard
from lz4 import block as lz4_block

from ledgerfold.storage import snappy
from ledgerfold.storage.entry import ENTRY_BYTES_MAX, Buffer, Compression
from ledgerfold.storage.errors import InvalidRequest

# The size that precedes compressed bytes.
SIZE_BYTES = 4
# A section this much larger than any entry is a decompression bomb.
UNCOMPRESSED_BYTES_MAX = 8 * ENTRY_BYTES_MAX
_ZSTD_LEVEL = 1  # ratio 6.1 at 213 MB/s on JSON-like text; level 3 is slower and no smaller
# For the rare section that must be as small as possible: takes seconds for the largest.
_ZSTD_LEVEL_TIGHT = 12
_ZLIB_LEVEL = 1
_DECOMPRESSION_ERRORS = (
    zstandard.ZstdError,
    lz4_block.LZ4BlockError,
    zlib.error,
    ValueError,  # snappy's
)


def compress(compression: int, data: bytes) -> bytes:
    """Compresses `data` into a value section. Returns `data` unchanged under NONE."""
    if compression == Compression.NONE:
        return data
    if compression == Compression.ZSTD:
        packed = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(data)
    elif compression == Compression.LZ4:
        packed = lz4_block.compress(data, store_size=False)
    elif compression == Compression.ZLIB:
        packed = zlib.compress(data, _ZLIB_LEVEL)
    elif compression == Compression.SNAPPY:
        packed = snappy.compress(data)
    else:
        raise InvalidRequest(f"Unknown compression {compression}.")
    return _section(data, packed)


def compress_tightly(data: bytes) -> bytes:
    """Compresses `data` into a ZSTD value section of minimal size. May take seconds."""
    return _section(data, zstandard.ZstdCompressor(level=_ZSTD_LEVEL_TIGHT).compress(data))


def _section(data: bytes, packed: bytes) -> bytes:
    return len(data).to_bytes(SIZE_BYTES, "little") + packed


def decompress(compression: int, section: Buffer) -> bytes:
    """Decompresses a value section. Raises InvalidRequest if its size is not the recorded one."""
    if compression == Compression.NONE:
        return bytes(section)
    size = int.from_bytes(section[:4], "little")
    if len(section) < 4 or size > UNCOMPRESSED_BYTES_MAX:
        raise InvalidRequest(f"A compressed section declares a bad size: {size}.")
    packed = section[4:]
    try:
        if compression == Compression.ZSTD:
            # The decompressor allocates the frame's own size, if the frame records one.
            if zstandard.frame_content_size(packed) not in (-1, size):
                raise InvalidRequest("A zstd frame does not have the size its section declares.")
            data = zstandard.ZstdDecompressor().decompress(packed, max_output_size=size)
        elif compression == Compression.LZ4:
            data = lz4_block.decompress(packed, uncompressed_size=size)
        elif compression == Compression.ZLIB:
            # NOTE: Pulsar's Java client flushes the stream and never finishes it, so it has no end.
            data = zlib.decompressobj().decompress(packed, size + 1)
        elif compression == Compression.SNAPPY:
            # The decompressor allocates the block's recorded size.
            if snappy.recorded_bytes(packed) != size:
                raise InvalidRequest("A snappy block does not have the size its section declares.")
            data = snappy.decompress(packed)
        else:
            raise InvalidRequest(f"Unknown compression {compression}.")
    except _DECOMPRESSION_ERRORS as error:
        raise InvalidRequest(f"A compressed section does not decompress: {error}") from error
    if len(data) != size:
        raise InvalidRequest(f"A compressed section holds {len(data)} bytes and declares {size}.")
    return bytes(data)

"""Blocks of snappy, without framing.

The library is loaded when it is first used: it takes 1.7 MB of memory, and few brokers need it.
Then each function raises DiskFailure if it cannot be read, for lack of descriptors for example.

    >>> block = compress(b"a" * 1000)
    >>> recorded_bytes(block), decompress(block) == b"a" * 1000
    (1000, True)

Source: `format_description.txt` of google/snappy.
"""

from __future__ import annotations

from types import ModuleType

from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.errors import DiskFailure


def compress(data: Buffer) -> bytes:
    return bytes(library().snappy.compress_raw(data))


def recorded_bytes(block: Buffer) -> int:
    """Returns the decompressed size that a block records. Raises ValueError if it has none."""
    cramjam = library()
    try:
        return int(cramjam.snappy.decompress_raw_len(block))
    except cramjam.DecompressionError as error:
        raise ValueError(str(error)) from error


def decompress(block: Buffer) -> bytes:
    """Decompresses a block. Allocates `recorded_bytes` first. Raises ValueError."""
    cramjam = library()
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise ValueError(str(error)) from error


def library() -> ModuleType:
    """Returns the library, and loads it if need be."""
    try:
        import cramjam
    except OSError as error:
        raise DiskFailure("cramjam", "Loading the library of snappy", error) from error
    return cramjam

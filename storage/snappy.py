"""Blocks of snappy, without framing.

The library is loaded when it is first used: it takes 1.7 MB of memory, and few brokers need it.

    >>> block = compress(b"a" * 1000)
    >>> recorded_bytes(block), decompress(block) == b"a" * 1000
    (1000, True)

Source: `format_description.txt` of google/snappy.
"""

from __future__ import annotations

from ledgerfold.storage.entry import Buffer


def compress(data: Buffer) -> bytes:
    from cramjam import snappy

    return bytes(snappy.compress_raw(data))


def recorded_bytes(block: Buffer) -> int:
    """Returns the decompressed size that a block records. Raises ValueError if it has none."""
    from cramjam import DecompressionError, snappy

    try:
        return int(snappy.decompress_raw_len(block))
    except DecompressionError as error:
        raise ValueError(str(error)) from error


def decompress(block: Buffer) -> bytes:
    """Decompresses a block. Allocates `recorded_bytes` first. Raises ValueError."""
    from cramjam import DecompressionError, snappy

    try:
        return bytes(snappy.decompress_raw(block))
    except DecompressionError as error:
        raise ValueError(str(error)) from error

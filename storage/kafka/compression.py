"""The codecs of record batches, each in the framing of Kafka's own writer.

A batch's records are compressed as one stream, which does not record its decompressed size. So
decompression stops with an error at BATCH_BYTES_MAX, or at a smaller limit of the caller.

* gzip: members of RFC 1952, one or several.
* snappy: snappy-java's framing, a magic and two versions, then blocks of up to 32 KiB, each after
  its size. A single bare block is read, too.
* lz4: an LZ4 frame of independent 64 KiB blocks, without checksums.
* zstd: frames, one or several.

    >>> section = compress(KafkaCompression.SNAPPY, b"a" * 100_000)
    >>> section[:8], decompress(KafkaCompression.SNAPPY, section) == b"a" * 100_000
    (b'\\x82SNAPPY\\x00', True)

Source: KIP-98, KIP-110; `org.apache.kafka.common.compress`.
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from enum import IntEnum
from typing import Protocol, cast

import zstandard
from lz4 import frame as lz4_frame

from ledgerfold.storage import snappy
from ledgerfold.storage.compression import UNCOMPRESSED_BYTES_MAX
from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.errors import KafkaError, KafkaErrorKind

# The limit of a batch's decompressed records: anything larger is a decompression bomb. A reader
# holds at most that and one step.
BATCH_BYTES_MAX = UNCOMPRESSED_BYTES_MAX
_XERIAL = b"\x82SNAPPY\x00" + struct.pack(">II", 1, 1)
_XERIAL_MAGIC_BYTES = 8
_XERIAL_BLOCK_BYTES = 32 * 1024
_SIZE = struct.Struct(">I")
# Kafka's defaults of compression.gzip.level and compression.zstd.level.
_GZIP_LEVEL = -1
_ZSTD_LEVEL = 3
_GZIP_WINDOW = 31
# The largest window that a frame may request; zstd's own reader accepts 2^27.
_ZSTD_WINDOW_MAX = 2**27
_CHUNK_BYTES = 256 * 1024
_DECOMPRESSION_ERRORS = (
    zstandard.ZstdError,
    zlib.error,
    ValueError,  # snappy's
    struct.error,
    RuntimeError,  # lz4's
    EOFError,
    gzip.BadGzipFile,
)


class KafkaCompression(IntEnum):
    """The codec of a batch: the three lowest bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(compression: int, records: bytes) -> bytes:
    """Compresses a batch's concatenated records."""
    if compression == KafkaCompression.NONE:
        return records
    if compression == KafkaCompression.GZIP:
        return zlib.compress(records, _GZIP_LEVEL, _GZIP_WINDOW)
    if compression == KafkaCompression.SNAPPY:
        return _xerial(records)
    if compression == KafkaCompression.LZ4:
        packed: bytes = lz4_frame.compress(
            records,
            block_size=lz4_frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
        return packed
    if compression == KafkaCompression.ZSTD:
        # Kafka's stream is flushed before it is closed: its last block is empty.
        stream = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compressobj()
        begun = stream.compress(records) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        return begun + stream.flush()
    raise _unknown(compression)


def decompress(compression: int, section: Buffer, bytes_max: int | None = None) -> bytes:
    """Decompresses a batch's records. Raises KafkaError: CORRUPT_MESSAGE,
    UNSUPPORTED_COMPRESSION_TYPE.

    At most BATCH_BYTES_MAX and one step are decompressed; or `bytes_max`, the reader's own bound,
    beyond which it raises MESSAGE_TOO_LARGE.
    """
    if compression == KafkaCompression.NONE:
        return bytes(section)
    if compression not in KafkaCompression._value2member_map_:
        raise _unknown(compression)
    read = {
        KafkaCompression.GZIP: _gunzip,
        KafkaCompression.SNAPPY: _from_snappy,
        KafkaCompression.LZ4: _from_lz4,
        KafkaCompression.ZSTD: _from_zstd,
    }[KafkaCompression(compression)]
    try:
        return read(bytes(section), BATCH_BYTES_MAX if bytes_max is None else bytes_max)
    except _DECOMPRESSION_ERRORS as error:
        name = KafkaCompression(compression).name.lower()
        raise _corrupt(f"{name} cannot decompress the records: {error}.") from error


def _unknown(compression: int) -> KafkaError:
    return KafkaError(
        KafkaErrorKind.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type id: {compression}"
    )


def _corrupt(message: str) -> KafkaError:
    return KafkaError(KafkaErrorKind.CORRUPT_MESSAGE, message)


def _checked(size: int, bytes_max: int) -> int:
    """Returns `size` if it is within the bound. Raises KafkaError."""
    if size <= bytes_max:
        return size
    if bytes_max < BATCH_BYTES_MAX:
        raise KafkaError(
            KafkaErrorKind.MESSAGE_TOO_LARGE,
            f"The batch has more than {bytes_max} bytes when decompressed. Send its records in "
            "smaller batches.",
        )
    raise _corrupt(f"The batch has more than {BATCH_BYTES_MAX} bytes when decompressed")


class _Reader(Protocol):
    def read(self, size: int) -> bytes: ...


def _all_of(reader: _Reader, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while chunk := reader.read(_CHUNK_BYTES):
        parts.append(chunk)
        size = _checked(size + len(chunk), bytes_max)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _gunzip(section: bytes, bytes_max: int) -> bytes:
    return _all_of(cast(_Reader, gzip.GzipFile(fileobj=io.BytesIO(section))), bytes_max)


def _xerial(records: bytes) -> bytes:
    parts = [_XERIAL]
    for at in range(0, len(records), _XERIAL_BLOCK_BYTES):
        block = snappy.compress(records[at : at + _XERIAL_BLOCK_BYTES])
        parts += (_SIZE.pack(len(block)), block)
    return b"".join(parts)


def _from_snappy(section: bytes, bytes_max: int) -> bytes:
    if section[:_XERIAL_MAGIC_BYTES] != _XERIAL[:_XERIAL_MAGIC_BYTES]:
        _checked(snappy.recorded_bytes(section), bytes_max)
        return snappy.decompress(section)
    parts: list[bytes] = []
    size, at = 0, len(_XERIAL)
    while at < len(section):
        (block_bytes,) = _SIZE.unpack_from(section, at)
        at += _SIZE.size
        block = section[at : at + block_bytes]
        if len(block) < block_bytes:
            raise EOFError("a block ends early")
        size = _checked(size + snappy.recorded_bytes(block), bytes_max)
        parts.append(snappy.decompress(block))
        at += block_bytes
    return b"".join(parts)


def _from_lz4(section: bytes, bytes_max: int) -> bytes:
    stream = lz4_frame.LZ4FrameDecompressor()
    # Most records compress to no less than a quarter: one step is then enough.
    step = max(4 * len(section), _CHUNK_BYTES)
    parts = [stream.decompress(section, step)]
    size = _checked(len(parts[0]), bytes_max)
    while not stream.eof:
        if stream.needs_input:
            raise EOFError("the frame ends early")
        parts.append(stream.decompress(b"", step))
        size = _checked(size + len(parts[-1]), bytes_max)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _from_zstd(section: bytes, bytes_max: int) -> bytes:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX)
    reader = decompressor.stream_reader(section, read_across_frames=True)
    return _all_of(cast(_Reader, reader), bytes_max)

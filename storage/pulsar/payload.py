"""The value section of a Pulsar entry: the payload as its producer sent it.

Decompressed, the payload of a batch is a sequence of messages:

    SIZE (4 bytes, big-endian) | SingleMessageMetadata | value

A message that a compaction removed is a placeholder in its place: no value, and marked as such.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from google.protobuf.message import DecodeError

from ledgerfold.storage.compression import decompress
from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1.pulsar_pb2 import MessageMetadata, SingleMessageMetadata

_SIZE = struct.Struct(">I")
_PLACEHOLDER_METADATA = SingleMessageMetadata(payload_size=0, compacted_out=True)
PLACEHOLDER = b"\x00\x00\x00\x04" + _PLACEHOLDER_METADATA.SerializeToString()
# The smallest message of a batch: its size, and a SingleMessageMetadata that marks it as having no
# value.
SINGLE_BYTES_MIN = 6


class Single(NamedTuple):
    """A message of a batch, and where it and its value begin and end in the payload."""

    metadata: SingleMessageMetadata
    start: int
    value_at: int
    end: int


def decompressed(metadata: MessageMetadata, payload: Buffer) -> bytes:
    """Returns the payload without its compression. Raises InvalidRequest.

    Bound: that of a native value section (storage/compression.py).
    """
    # NOTE: an empty value is never compressed, even if its metadata name a compression.
    if not metadata.compression or not (len(payload) or metadata.uncompressed_size):
        return bytes(payload)
    return decompress(
        metadata.compression, metadata.uncompressed_size.to_bytes(4, "little") + bytes(payload)
    )


def opened(metadata: MessageMetadata, payload: Buffer) -> bytes:
    """Returns the value of a message that is alone in its entry, without its compression.

    A value that cannot be decompressed is returned as it was sent: an encrypted value, a chunk (a
    part of a message that was compressed as a whole), or damage.
    """
    if metadata.encryption_keys or metadata.num_chunks_from_msg > 1:
        return bytes(payload)
    try:
        return decompressed(metadata, payload)
    except InvalidRequest:
        return bytes(payload)


def single_at(payload: bytes, start: int) -> tuple[SingleMessageMetadata, int]:
    """Returns the metadata of a message that split() has found, and where its value begins."""
    value_at = start + 4 + int(_SIZE.unpack_from(payload, start)[0])
    return SingleMessageMetadata.FromString(payload[start + 4 : value_at]), value_at


def split(payload: bytes, count: int) -> Iterator[Single]:
    """Yields the messages of a decompressed batch, with placeholders. Raises InvalidRequest."""
    at, end = 0, len(payload)
    parse, unpack = SingleMessageMetadata.FromString, _SIZE.unpack_from
    try:
        for _ in range(count):
            metadata_at = at + 4
            value_at = metadata_at + unpack(payload, at)[0]
            metadata = parse(payload[metadata_at:value_at])
            next_at = value_at + metadata.payload_size
            if not value_at <= next_at <= end:
                raise InvalidRequest("A message is larger than its batch.")
            yield Single(metadata, at, value_at, next_at)
            at = next_at
    except (struct.error, DecodeError) as error:
        raise InvalidRequest(f"A batch of {count} messages does not parse: {error}.") from error
    if at != end:
        raise InvalidRequest(f"{end - at} bytes follow the {count} messages of a batch.")

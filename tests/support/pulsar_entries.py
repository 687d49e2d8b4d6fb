"""Entries of Pulsar's clients, built by protobuf, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ledgerfold.storage.compression import compress, decompress
from ledgerfold.storage.pulsar.entries import entry_of
from ledgerfold.v1.pulsar_pb2 import MessageMetadata, SingleMessageMetadata

Sent = tuple[SingleMessageMetadata, bytes]
# A field that no build of Ledgerfold knows.
UNKNOWN_FIELD = b"\xa2\x06\x03new"


def message(
    value: bytes | None, key: str | bytes | None = None, **fields: Any
) -> tuple[SingleMessageMetadata, bytes]:
    single = SingleMessageMetadata(payload_size=len(value or b""), **fields)
    if value is None:
        single.null_value = True
    if key is not None:
        single.partition_key = key.encode() if isinstance(key, str) else key
    return single, value or b""


def packed(messages: Sequence[Sent]) -> bytes:
    parts = []
    for single, value in messages:
        encoded = single.SerializeToString()
        parts += [len(encoded).to_bytes(4, "big"), encoded, value]
    return b"".join(parts)


def unpacked(section: bytes, payload: bytes) -> list[Sent]:
    metadata = MessageMetadata.FromString(section)
    if metadata.compression:
        size = metadata.uncompressed_size.to_bytes(4, "little")
        payload = decompress(metadata.compression, size + payload)
    at, found = 0, []
    while at < len(payload):
        end = at + 4 + int.from_bytes(payload[at : at + 4], "big")
        single = SingleMessageMetadata.FromString(payload[at + 4 : end])
        at = end + single.payload_size
        found.append((single, payload[end:at]))
    return found


def metadata_of(**fields: Any) -> MessageMetadata:
    described: dict[str, Any] = {"producer_name": b"p", "sequence_id": 7, "publish_time": 5}
    return MessageMetadata(**described | fields)


def entry(metadata: MessageMetadata, payload: bytes) -> bytes:
    """Returns an entry with that payload, compressed as its metadata say."""
    if metadata.compression:
        metadata.uncompressed_size = len(payload)
        payload = compress(metadata.compression, payload)[4:]
    return entry_of(metadata, metadata.SerializeToString() + UNKNOWN_FIELD, payload)


def batch_entry(messages: Sequence[Sent], **fields: Any) -> bytes:
    """Returns the entry of a batch. `fields`: of its metadata."""
    first = messages[0][0]
    if first.HasField("partition_key"):
        fields.setdefault("partition_key", first.partition_key)
    metadata = metadata_of(num_messages_in_batch=len(messages), **fields)
    return entry(metadata, packed(messages))


def sections(data: bytes) -> tuple[bytes, bytes]:
    """Returns the key section and the value section of a stored entry."""
    from ledgerfold.storage.entry import read_header

    header = read_header(data)
    values_at = header.header_bytes + header.key_bytes
    return data[header.header_bytes : values_at], data[values_at:]

"""A stored entry as Pulsar's clients read it: metadata, payload, and the messages to deliver.

One entry becomes one entry, with the compression that it has, regardless of the client that
published it. If a compaction removed messages of a batch, empty placeholders take their places, so
that the others keep their indexes. Placeholders are marked twice: by `compacted_out`, which Java
observes, and by a cleared bit of the ack set, which all clients observe.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from ledgerfold.storage.codec import decode
from ledgerfold.storage.compression import compress
from ledgerfold.storage.decoded import DecodedBatch
from ledgerfold.storage.entry import ENTRY_BYTES_MAX, EntryHeader
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.served_entry import read_served_header
from ledgerfold.storage.varints import varint
from ledgerfold.v1.pulsar_pb2 import KeyValue, MessageMetadata, SingleMessageMetadata

# In the metadata of one message: the tags of partition_key, payload_size and sequence_id.
_KEY_TAG, _PAYLOAD_SIZE_TAG, _SEQUENCE_ID_TAG = b"\x12", b"\x18", b"\x40"
_PLACEHOLDER_METADATA = SingleMessageMetadata(payload_size=0, compacted_out=True)
_PLACEHOLDER = b"\x00\x00\x00\x04" + _PLACEHOLDER_METADATA.SerializeToString()


class PulsarEntry(NamedTuple):
    """`live`: the bits of the messages that the entry has; None: all of its `batch_size`.

    `batch_size`: 0 for a message that was published alone.
    """

    metadata: bytes
    payload: bytes
    batch_size: int
    live: int | None


def from_native(entry: bytes) -> PulsarEntry:
    """Converts an entry as it is served. Raises InvalidRequest for one that does not decode."""
    header = read_served_header(entry)
    batch = decode(entry, header)
    if header.is_plain:
        return _single(header, batch)
    payload, live = _payload(header, batch)
    metadata = _metadata(header, batch, len(payload))
    first = batch.batch_index(0)
    metadata.sequence_id = max(0, batch.sequence_id(0) - first)
    last_id = batch.sequence_id(batch.rows - 1)
    metadata.highest_sequence_id = max(0, header.sequence_id, last_id)
    metadata.num_messages_in_batch = batch.batch_size
    key = batch.key(0)
    if key is not None:
        metadata.partition_key = key
        if batch.key_is_base64(0):
            metadata.partition_key_b64_encoded = True
    return PulsarEntry(
        metadata.SerializeToString(),
        _compressed(header, payload),
        batch.batch_size,
        live,
    )


def _metadata(header: EntryHeader, batch: DecodedBatch, payload_bytes: int) -> MessageMetadata:
    metadata = MessageMetadata(
        producer_name=batch.producer_name.encode(),
        publish_time=header.publish_time_ms,
        uncompressed_size=payload_bytes,
    )
    # NOTE: the C++ client does not decompress an empty payload.
    if header.compression and payload_bytes:
        metadata.compression = header.compression
    if batch.schema_version:
        metadata.schema_version = batch.schema_version
    if batch.deliver_at_ms:
        metadata.deliver_at_time = batch.deliver_at_ms
    return metadata


def _compressed(header: EntryHeader, payload: bytes) -> bytes:
    if not (header.compression and payload):
        return payload
    return compress(header.compression, payload)[4:]


def _single(header: EntryHeader, batch: DecodedBatch) -> PulsarEntry:
    value = batch.value(0)
    metadata = _metadata(header, batch, len(value))
    metadata.sequence_id = batch.sequence_id(0)
    _describe(metadata, batch, 0)
    return PulsarEntry(metadata.SerializeToString(), _compressed(header, value), 0, None)


def _describe(
    metadata: MessageMetadata | SingleMessageMetadata, batch: DecodedBatch, row: int
) -> None:
    """Sets the fields that a message has both alone and in a batch."""
    key = batch.key(row)
    if key is not None:
        metadata.partition_key = key
        if batch.key_is_base64(row):
            metadata.partition_key_b64_encoded = True
    if batch.is_null(row):
        metadata.null_value = True
    if event_time_ms := batch.event_time_ms(row):
        metadata.event_time = event_time_ms
    if ordering_key := batch.ordering_key(row):
        metadata.ordering_key = ordering_key
    for name, content in batch.properties(row).items():
        metadata.properties.append(KeyValue(key=name.encode(), value=content.encode()))


def _payload(header: EntryHeader, batch: DecodedBatch) -> tuple[bytes, int | None]:
    """Returns the batch's payload, and the bits of the messages that are not placeholders."""
    rows, size = batch.rows, batch.batch_size
    if rows == size:
        parts = list[bytes]()
        for row, value in enumerate(batch.contents()):
            parts.append(_single_metadata(batch, row, value))
            parts.append(value)
        return b"".join(parts), None
    if size * len(_PLACEHOLDER) > ENTRY_BYTES_MAX:
        raise InvalidRequest(f"Entry {header.position} is of a batch of {size} messages.")
    parts, live = [_PLACEHOLDER] * size, 0
    for row, value in enumerate(batch.contents()):
        index = batch.batch_index(row)
        if index >= size:
            raise InvalidRequest(f"Entry {header.position} has an index beyond its batch.")
        parts[index] = _single_metadata(batch, row, value) + value
        live |= 1 << index
    return b"".join(parts), live


def _single_metadata(batch: DecodedBatch, row: int, value: bytes) -> bytes:
    """Returns the metadata of a message in a batch, with its size."""
    sequence_id = max(0, batch.sequence_id(row))
    if _is_simple(batch, row):
        key = batch.key(row)
        encoded = b"".join(
            (
                b"" if key is None else _KEY_TAG + varint(len(key)) + key,
                _PAYLOAD_SIZE_TAG,
                varint(len(value)),
                _SEQUENCE_ID_TAG,
                varint(sequence_id),
            )
        )
    else:
        metadata = SingleMessageMetadata(payload_size=len(value), sequence_id=sequence_id)
        _describe(metadata, batch, row)
        encoded = metadata.SerializeToString()
    return len(encoded).to_bytes(4, "big") + encoded


def _is_simple(batch: DecodedBatch, row: int) -> bool:
    """Returns whether a message has no more than a key and a value."""
    return not (
        batch.is_null(row)
        or batch.key_is_base64(row)
        or batch.event_time_ms(row)
        or batch.ordering_key(row)
        or batch.properties(row)
    )


def words_of(bits: int, size: int) -> list[int]:
    """Returns the bits of an ack set as signed words of 64 bits, the lowest first.

    >>> words_of(0b101, 3), words_of(1 << 63, 65)
    ([5], [-9223372036854775808, 0])
    """
    count = (size + 63) // 64
    data = bits.to_bytes(count * 8, "little")
    return [
        int.from_bytes(data[at : at + 8], "little", signed=True) for at in range(0, count * 8, 8)
    ]


def bits_of(words: Sequence[int]) -> int:
    """Returns the bits of words, signed or not.

    >>> bits_of([-1, 1]) == 2**65 - 1
    True
    """
    data = struct.pack(f"<{len(words)}Q", *(word & 0xFFFF_FFFF_FFFF_FFFF for word in words))
    return int.from_bytes(data, "little")

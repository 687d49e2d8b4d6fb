"""The entry that a client sent, as an entry of the native codec (storage/native.py).

One entry becomes one entry: its messages keep their order and their indexes in the batch. The
compression stays, and everything that a native entry can hold. What it cannot hold is refused.

Source: Pulsar's MessageMetadata and SingleMessageMetadata; docs/NOT_EMULATED.md.
"""

from __future__ import annotations

import struct

from google.protobuf.message import DecodeError

from ledgerfold.broker.pulsar.frames import Message
from ledgerfold.storage.compression import decompress
from ledgerfold.storage.entry import ENTRY_BYTES_MAX, Compression
from ledgerfold.storage.errors import InvalidRequest, NotAllowed
from ledgerfold.storage.native import HAS_KEY, KEY_IS_BASE64, NULL_VALUE, NativeBatchBuilder
from ledgerfold.v1.pulsar_pb2 import CommandSend, MessageMetadata, SingleMessageMetadata

_SIZE = struct.Struct(">I")
# Why an entry with one of these fields cannot be stored.
_REFUSED = (
    ("encryption_keys", "Encrypted messages cannot be stored: send them unencrypted."),
    ("uuid", "Chunked messages cannot be stored: raise serve --max-message-size instead."),
    ("marker_type", "Markers of transactions and replication cannot be stored."),
    ("txnid_least_bits", "There are no transactions: send without one."),
    ("txnid_most_bits", "There are no transactions: send without one."),
)


def to_native(message: Message, send: CommandSend) -> bytes:
    """Returns the native entry. Raises InvalidRequest (it is malformed), NotAllowed."""
    metadata = message.metadata
    _check(metadata, send)
    payload = _decompressed(message)
    is_batch = metadata.HasField("num_messages_in_batch")
    try:
        builder = NativeBatchBuilder(metadata.producer_name.decode(), metadata.schema_version)
        builder.deliver_at_ms = max(0, metadata.deliver_at_time)
        if is_batch:
            _add_batch(builder, metadata.num_messages_in_batch, payload)
        else:
            _add_single(builder, metadata, payload)
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"A name or a property is not UTF-8: {error}.") from error
    first, ids = metadata.sequence_id, builder.sequence_ids
    if ids and len(ids) != len(builder):
        # Only some messages name theirs: none is trusted.
        builder.sequence_ids = ids = []
    last = max(ids) if ids else first + len(builder) - 1
    if ids and last - first + 1 != len(ids):
        # A batch of one key, of several that are sent together: their ids are interleaved. They
        # are sent by their first ids, so that each entry has a higher one than those before it.
        entry_id = first
    else:
        entry_id = max(first, last, metadata.highest_sequence_id, send.highest_sequence_id)
    return builder.build(
        sequence_id=entry_id,
        publish_time_ms=metadata.publish_time,
        compression=metadata.compression,
        plain=not is_batch,
    )


def _check(metadata: MessageMetadata, send: CommandSend) -> None:
    for name, why in _REFUSED:
        if getattr(metadata, name) and (name != "marker_type" or metadata.HasField(name)):
            raise NotAllowed(why)
    if send.is_chunk or metadata.num_chunks_from_msg > 1:
        raise NotAllowed(_REFUSED[1][1])
    if send.HasField("txnid_least_bits") or send.HasField("txnid_most_bits"):
        raise NotAllowed(_REFUSED[3][1])
    if send.marker or metadata.HasField("marker_type"):
        raise NotAllowed(_REFUSED[2][1])
    if metadata.sequence_id < 0 or metadata.publish_time < 0 or metadata.event_time < 0:
        raise InvalidRequest("A sequence id or a time is above 2^63.")
    if metadata.compression not in Compression._value2member_map_:
        raise InvalidRequest(f"Unknown compression {metadata.compression}.")


def _decompressed(message: Message) -> bytes:
    metadata = message.metadata
    if not metadata.compression:
        return bytes(message.payload)
    # As in a native value section: the size is first.
    size = metadata.uncompressed_size.to_bytes(4, "little")
    return decompress(metadata.compression, size + bytes(message.payload))


def _add_single(builder: NativeBatchBuilder, metadata: MessageMetadata, payload: bytes) -> None:
    builder.add(
        None if metadata.null_value else payload,
        metadata.partition_key if metadata.HasField("partition_key") else None,
        key_is_base64=metadata.partition_key_b64_encoded,
        properties=_properties(metadata),
        event_time_ms=metadata.event_time,
        ordering_key=metadata.ordering_key or None,
    )


def _add_batch(builder: NativeBatchBuilder, count: int, payload: bytes) -> None:
    # Each message takes at least 6 bytes.
    if not 1 <= count <= ENTRY_BYTES_MAX // 6:
        raise InvalidRequest(f"A batch of {count} messages.")
    at, end = 0, len(payload)
    keys, values, flags = builder.keys, builder.values, builder.flags
    sequence_ids, parse = builder.sequence_ids, SingleMessageMetadata.FromString
    try:
        for row in range(count):
            (size,) = _SIZE.unpack_from(payload, at)
            at += 4
            single = parse(payload[at : at + size])
            at += size
            value_bytes = single.payload_size
            if not 0 <= value_bytes <= end - at:
                raise InvalidRequest("A message is larger than its batch.")
            if single.compacted_out:
                raise InvalidRequest("A message that was compacted out is not new.")
            flag = 0
            if single.HasField("partition_key"):
                flag = HAS_KEY | (KEY_IS_BASE64 if single.partition_key_b64_encoded else 0)
            if single.null_value:
                flag |= NULL_VALUE
                if value_bytes:
                    raise InvalidRequest("A null value has no payload.")
            keys.append(single.partition_key)
            values.append(payload[at : at + value_bytes])
            flags.append(flag)
            at += value_bytes
            if single.HasField("sequence_id"):
                sequence_ids.append(single.sequence_id)
            if single.event_time:
                builder.event_times[row] = single.event_time
            if single.ordering_key:
                builder.ordering_keys[row] = single.ordering_key
            if single.properties:
                builder.properties[row] = _properties(single)
    except (struct.error, DecodeError) as error:
        raise InvalidRequest(f"A batch of {count} messages does not parse: {error}.") from error
    if at != end:
        raise InvalidRequest(f"{end - at} bytes follow the {count} messages of a batch.")


def _properties(of: MessageMetadata | SingleMessageMetadata) -> dict[str, str]:
    return {each.key.decode(): each.value.decode() for each in of.properties}

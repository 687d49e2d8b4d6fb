"""The entry of a Pulsar client: its metadata and its payload, after the entry's header.

Neither is changed, and the payload is not opened, as in Pulsar's broker: a batch that does not
parse is stored, and a compaction keeps it as it is. But a batch must not declare more messages than
its payload can hold: readers rely on the number of messages.
"""

from __future__ import annotations

from ledgerfold.storage.entry import (
    FLAG_PLAIN,
    Buffer,
    Codec,
    Compression,
    EntryFields,
    build_entry,
)
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.pulsar.metadata import is_batch
from ledgerfold.storage.pulsar.payload import SINGLE_BYTES_MIN
from ledgerfold.v1.pulsar_pb2 import MessageMetadata

# The limit of a batch: more messages than 5 MiB, Pulsar's default limit, can hold, even without
# values.
MESSAGES_MAX = 1_000_000


def entry_of(
    metadata: MessageMetadata, section: bytes, payload: Buffer, *, highest_sequence_id: int = 0
) -> bytes:
    """Builds an entry. `section`: the metadata as they were sent. Raises InvalidRequest.

    `highest_sequence_id`: as sent beside the metadata; 0: none.
    """
    # An event time may have any 64 bits: like the Java client, this package reads them with a sign.
    if metadata.sequence_id < 0 or metadata.publish_time < 0:
        raise InvalidRequest("A sequence id or a publish time is 2^63 or more.")
    if metadata.compression not in Compression._value2member_map_:
        raise InvalidRequest(f"Unknown compression {metadata.compression}.")
    count = metadata.num_messages_in_batch if is_batch(metadata) else 1
    if is_batch(metadata):
        _check_count(metadata, len(payload))
    if metadata.compacted_batch_indexes:
        raise InvalidRequest("Only a compaction sets compacted_batch_indexes: omit them.")
    return build_entry(
        section,
        bytes(payload),
        EntryFields(
            message_count=count,
            sequence_id=_sequence_id(metadata, count, highest_sequence_id),
            publish_time_ms=metadata.publish_time,
            codec=Codec.PULSAR,
            compression=metadata.compression,
            flags=0 if is_batch(metadata) else FLAG_PLAIN,
        ),
    )


def _check_count(metadata: MessageMetadata, payload_bytes: int) -> None:
    count = metadata.num_messages_in_batch
    size = metadata.uncompressed_size if metadata.compression else payload_bytes
    if count < 1:
        raise InvalidRequest(f"The batch has {count} messages; it needs at least 1.")
    if count > MESSAGES_MAX:
        raise InvalidRequest(f"The batch has {count} messages; send at most {MESSAGES_MAX}.")
    if SINGLE_BYTES_MIN * count > size:
        raise InvalidRequest(f"A batch of {count} messages needs more than {size} bytes.")


def _sequence_id(metadata: MessageMetadata, count: int, highest: int) -> int:
    """Returns the id that identifies the entry if it is sent again."""
    first = metadata.sequence_id
    if is_unfinished(metadata):
        # All chunks of a message have its id: only the last one is identified by it.
        return first - 1
    highest = max(highest, metadata.highest_sequence_id)
    # NOTE: the C++ client does not send the highest id. When several batches of one key each are
    # sent together, their ids interleave. They are sent in order of their first ids, so that each
    # entry has a higher id than the entries before it.
    return highest if highest - first + 1 == count else first


def is_unfinished(metadata: MessageMetadata) -> bool:
    """Returns whether the entry is a chunk of a message, and not the last one."""
    return metadata.chunk_id < metadata.num_chunks_from_msg - 1

"""The entries that clients send and receive: stored and served unchanged.

An entry is refused because of its metadata, never because of its content: the payload is not
opened. A native entry, of another client, is converted when it is served (from_native.py).
"""

from __future__ import annotations

from typing import NamedTuple

from ledgerfold.broker.pulsar.frames import Message
from ledgerfold.broker.pulsar.from_native import PulsarEntry, from_native
from ledgerfold.storage.entry import Codec
from ledgerfold.storage.errors import NotAllowed
from ledgerfold.storage.pulsar.entries import entry_of, is_unfinished
from ledgerfold.storage.pulsar.metadata import indexes_of, is_sealed, parse_metadata
from ledgerfold.storage.served_entry import read_served_header, row_numbers
from ledgerfold.v1.pulsar_pb2 import CommandSend, MessageMetadata

# Why an entry with one of these fields cannot be stored.
_REFUSED = (
    ("marker_type", "Markers of transactions and replication cannot be stored."),
    ("txnid_least_bits", "There are no transactions: send without one."),
    ("txnid_most_bits", "There are no transactions: send without one."),
)


class Storable(NamedTuple):
    """An entry to store. `is_new`: it is not a duplicate, regardless of its sequence id."""

    entry: bytes
    is_new: bool


def to_stored(message: Message, send: CommandSend, publish_time_ms: int | None = None) -> Storable:
    """Returns the entry to store. Raises InvalidRequest, NotAllowed.

    `publish_time_ms`: replaces the client's time; None: keeps it.
    """
    metadata, section = message.metadata, message.section
    _check(metadata, send)
    if publish_time_ms is not None:
        metadata.publish_time = publish_time_ms
        section = metadata.SerializeToString()
    highest = send.highest_sequence_id
    entry = entry_of(metadata, section, message.payload, highest_sequence_id=highest)
    return Storable(entry, is_unfinished(metadata))


def _check(metadata: MessageMetadata, send: CommandSend) -> None:
    for name, why in _REFUSED:
        if getattr(metadata, name) and (name != "marker_type" or metadata.HasField(name)):
            raise NotAllowed(why)
    if send.HasField("txnid_least_bits") or send.HasField("txnid_most_bits"):
        raise NotAllowed(_REFUSED[1][1])
    if send.marker or metadata.HasField("marker_type"):
        raise NotAllowed(_REFUSED[0][1])


def to_served(entry: bytes) -> PulsarEntry:
    """Returns an entry as Pulsar's clients read it. Raises InvalidRequest."""
    header = read_served_header(entry)
    if header.codec != Codec.PULSAR:
        return from_native(entry)
    keys_at = header.header_bytes
    values_at = keys_at + header.key_bytes
    section, payload = entry[keys_at:values_at], entry[values_at:]
    if header.is_plain:
        return PulsarEntry(section, payload, 0, None)
    metadata = parse_metadata(section)
    size = metadata.num_messages_in_batch
    if header.message_count == size or is_sealed(metadata):
        return PulsarEntry(section, payload, size, None)
    indexes = indexes_of(metadata, header.rows)
    if header.live_rows:
        indexes = [indexes[row] for row in row_numbers(header.live_rows, header.rows)]
    live = bytearray(size // 8 + 1)
    for index in indexes:
        live[index >> 3] |= 1 << (index & 7)
    return PulsarEntry(section, payload, size, int.from_bytes(live, "little"))

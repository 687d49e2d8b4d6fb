"""Entries of Pulsar's clients: codec 3 (docs/FORMATS.md, "Pulsar codec").

The key section is the MessageMetadata, the value section the payload, both as they were sent. The
payload of a single message is decompressed when it is needed. A chunk of a message, and a payload
that cannot be decompressed, are read as they were sent. An entry that cannot be opened is one
message, which is returned as if it was published alone; its value is the bytes that were sent. An
encrypted batch has the key of its first message. A batch that does not parse has no key.

Bound: the decompressed payload, and 12 bytes for each message; after a compaction, 60.

    >>> metadata = MessageMetadata(
    ...     producer_name=b"p", sequence_id=7, publish_time=5, partition_key=b"k")
    >>> from ledgerfold.storage.codec import decode
    >>> from ledgerfold.storage.pulsar.entries import entry_of
    >>> entry = entry_of(metadata, metadata.SerializeToString(), b"v")
    >>> [(m.key, m.value, m.sequence_id) for m in decode(entry).messages()]
    [(b'k', b'v', 7)]
"""

from __future__ import annotations

from array import array

from ledgerfold.storage.decoded import DecodedBatch, Routing, decoded_key, property_texts
from ledgerfold.storage.entry import Buffer, EntryHeader
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.pulsar.metadata import (
    indexes_of,
    is_batch,
    is_sealed,
    parse_metadata,
)
from ledgerfold.storage.pulsar.payload import decompressed, opened, single_at, split
from ledgerfold.storage.served_entry import row_numbers
from ledgerfold.v1.pulsar_pb2 import MessageMetadata, SingleMessageMetadata


class PulsarBatch(DecodedBatch):
    """A decoded entry."""

    __slots__ = (
        "_indexes",
        "_is_single",
        "_last",
        "_payload",
        "_section",
        "_starts",
        "_value_ends",
        "_value_starts",
        "batch_size",
        "header",
        "is_unreadable",
        "metadata",
        "rows",
    )

    def __init__(self, header: EntryHeader, key_section: Buffer, value_section: Buffer) -> None:
        self.header = header
        self.metadata = parse_metadata(key_section)
        if header.is_plain == is_batch(self.metadata):
            raise InvalidRequest("The header of a Pulsar entry does not match its metadata.")
        self._section = value_section
        self.is_unreadable = False
        self._is_single = header.is_plain or is_sealed(self.metadata)
        self.batch_size: int = 1 if header.is_plain else self.metadata.num_messages_in_batch
        self._payload: bytes | None = None
        self._indexes: list[int] | range = range(0)
        # The messages of a batch that are neither placeholders nor dead: where they and their
        # values begin, and where they end. They are parsed again when they are read.
        self._starts, self._value_starts, self._value_ends = array("I"), array("I"), array("I")
        # The message that was read last: its row, its metadata.
        self._last = -1, SingleMessageMetadata()
        if not self._is_single:
            try:
                self._read_batch()
            except InvalidRequest:
                self._is_single = self.is_unreadable = True
                self._payload = bytes(value_section)
        self.rows = 1 if self._is_single else header.message_count

    @staticmethod
    def routing(header: EntryHeader, key_section: Buffer) -> Routing:
        """Returns the routing as sent, with the ordering key, or the key, of the first message,
        which the metadata have. A key in base64 counts as its decoded bytes.

        Source: Pulsar's AbstractBaseDispatcher.
        """
        metadata = parse_metadata(key_section)
        key = metadata.ordering_key or None
        if key is None and metadata.HasField("partition_key"):
            is_base64 = metadata.partition_key_b64_encoded
            key = decoded_key(metadata.partition_key) if is_base64 else metadata.partition_key
        return Routing(key, max(0, metadata.deliver_at_time))

    @staticmethod
    def last_batch_index(header: EntryHeader, key_section: Buffer) -> int:
        if header.is_plain:
            return -1
        # An encrypted batch never has live rows: its segment gets no key index.
        indexes = indexes_of(parse_metadata(key_section), header.rows)
        if header.live_rows:
            return indexes[row_numbers(header.live_rows, header.rows)[-1]]
        return indexes[-1]

    @property
    def payload(self) -> bytes:
        """The payload, decompressed; as it was sent, if it cannot be decompressed separately."""
        if self._payload is None:
            self._payload = opened(self.metadata, self._section)
        return self._payload

    def _read_batch(self) -> None:
        """Raises InvalidRequest if the batch cannot be read."""
        header = self.header
        payload = self._payload = decompressed(self.metadata, self._section)
        starts, value_starts, value_ends = array("I"), array("I"), array("I")
        for metadata, start, value_start, end in split(payload, self.batch_size):
            if not metadata.compacted_out:
                starts.append(start)
                value_starts.append(value_start)
                value_ends.append(end)
        if len(starts) != header.rows:
            raise InvalidRequest(
                f"The entry has {len(starts)} messages, but its header counts {header.rows}."
            )
        indexes = indexes_of(self.metadata, header.rows)
        if header.live_rows:
            rows = row_numbers(header.live_rows, header.rows)
            indexes = [indexes[row] for row in rows]
            starts, value_starts, value_ends = (
                array("I", [column[row] for row in rows])
                for column in (starts, value_starts, value_ends)
            )
        self._starts, self._value_starts, self._value_ends = starts, value_starts, value_ends
        self._indexes = indexes

    def _of(self, row: int) -> MessageMetadata | SingleMessageMetadata:
        """Returns the metadata of one message."""
        if self._is_single:
            return self.metadata
        if self._last[0] != row:
            self._last = row, single_at(self.payload, self._starts[row])[0]
        return self._last[1]

    @property
    def producer_name(self) -> str:
        return self.metadata.producer_name.decode(errors="backslashreplace")

    @property
    def deliver_at_ms(self) -> int:  # type: ignore[override]
        return max(0, self.metadata.deliver_at_time)

    @property
    def schema_version(self) -> bytes:
        return self.metadata.schema_version

    def batch_index(self, row: int) -> int:
        """Returns the batch index; -1 for a message that was published alone, and for an entry that
        cannot be opened.
        """
        return -1 if self._is_single else self._indexes[row]

    def key(self, row: int) -> bytes | None:
        if self.is_unreadable:
            return None
        of = self._of(row)
        return of.partition_key if of.HasField("partition_key") else None

    def key_is_base64(self, row: int) -> bool:
        return self._of(row).partition_key_b64_encoded

    def value(self, row: int) -> bytes:
        if self._is_single:
            return self.payload
        return self.payload[self._value_starts[row] : self._value_ends[row]]

    def value_bytes(self, row: int) -> int:
        """Returns the size of the value. Reads the payload only of a batch."""
        if self.is_unreadable:
            return len(self.payload)
        if self._is_single:
            return single_bytes(self.metadata, self.header)
        return self._value_ends[row] - self._value_starts[row]

    def contents(self) -> list[bytes]:
        if self._is_single:
            return [self.payload]
        payload, bounds = self.payload, zip(self._value_starts, self._value_ends, strict=True)
        return [payload[start:end] for start, end in bounds]

    def is_null(self, row: int) -> bool:
        return self._of(row).null_value

    def event_time_ms(self, row: int) -> int:
        return self._of(row).event_time

    def sequence_id(self, row: int) -> int:
        of = self._of(row)
        if self._is_single or of.HasField("sequence_id"):
            return of.sequence_id
        return self.metadata.sequence_id + self.batch_index(row)

    def pairs(self, row: int) -> list[tuple[bytes, bytes]]:
        """Returns the names and contents of the properties, as they were sent."""
        return [(each.key, each.value) for each in self._of(row).properties]

    def properties(self, row: int) -> dict[str, str]:
        return property_texts(self.pairs(row))

    def ordering_key(self, row: int) -> bytes | None:
        return self._of(row).ordering_key or None


def single_bytes(metadata: MessageMetadata, header: EntryHeader) -> int:
    """Returns the size of a message that is alone in its entry, as a compaction computes it."""
    if metadata.HasField("uncompressed_size"):
        return metadata.uncompressed_size
    return header.value_bytes


def is_unsized(header: EntryHeader, metadata: MessageMetadata) -> bool:
    """Returns whether the entry is one empty message whose metadata do not state the size.

    Pulsar's compactor adds the size of the metadata to that of its value.
    """
    return header.is_plain and not (header.value_bytes or metadata.HasField("uncompressed_size"))

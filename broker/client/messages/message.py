"""Received messages: a view of one row of a decoded entry.

An entry is decoded once, when its first message is taken. A message consists of the entry and a row
number; it reads its parts on demand. broker/client/sync/reader.py has an example.
"""

from __future__ import annotations

import base64
import binascii
import functools
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.storage.codec import decode
from ledgerfold.storage.decoded import DecodedBatch
from ledgerfold.storage.entry import EntryHeader, Position, read_header
from ledgerfold.storage.errors import Corruption, InvalidRequest, KafkaError
from ledgerfold.storage.kafka.entries import KafkaBatch
from ledgerfold.storage.plain_entries import PlainRows

Part = TypeVar("Part")


class Decoder(Protocol):
    """A decoder of contents, such as a schema, of this package or of Pulsar's Python client."""

    def decode(self, data: bytes) -> Any: ...


class ReceivedEntry:
    """An entry, shared by its messages."""

    __slots__ = (
        "batch",
        "contents",
        "header",
        "partition",
        "redelivery_count",
        "schema",
        "topic",
    )

    def __init__(
        self,
        header: EntryHeader,
        batch: DecodedBatch,
        topic: str,
        redelivery_count: int,
        partition: int = -1,
        schema: Decoder | None = None,
    ) -> None:
        self.header = header
        self.schema = schema
        self.batch = batch
        self.topic = topic
        self.redelivery_count = redelivery_count
        self.partition = partition
        # All values, loaded together on first use: one by one they take three times as long.
        self.contents: list[bytes] | None = None

    def position(self, row: int) -> Position:
        return self.header.position

    def header_of(self, row: int) -> EntryHeader:
        return self.header

    def decoded(self, row: int) -> tuple[DecodedBatch, int]:
        """Returns the decoded entry of a message, and its row there."""
        return self.batch, row

    def key(self, row: int) -> bytes | None:
        return self.batch.key(row)

    def identity(self, row: int) -> tuple[int, int, int]:
        """Returns ledger id, entry id and batch index of a message."""
        header = self.header
        return header.ledger_id, header.entry_id, self.batch.batch_index(row)

    def message_id(self, row: int) -> MessageId:
        return MessageId(self.partition, *self.identity(row), self.topic)

    def offset(self, row: int) -> int | None:
        return None

    def is_tombstone(self, row: int) -> bool:
        return not self.batch.value_bytes(row)

    def load(self) -> list[bytes]:
        try:
            self.contents = self.batch.contents()
        except (InvalidRequest, KafkaError) as error:
            raise self.damage(error, 0) from error
        return self.contents

    def damage(self, error: InvalidRequest | KafkaError, row: int) -> Corruption:
        """Returns the error for an entry that cannot be decoded."""
        path = f"entry {self.position(row)} of {self.topic}"
        return Corruption(path, 0, "a decodable entry", error.message)


class ReceivedRun(ReceivedEntry):
    """Entries of one message each, received together. They are decoded one by one if more than keys
    and contents is needed.
    """

    __slots__ = ("_decoded", "_rows")
    contents: list[bytes]

    def __init__(
        self, rows: PlainRows, topic: str, partition: int, schema: Decoder | None = None
    ) -> None:
        self._rows = rows
        self.schema = schema
        self.topic, self.partition, self.redelivery_count = topic, partition, 0
        self.contents = rows.values
        # The entry that was decoded last, and its row.
        self._decoded: tuple[int, DecodedBatch] | None = None

    def position(self, row: int) -> Position:
        return self._rows.position(row)

    def header_of(self, row: int) -> EntryHeader:
        return read_header(self._rows.entries[row])

    def decoded(self, row: int) -> tuple[DecodedBatch, int]:
        last = self._decoded
        if last is None or last[0] != row:
            last = self._decoded = row, decode(self._rows.entries[row])
        return last[1], 0

    def key(self, row: int) -> bytes | None:
        return self._rows.keys[row]

    def identity(self, row: int) -> tuple[int, int, int]:
        return *self._rows.position(row), -1

    def is_tombstone(self, row: int) -> bool:
        return not self.contents[row]


class ReceivedRecords(ReceivedEntry):
    """A received batch of a Kafka topic.

    The id of the message at offset o is 0:o, whichever entry stores it.
    """

    __slots__ = ()
    batch: KafkaBatch

    def identity(self, row: int) -> tuple[int, int, int]:
        return 0, self.batch.offset(row), -1

    def offset(self, row: int) -> int | None:
        return self.batch.offset(row)

    def is_tombstone(self, row: int) -> bool:
        return self.batch.is_null(row)


def decoding_sections(part: Callable[[Message], Part]) -> Callable[[Message], Part]:
    """Decorates a function that reads the value section, which is decoded on first use."""

    @functools.wraps(part)
    def decoded(message: Message) -> Part:
        try:
            return part(message)
        except (InvalidRequest, KafkaError) as error:
            entry, row = message
            raise entry.damage(error, row) from error

    return decoded


class Message(tuple[ReceivedEntry, int]):
    """A message (`pulsar.Message`). Times are ms since the epoch.

    Methods that read the value section raise Corruption if it cannot be decoded.

    NOTE: a tuple, because creating one runs no Python code: a reader creates one per message
    (tests/benchmarks/bench_client.py).
    """

    __slots__ = ()

    @property
    def _entry(self) -> ReceivedEntry:
        return self[0]

    @property
    def _decoded(self) -> tuple[DecodedBatch, int]:
        entry, row = self
        return entry.decoded(row)

    @property
    def _key(self) -> bytes | None:
        entry, row = self
        return entry.key(row)

    @property
    def _header(self) -> EntryHeader:
        entry, row = self
        return entry.header_of(row)

    def data(self) -> bytes:
        """The content; empty for a null value."""
        entry, row = self
        contents = entry.contents
        return entry.load()[row] if contents is None else contents[row]

    def value(self) -> Any:
        """The content, decoded by the schema of the consumer or reader; bytes without one.

        None for a null value. (Null and empty are both tombstones.)
        """
        if self.has_null_value():
            return None
        schema = self[0].schema
        return self.data() if schema is None else schema.decode(self.data())

    def has_null_value(self) -> bool:
        batch, row = self._decoded
        return batch.is_null(row)

    @decoding_sections
    def is_tombstone(self) -> bool:
        """Returns whether the message deletes its key: its value is null or empty; in Kafka topics,
        null.
        """
        entry, row = self
        return entry.is_tombstone(row)

    @decoding_sections
    def message_id(self) -> MessageId:
        entry, row = self
        return entry.message_id(row)

    @decoding_sections
    def offset(self) -> int | None:
        """The offset in a Kafka topic's log; None on other topics."""
        entry, row = self
        return entry.offset(row)

    def has_key(self) -> bool:
        """Returns whether the message has a key; the empty key is a key. (Java's `hasKey`.)"""
        return self._key is not None

    def partition_key(self) -> str:
        """The key, or "" without one. A key given as bytes is in base64, as in Pulsar."""
        return (self._key or b"").decode(errors="surrogateescape")

    def key_bytes(self) -> bytes | None:
        """The key as bytes, decoded from base64; None without a key. Raises InvalidRequest."""
        key = self._key
        if key is None:
            return None
        batch, row = self._decoded
        if not batch.key_is_base64(row):
            return key
        try:
            return base64.b64decode(key, validate=True)
        except binascii.Error as error:
            raise InvalidRequest(f"The key is marked as base64 but is not: {error}") from error

    @decoding_sections
    def ordering_key(self) -> str:
        """The key that KeyShared uses instead of the partition key; "" without one."""
        batch, row = self._decoded
        return (batch.ordering_key(row) or b"").decode(errors="surrogateescape")

    @decoding_sections
    def properties(self) -> dict[str, str]:
        batch, row = self._decoded
        return batch.properties(row)

    def event_timestamp(self) -> int:
        """The event time, set by the application; 0 if it is not set."""
        batch, row = self._decoded
        return batch.event_time_ms(row)

    def publish_timestamp(self) -> int:
        """The time at which the producer sent the entry, by the producer's clock."""
        return self._header.publish_time_ms

    def append_timestamp(self) -> int:
        """The time at which the broker stored the entry, by its clock. (Not in Pulsar's Python
        client.)
        """
        return self._header.append_time_ms

    @decoding_sections
    def producer_name(self) -> str:
        return self._decoded[0].producer_name

    @decoding_sections
    def sequence_id(self) -> int:
        """The producer's sequence id for the message. (Java's `getSequenceId`.)"""
        batch, row = self._decoded
        return batch.sequence_id(row)

    def topic_name(self) -> str:
        """The full topic name; on a partitioned topic, the partition's."""
        return self._entry.topic

    def redelivery_count(self) -> int:
        """The number of earlier deliveries of the entry to the subscription."""
        return self._entry.redelivery_count

    @decoding_sections
    def schema_version(self) -> bytes:
        """The schema version that the producer set; empty without one."""
        return self._decoded[0].schema_version

    def __repr__(self) -> str:
        return f"Message({self.message_id()}, key={self.partition_key()!r})"

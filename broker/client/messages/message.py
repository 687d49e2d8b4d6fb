"""Received messages: a view of one row of a decoded entry.

An entry is decoded once, when its first message is taken. A message consists of the entry and a row
number; it reads its parts on demand. broker/client/sync/reader.py has an example.
"""

from __future__ import annotations

import base64
import binascii
import functools
from collections.abc import Callable
from typing import TypeVar

from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.storage.decoded import DecodedBatch
from ledgerfold.storage.entry import EntryHeader
from ledgerfold.storage.errors import Corruption, InvalidRequest, KafkaError
from ledgerfold.storage.kafka.entries import KafkaBatch

Part = TypeVar("Part")


class ReceivedEntry:
    """An entry, shared by its messages."""

    __slots__ = ("batch", "contents", "header", "partition", "redelivery_count", "topic")

    def __init__(
        self,
        header: EntryHeader,
        batch: DecodedBatch,
        topic: str,
        redelivery_count: int,
        partition: int = -1,
    ) -> None:
        self.header = header
        self.batch = batch
        self.topic = topic
        self.redelivery_count = redelivery_count
        self.partition = partition
        # All values, loaded together on first use: one by one they take three times as long.
        self.contents: list[bytes] | None = None

    def message_id(self, row: int) -> MessageId:
        header = self.header
        return MessageId(
            self.partition, header.ledger_id, header.entry_id, self.batch.batch_index(row)
        )

    def offset(self, row: int) -> int | None:
        return None

    def is_tombstone(self, row: int) -> bool:
        return not self.batch.value_bytes(row)

    def load(self) -> list[bytes]:
        try:
            self.contents = self.batch.contents()
        except (InvalidRequest, KafkaError) as error:
            raise self.damage(error) from error
        return self.contents

    def damage(self, error: InvalidRequest | KafkaError) -> Corruption:
        """Returns the error for an entry that cannot be decoded."""
        path = f"entry {self.header.position} of {self.topic}"
        return Corruption(path, 0, "a decodable entry", error.message)


class ReceivedRecords(ReceivedEntry):
    """A received batch of a Kafka topic.

    The id of the message at offset o is 0:o, whichever entry stores it.
    """

    __slots__ = ()
    batch: KafkaBatch

    def message_id(self, row: int) -> MessageId:
        return MessageId(self.partition, 0, self.batch.offset(row))

    def offset(self, row: int) -> int | None:
        return self.batch.offset(row)

    def is_tombstone(self, row: int) -> bool:
        return self.batch.is_null(row)


def _decoding(part: Callable[[Message], Part]) -> Callable[[Message], Part]:
    """Decorates a method that reads the value section, which is decoded on first use."""

    @functools.wraps(part)
    def decoded(message: Message) -> Part:
        try:
            return part(message)
        except (InvalidRequest, KafkaError) as error:
            raise message[0].damage(error) from error

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
    def _row(self) -> int:
        return self[1]

    def data(self) -> bytes:
        """The content; empty for a null value."""
        entry, row = self
        contents = entry.contents
        return entry.load()[row] if contents is None else contents[row]

    def value(self) -> bytes | None:
        """The content; None for a null value. (Null and empty are both tombstones.)"""
        return None if self.has_null_value() else self.data()

    def has_null_value(self) -> bool:
        return self._entry.batch.is_null(self._row)

    @_decoding
    def is_tombstone(self) -> bool:
        """Returns whether the message deletes its key: its value is null or empty; in Kafka topics,
        null.
        """
        entry, row = self
        return entry.is_tombstone(row)

    @_decoding
    def message_id(self) -> MessageId:
        entry, row = self
        return entry.message_id(row)

    @_decoding
    def offset(self) -> int | None:
        """The offset in a Kafka topic's log; None on other topics."""
        entry, row = self
        return entry.offset(row)

    def has_key(self) -> bool:
        """Returns whether the message has a key; the empty key is a key. (Java's `hasKey`.)"""
        return self._entry.batch.key(self._row) is not None

    def partition_key(self) -> str:
        """The key, or "" without one. A key given as bytes is in base64, as in Pulsar."""
        return (self._entry.batch.key(self._row) or b"").decode(errors="surrogateescape")

    def key_bytes(self) -> bytes | None:
        """The key as bytes, decoded from base64; None without a key. Raises InvalidRequest."""
        key = self._entry.batch.key(self._row)
        if key is None or not self._entry.batch.key_is_base64(self._row):
            return key
        try:
            return base64.b64decode(key, validate=True)
        except binascii.Error as error:
            raise InvalidRequest(f"The key is marked as base64 but is not: {error}") from error

    @_decoding
    def ordering_key(self) -> str:
        """The key that KeyShared uses instead of the partition key; "" without one."""
        return (self._entry.batch.ordering_key(self._row) or b"").decode(errors="surrogateescape")

    @_decoding
    def properties(self) -> dict[str, str]:
        return self._entry.batch.properties(self._row)

    def event_timestamp(self) -> int:
        """The event time, set by the application; 0 if it is not set."""
        return self._entry.batch.event_time_ms(self._row)

    def publish_timestamp(self) -> int:
        """The time at which the producer sent the entry, by the producer's clock."""
        return self._entry.header.publish_time_ms

    def append_timestamp(self) -> int:
        """The time at which the broker stored the entry, by its clock. (Not in Pulsar's Python
        client.)
        """
        return self._entry.header.append_time_ms

    @_decoding
    def producer_name(self) -> str:
        return self._entry.batch.producer_name

    @_decoding
    def sequence_id(self) -> int:
        """The producer's sequence id for the message. (Java's `getSequenceId`.)"""
        return self._entry.batch.sequence_id(self._row)

    def topic_name(self) -> str:
        """The full topic name; on a partitioned topic, the partition's."""
        return self._entry.topic

    def redelivery_count(self) -> int:
        """The number of earlier deliveries of the entry to the subscription."""
        return self._entry.redelivery_count

    @_decoding
    def schema_version(self) -> bytes:
        """The schema version that the producer set; empty without one."""
        return self._entry.batch.schema_version

    def __repr__(self) -> str:
        return f"Message({self.message_id()}, key={self.partition_key()!r})"

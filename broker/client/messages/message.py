"""Received messages: a view of one row of a decoded entry.

An entry is decoded once, when its first message is taken; a message is no more than the entry and a
row number, and reads its parts when asked. reader.py shows one.
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
    """What the messages of one entry share."""

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
        # All values, once one of them was asked for: at once they cost a third of one by one.
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
        """What it means that the entry does not decode."""
        path = f"entry {self.header.position} of {self.topic}"
        return Corruption(path, 0, "an entry that decodes", error.message)


class ReceivedRecords(ReceivedEntry):
    """Of a Kafka topic: the id of the message at offset o is 0:o, wherever its batch lies."""

    __slots__ = ()
    batch: KafkaBatch

    def message_id(self, row: int) -> MessageId:
        return MessageId(self.partition, 0, self.batch.offset(row))

    def offset(self, row: int) -> int | None:
        return self.batch.offset(row)

    def is_tombstone(self, row: int) -> bool:
        return self.batch.is_null(row)


def _decoding(part: Callable[[Message], Part]) -> Callable[[Message], Part]:
    """Decorates what looks at the value section, which is decoded when it is first looked at."""

    @functools.wraps(part)
    def decoded(message: Message) -> Part:
        try:
            return part(message)
        except (InvalidRequest, KafkaError) as error:
            raise message[0].damage(error) from error

    return decoded


class Message(tuple[ReceivedEntry, int]):
    """One message (`pulsar.Message`). Times are ms since the epoch.

    What is in the value section raises Corruption when that does not decode.

    NOTE: a tuple, because those are made without running any Python code: a reader makes one per
    message (tests/benchmarks/bench_client.py).
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
        """Whether it takes its key away: a null or an empty value; in Kafka topics a null one."""
        entry, row = self
        return entry.is_tombstone(row)

    @_decoding
    def message_id(self) -> MessageId:
        entry, row = self
        return entry.message_id(row)

    @_decoding
    def offset(self) -> int | None:
        """Its place in a Kafka topic's log; None on other topics."""
        entry, row = self
        return entry.offset(row)

    def has_key(self) -> bool:
        """Whether the message has a key at all; the empty key is a key. (Java's `hasKey`.)"""
        return self._entry.batch.key(self._row) is not None

    def partition_key(self) -> str:
        """The key; "" when there is none. A key given as bytes is in base64, as in Pulsar."""
        return (self._entry.batch.key(self._row) or b"").decode(errors="surrogateescape")

    def key_bytes(self) -> bytes | None:
        """The key as bytes, base64 undone; None when there is none. Raises InvalidRequest."""
        key = self._entry.batch.key(self._row)
        if key is None or not self._entry.batch.key_is_base64(self._row):
            return key
        try:
            return base64.b64decode(key, validate=True)
        except binascii.Error as error:
            raise InvalidRequest(f"A key that is not the base64 it says it is: {error}") from error

    @_decoding
    def ordering_key(self) -> str:
        """The key that KeyShared goes by instead of the partition key; "" when there is none."""
        return (self._entry.batch.ordering_key(self._row) or b"").decode(errors="surrogateescape")

    @_decoding
    def properties(self) -> dict[str, str]:
        return self._entry.batch.properties(self._row)

    def event_timestamp(self) -> int:
        """Set by the application; 0 when it is not set."""
        return self._entry.batch.event_time_ms(self._row)

    def publish_timestamp(self) -> int:
        """When the producer sent the entry, by its clock."""
        return self._entry.header.publish_time_ms

    def append_timestamp(self) -> int:
        """When the broker stored the entry, by its clock. (Not in Pulsar's Python client.)"""
        return self._entry.header.append_time_ms

    @_decoding
    def producer_name(self) -> str:
        return self._entry.batch.producer_name

    @_decoding
    def sequence_id(self) -> int:
        """The producer's number for the message. (Java's `getSequenceId`.)"""
        return self._entry.batch.sequence_id(self._row)

    def topic_name(self) -> str:
        """Of a partitioned topic: the partition's."""
        return self._entry.topic

    def redelivery_count(self) -> int:
        """How many times the entry was delivered to the subscription before."""
        return self._entry.redelivery_count

    @_decoding
    def schema_version(self) -> bytes:
        """The version that the producer named; empty when it named none."""
        return self._entry.batch.schema_version

    def __repr__(self) -> str:
        return f"Message({self.message_id()}, key={self.partition_key()!r})"

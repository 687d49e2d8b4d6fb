"""Entries in flight: their creation from batches, for native and for Kafka topics, and results.

The broker reports the kind when the stream opens (PublishReady.codec).

* Native topics: columns (storage/native.py). The id of a message is the entry's id with the batch
  index.
* Kafka topics: record batches (storage/kafka). The id of the message at offset o is 0:o. Properties
  become headers. The event time, or without one the publish time, becomes the timestamp. A null
  value is a tombstone, an empty one is not.

    >>> batch = Batch("p")
    >>> batch.add(NewMessage(b"v", b"k", sequence_id=0), None, names_sequence_id=False)
    >>> KafkaEntries(CompressionType.GZIP).pending(batch, publish_time_ms=5).size_bytes > 61
    True
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future as ThreadFuture
from typing import Any, NamedTuple, TypeAlias

from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.messages.new_message import NewMessage
from ledgerfold.broker.client.messages.options import CompressionType, Result, result_of
from ledgerfold.broker.client.streams.batching import Batch, Listener
from ledgerfold.storage.decoded import key_bytes
from ledgerfold.storage.entry import HEADER_BYTES, Compression, Position
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError
from ledgerfold.storage.kafka.batch import BATCH_HEADER_BYTES, BatchHeader
from ledgerfold.storage.kafka.compression import KafkaCompression
from ledgerfold.storage.kafka.entries import entry_of_parts
from ledgerfold.storage.kafka.records import batch_parts
from ledgerfold.storage.kafka.section import Headers
from ledgerfold.storage.native import HAS_KEY, KEY_IS_BASE64, NULL_VALUE
from ledgerfold.storage.plain_entries import plain_entries

_log = logging.getLogger(__name__)
# The position in the outcome of an entry that was not stored, or stored before.
NOWHERE = Position(-1, -1)


class PendingEntry:
    """An entry in flight, and a listener for each of its messages."""

    __slots__ = ("data", "deadline_s", "is_plain", "listeners", "sequence_id", "size_bytes")

    def __init__(
        self, data: bytes, sequence_id: int, listeners: list[Listener], is_plain: bool
    ) -> None:
        self.data = data
        self.size_bytes = len(data)
        self.sequence_id = sequence_id
        self.listeners = listeners
        self.is_plain = is_plain
        self.deadline_s = 0.0

    @property
    def entries(self) -> int:
        """The number of entries; more than one in a PendingRun."""
        return 1

    @property
    def parts(self) -> Sequence[bytes]:
        """The entries as they are sent."""
        return (self.data,)

    def sequence_id_of(self, index: int) -> int:
        """Returns the sequence id of the entry at `index`."""
        return self.sequence_id

    def take(self, entries: int) -> PendingEntry:
        """Returns the first `entries` of the entries, which are then no longer part of this object,
        unless they are all of it.
        """
        return self

    def message_id(self, partition: int, position: Position, index: int) -> MessageId:
        """Returns the id of the message at `index`, once the entry is stored at `position`."""
        return MessageId(partition, *position, -1 if self.is_plain else index)


class PendingRun(PendingEntry):
    """Entries of one message each, with sequence ids that rise by one, in flight together.

    `sequence_id` is the last one's. Parts of it get their receipts one after the other.
    """

    __slots__ = ("_parts",)

    def __init__(self, parts: list[bytes], sequence_id: int, listeners: list[Listener]) -> None:
        super().__init__(b"", sequence_id, listeners, True)
        self._parts = parts
        self.size_bytes = sum(map(len, parts))

    @property
    def entries(self) -> int:
        return len(self._parts)

    @property
    def parts(self) -> Sequence[bytes]:
        return self._parts

    def sequence_id_of(self, index: int) -> int:
        return self.sequence_id - len(self._parts) + 1 + index

    def take(self, entries: int) -> PendingEntry:
        if entries >= len(self._parts):
            return self
        last_id = self.sequence_id_of(entries - 1)
        taken = PendingRun(self._parts[:entries], last_id, self.listeners[:entries])
        taken.deadline_s = self.deadline_s
        del self._parts[:entries], self.listeners[:entries]
        self.size_bytes -= taken.size_bytes
        return taken

    def message_id(self, partition: int, position: Position, index: int) -> MessageId:
        return MessageId(partition, position.ledger_id, position.entry_id + index, -1)


class PendingRecords(PendingEntry):
    """A record batch in flight. It becomes an entry when it gets its sequence numbers."""

    __slots__ = ("_header", "_publish_time_ms", "_section", "base_sequence", "is_resent")

    def __init__(
        self,
        header: BatchHeader,
        section: bytes,
        sequence_id: int,
        listeners: list[Listener],
        publish_time_ms: int,
    ) -> None:
        super().__init__(b"", sequence_id, listeners, False)
        self.size_bytes = HEADER_BYTES + BATCH_HEADER_BYTES + len(section)
        self._header, self._section = header, section
        self._publish_time_ms = publish_time_ms
        # None: not numbered yet, or the numbers were cleared because it was not stored.
        self.base_sequence: int | None = None
        # Sent before under these numbers: it may be stored.
        self.is_resent = False

    @property
    def batch_bytes(self) -> int:
        """The size that the topic's max.message.bytes limits."""
        return BATCH_HEADER_BYTES + len(self._section)

    def number(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Sets the sequence numbers, by which the broker recognizes a resend."""
        self.base_sequence = base_sequence
        header = self._header._replace(
            producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence
        )
        self.data = entry_of_parts(
            header,
            self._section,
            sequence_id=self.sequence_id,
            publish_time_ms=self._publish_time_ms,
        )

    def forget_numbers(self) -> None:
        """Clears the numbers of a batch that was not stored: it is sent as a new one."""
        self.base_sequence, self.is_resent = None, False

    def message_id(self, partition: int, position: Position, index: int) -> MessageId:
        return MessageId(partition, 0, position.entry_id + index)


class Outcome(NamedTuple):
    """The result for an entry: its position, or an error."""

    entry: PendingEntry
    position: Position
    error: LedgerfoldError | None = None

    def notify(self, partition: int) -> None:
        """Notifies each listener of the entry of its message's result."""
        entry, position, error = self
        listeners = entry.listeners
        if listeners.count(None) == len(listeners):
            return
        result = Result.Ok if error is None else result_of(error)
        is_stored_before = position.ledger_id < 0
        message_id = MessageId() if error is None else None
        for index, listener in enumerate(listeners):
            if listener is None:
                continue
            if error is None and not is_stored_before:
                message_id = entry.message_id(partition, position, index)
            if not callable(listener):
                _settle(listener, message_id, error)
                continue
            try:
                listener(result, message_id)
            except BaseException:  # user code: not even sys.exit() may end the I/O thread
                _log.exception("A send callback failed.")


def _settle(
    future: ThreadFuture[MessageId] | asyncio.Future[MessageId],
    message_id: MessageId | None,
    error: LedgerfoldError | None,
) -> None:
    if future.done():
        return  # the caller has cancelled it
    if error is not None:
        future.set_exception(error)
    elif message_id is not None:
        future.set_result(message_id)


class NativeEntries:
    """Creates entries of native topics. Raises InvalidRequest for a compression that only Kafka
    has.
    """

    def __init__(
        self,
        compression: CompressionType,
        *,
        is_plain: bool,
        schema_version: Callable[[], bytes] = bytes,
    ) -> None:
        if compression not in Compression._value2member_map_:
            raise InvalidRequest(
                f"{compression.name} is for Kafka topics. Use LZ4, ZLib, ZSTD, SNAPPY or NONE."
            )
        self._compression, self._is_plain = compression, is_plain
        self._schema_version = schema_version

    def check(self, message: NewMessage) -> None:
        """Accepts every message."""

    def pending(self, batch: Batch, publish_time_ms: int) -> PendingEntry:
        is_plain = self._is_plain or bool(batch.builder.deliver_at_ms)
        batch.builder.schema_version = self._schema_version()
        data = batch.builder.build(
            sequence_id=batch.sequence_id,
            publish_time_ms=publish_time_ms,
            compression=self._compression,
            plain=is_plain,
        )
        return PendingEntry(data, batch.sequence_id, batch.listeners, is_plain)

    @property
    def makes_runs(self) -> bool:
        """Returns whether plain messages may be built together, by run()."""
        return self._is_plain and self._compression == CompressionType.NONE

    def run(
        self,
        items: Sequence[Any],
        first_sequence_id: int,
        publish_time_ms: int,
        producer_name: str,
    ) -> PendingRun:
        """Builds an entry of each message. `items`: as of QuickRows.take."""
        parts = plain_entries(
            items[1::3], items[0::3], first_sequence_id, publish_time_ms, producer_name
        )
        return PendingRun(parts, first_sequence_id + len(parts) - 1, list(items[2::3]))

    def is_too_large(self, entry: PendingEntry) -> bool:
        """Returns False: a batch that fits into an entry need not be split."""
        return False


class KafkaEntries:
    """Creates entries of Kafka topics. `batch_bytes_max`: the topic's last known
    max.message.bytes.
    """

    # Entries get their sequence numbers one by one.
    makes_runs = False

    def __init__(
        self, compression: CompressionType, batch_bytes_max: Callable[[], int] = int
    ) -> None:
        codec = KafkaCompression.__members__.get(compression.name)
        if codec is None:
            raise InvalidRequest(
                f"Kafka does not support {compression.name}: a Kafka topic accepts GZIP, SNAPPY, "
                "LZ4, ZSTD, or no compression."
            )
        self._compression = codec
        self._batch_bytes_max = batch_bytes_max

    def check(self, message: NewMessage) -> None:
        """Raises InvalidRequest for parts of a message that Kafka topics do not support."""
        if message.ordering_key is not None:
            raise InvalidRequest("Kafka topics do not support ordering keys: omit ordering_key.")
        if message.deliver_at_ms:
            raise InvalidRequest(
                "Kafka topics do not delay messages: omit deliver_at and deliver_after."
            )
        if message.sequence_id >= 0:
            raise InvalidRequest(
                "Kafka topics do not support sequence ids of the caller: omit sequence_id. "
                "Messages resent after a lost connection are stored once all the same."
            )

    def pending(self, batch: Batch, publish_time_ms: int) -> PendingEntry:
        builder = batch.builder
        builder.complete_flags()
        rows = len(builder.values)
        keys: Sequence[bytes | None] = _encoded(builder.keys)
        values: Sequence[bytes | None] = builder.values
        if builder.flags.count(HAS_KEY) != rows:
            flags = builder.flags
            keys = [_key_of_record(key, flag) for key, flag in zip(keys, flags, strict=True)]
            values = [
                None if flag & NULL_VALUE else value
                for value, flag in zip(values, flags, strict=True)
            ]
        times = [publish_time_ms] * rows
        for row, time_ms in builder.event_times.items():
            times[row] = time_ms
        headers = {row: _headers(each) for row, each in builder.properties.items()}
        header, section = batch_parts(keys, values, times, headers, compression=self._compression)
        return PendingRecords(header, section, batch.sequence_id, batch.listeners, publish_time_ms)

    def is_too_large(self, entry: PendingEntry) -> bool:
        """Returns whether the batch must be split even if it fits into an entry."""
        assert isinstance(entry, PendingRecords)
        return entry.batch_bytes > self._batch_bytes_max()


EntryMaker: TypeAlias = NativeEntries | KafkaEntries


def _encoded(keys: Sequence[bytes | str]) -> list[bytes]:
    try:
        return list(map(str.encode, keys))  # type: ignore[arg-type]
    except (TypeError, UnicodeEncodeError):  # some are bytes, or not valid Unicode
        return [key_bytes(key) for key in keys]


def _key_of_record(key: bytes | None, flag: int) -> bytes | None:
    """Returns the key as a record has it: its bytes, not their base64."""
    if key is None or not flag & HAS_KEY:
        return None
    return base64.b64decode(key) if flag & KEY_IS_BASE64 else key


def _headers(properties: dict[str, str]) -> Headers:
    return tuple((name, text.encode()) for name, text in properties.items())

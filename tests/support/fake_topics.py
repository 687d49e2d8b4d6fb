"""Topics in memory, as the fake data service keeps them (tests/support/fake_data_service.py).

A topic is a list of stamped entries in one ledger; a Kafka topic takes batches.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.broker.kafka.producers.producers import Producers
from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import EARLIEST, EntryHeader, Position, read_header, stamped_header
from ledgerfold.storage.error_codec import encode_error
from ledgerfold.storage.errors import (
    KafkaError,
    KafkaErrorKind,
)
from ledgerfold.storage.kafka.batch import (
    BATCH_HEADER_BYTES,
    packed_header,
    placed,
    read_batch_header,
)
from ledgerfold.storage.kafka.records import KafkaRecord, columns_of, records_of
from ledgerfold.v1 import data_pb2

LEDGER_ID = 7
PREFIX = "persistent://public/default/"


@dataclass
class FakeSubscription:
    """`next` is the index of the next entry to deliver."""

    acknowledged: set[Position] = field(default_factory=set)
    cumulative: Position = EARLIEST
    next: int = 0
    consumers: int = 0
    redelivered: list[list[Position]] = field(default_factory=list)
    # Another number after each seek.
    incarnation: int = 0
    # Set: its consumers are disconnected.
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    counts: dict[Position, int] = field(default_factory=dict)


@dataclass
class FakeTopic:
    entries: list[bytes] = field(default_factory=list)
    sequence_ids: dict[str, int] = field(default_factory=dict)
    connected: set[str] = field(default_factory=set)
    subscriptions: dict[str, FakeSubscription] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def store(self, entry: bytes, append_time_ms: int = 1) -> Position:
        header = read_header(entry)
        position = Position(LEDGER_ID, len(self.entries))
        stamped = stamped_header(header, *position, append_time_ms, 1)
        self.entries.append(stamped + entry[header.header_bytes :])
        self.notify()
        return position

    def headers(self) -> list[EntryHeader]:
        return [read_header(entry) for entry in self.entries]

    def values(self) -> list[bytes]:
        return [message.value for entry in self.entries for message in decode(entry).messages()]

    def notify(self) -> None:
        """Wakes all tasks that wait for a change."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def index_at(self, start: data_pb2.StartPosition) -> int:
        """Returns the index of the entry at which a read begins."""
        at = start.WhichOneof("at")
        if at == "earliest":
            return 0
        if at == "publish_time_ms":
            times = [header.publish_time_ms for header in self.headers()]
            return next(
                (i for i, time in enumerate(times) if time >= start.publish_time_ms), len(times)
            )
        if at == "message_id":
            wanted = start.message_id
            headers = self.headers()[wanted.entry_id :]
            is_batch = bool(headers) and not headers[0].is_plain
            whole = start.inclusive or wanted.batch_index >= 0 or is_batch
            return wanted.entry_id + (0 if whole else 1)
        return len(self.entries)


class FakeKafkaTopic:
    """Takes batches as a compacted Kafka topic does, and recognises duplicates."""

    def __init__(self) -> None:
        self.producers = Producers("t-0", expiration_ms=10**15)
        self.batches: list[bytes] = []
        self.batch_bytes_max = 1_000_000

    def take(self, entry: bytes) -> data_pb2.Receipt:
        header = read_header(entry)
        batch = entry[header.header_bytes :]
        receipt = data_pb2.Receipt(sequence_id=header.sequence_id)
        try:
            receipt.entry_id = self._append(batch)
        except KafkaError as error:
            reason, message, attributes = encode_error(error)
            refusal = data_pb2.Refusal(reason=reason, message=message, attributes=attributes)
            receipt.refusal.CopyFrom(refusal)
        return receipt

    def _append(self, batch: bytes) -> int:
        header = placed(read_batch_header(batch), self.producers.end_offset)
        if None in columns_of(batch).keys:
            raise KafkaError(KafkaErrorKind.INVALID_RECORD, "Without a key.")
        prepared = self.producers.prepare(header, None, Origin.CLIENT)
        if prepared.duplicate is not None:
            return prepared.duplicate.first_offset
        self.producers.commit(prepared, 0)
        self.batches.append(packed_header(header) + batch[BATCH_HEADER_BYTES:])
        return header.base_offset

    def load_anew(self) -> None:
        """Loads again: it knows the last batch of each producer alone, as after any clean
        restart.
        """
        self.producers.load(list(self.producers.snapshot()), self.producers.end_offset, now_ms=0)

    def records(self) -> list[KafkaRecord]:
        return [record for batch in self.batches for record in records_of(batch)]


def short_name(topic: str) -> str:
    """Full and short names are the same topic's."""
    return topic.removeprefix(PREFIX)

"""A connected producer: appends in order, refuses duplicates, sends receipts once durable.

Receipts arrive in the order of the entries (broker/topics/receipts.py). A duplicate's receipt
waits until everything appended before it is durable: the original may still be in flight.
"""

from __future__ import annotations

from typing import Protocol

from ledgerfold.broker.common.clock import Clock, ManualClock
from ledgerfold.broker.log.log import TopicLog
from ledgerfold.broker.topics.deduplication import Deduplication
from ledgerfold.broker.topics.receipts import NOWHERE, Receipt, ReceiptQueue
from ledgerfold.storage.entry import EntryHeader, check_entry
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1.records_pb2 import ProducerRecord


class PublishTopic(Protocol):
    """The part of a topic that a producer uses (broker/topics/topic.py)."""

    @property
    def log(self) -> TopicLog: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def deduplication(self) -> Deduplication: ...
    @property
    def entry_bytes_max(self) -> int: ...
    def count_in(self, header: EntryHeader) -> None: ...
    def detach_producer(self, producer: Producer) -> None: ...


class Producer(ReceiptQueue):
    """A producer that belongs to one stream."""

    def __init__(self, topic: PublishTopic, name: str, record: ProducerRecord) -> None:
        super().__init__(topic.log.state)
        self.topic = topic
        self.name = name
        self.record = record
        # On a manual clock the producer's own time has no meaning.
        self._emulated_time = topic.clock if isinstance(topic.clock, ManualClock) else None
        self._entry_bytes_max = topic.entry_bytes_max
        self._tail = topic.log.tail

    def append(self, entry: memoryview) -> None:
        """Appends one entry as received.

        Raises InvalidRequest, and the error that failed the log.
        """
        self.check()
        header = check_entry(entry, self._entry_bytes_max)
        topic, record = self.topic, self.record
        if header.sequence_id < 0:
            raise InvalidRequest(f"Sequence id {header.sequence_id} is negative; the minimum is 0.")
        if header.sequence_id <= record.last_sequence_id:
            # The original may still be in flight, from a closed connection.
            through = self._tail.last_appended
            receipt = Receipt(NOWHERE, header.sequence_id, header.size_bytes, through)
            self.add(receipt, is_new=False)
            return
        if self._emulated_time is not None:
            header = header._replace(publish_time_ms=self._emulated_time.now_ms())
        position = self._tail.append(header, (entry[header.header_bytes :],), record.number)
        topic.deduplication.appended(record, header.sequence_id)
        topic.count_in(header)
        self.add(Receipt(position, header.sequence_id, header.size_bytes, position))

    def detach(self) -> None:
        self.close()
        self.topic.detach_producer(self)

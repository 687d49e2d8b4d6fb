"""A connected producer: appends in order, refuses duplicates, sends receipts once durable.

Receipts arrive in the order of the entries (broker/topics/receipts.py). A duplicate's receipt
waits until everything appended before it is durable: the original may still be in flight.
"""

from __future__ import annotations

from collections.abc import Callable

from ledgerfold.broker.common.clock import ManualClock
from ledgerfold.broker.log.log import TopicLog
from ledgerfold.broker.topics.deduplication import Deduplication
from ledgerfold.broker.topics.loaded_topic import LoadedTopic
from ledgerfold.broker.topics.receipts import NOWHERE, Receipt, ReceiptQueue
from ledgerfold.storage.entry import check_entry
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError
from ledgerfold.v1.records_pb2 import ProducerRecord


class Producer(ReceiptQueue):
    """A producer that belongs to one stream. Created by Topic.attach_producer().

    `reuses_ids`: only entries of earlier streams are duplicates. Pulsar's C++ client uses an id
    twice in one stream if its first one broke before a receipt, and never sends a message twice.
    """

    def __init__(
        self,
        topic: LoadedTopic,
        log: TopicLog,
        deduplication: Deduplication,
        name: str,
        record: ProducerRecord,
        on_detached: Callable[[Producer], object],
        *,
        reuses_ids: bool = False,
    ) -> None:
        super().__init__(log.state, name)
        self.record = record
        self._topic, self._deduplication = topic, deduplication
        self._on_detached = on_detached
        self._stored_before = record.last_sequence_id if reuses_ids else None
        # On a manual clock the producer's own time has no meaning.
        self._emulated_time = topic.clock if isinstance(topic.clock, ManualClock) else None
        self._entry_bytes_max = topic.entry_bytes_max
        self._tail = log.tail

    def append(self, entry: memoryview) -> None:
        """Appends one entry as received.

        Raises InvalidRequest, and the error that failed the log.
        """
        self.check()
        header = check_entry(entry, self._entry_bytes_max)
        record = self.record
        if header.sequence_id < 0:
            raise InvalidRequest(f"Sequence id {header.sequence_id} is negative; the minimum is 0.")
        stored_before = self._stored_before
        if stored_before is None:
            stored_before = record.last_sequence_id
        if header.sequence_id <= stored_before:
            # The original may still be in flight, from a closed connection.
            through = self._tail.last_appended
            receipt = Receipt(NOWHERE, header.sequence_id, header.size_bytes, through)
            self.add(receipt, is_new=False)
            return
        if self._emulated_time is not None:
            header = header._replace(publish_time_ms=self._emulated_time.now_ms())
        position = self._tail.append(header, (entry[header.header_bytes :],), record.number)
        self._deduplication.appended(record, max(header.sequence_id, record.last_sequence_id))
        self._topic.count_in(header.message_count, header.size_bytes)
        self.add(Receipt(position, header.sequence_id, header.size_bytes, position))

    def refuse(self, sequence_id: int, size_bytes: int, refusal: LedgerfoldError) -> None:
        """Queues the refusal of an entry that was not appended: its receipt has the reason."""
        through = self._tail.last_appended
        self.add(Receipt(NOWHERE, sequence_id, size_bytes, through, refusal), is_new=False)

    def detach(self) -> None:
        self.close()
        self._on_detached(self)

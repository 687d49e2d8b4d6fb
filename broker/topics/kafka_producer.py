"""A connected producer of a Kafka topic: appends batches and queues their receipts.

Its name has no state: a duplicate is detected by the producer id and the sequence numbers in its
header, if any, and answered with the original offset (broker/kafka/producers/producers.py). An
error that Kafka would return in a response is returned in the receipt, and the stream continues.

On a manual clock (`serve --test-clock`) the producer's own clock is ignored, as on other topics:
records that have the publish time as timestamp get the broker's time. Those with an event time keep
it.
"""

from __future__ import annotations

from typing import Protocol

from ledgerfold.broker.common.clock import Clock, ManualClock
from ledgerfold.broker.kafka.config.config import LogConfig
from ledgerfold.broker.kafka.log.log import KafkaLog
from ledgerfold.broker.kafka.log.record_access import OpenedRecords
from ledgerfold.broker.kafka.partition import Appended
from ledgerfold.broker.topics.receipts import NOWHERE, Receipt, ReceiptQueue
from ledgerfold.storage.entry import Codec, EntryHeader, Position, checked_entry, crc32c
from ledgerfold.storage.errors import InvalidRequest, KafkaError
from ledgerfold.storage.kafka.batch import (
    BatchParts,
    check_parts,
    sealed,
)
from ledgerfold.storage.kafka.entries import batch_in
from ledgerfold.storage.kafka.records import batch_parts
from ledgerfold.storage.kafka.section import RecordColumns


class KafkaPublishTopic(Protocol):
    """The part of a topic that a producer uses (broker/topics/kafka_topic.py)."""

    @property
    def name(self) -> str: ...
    @property
    def log(self) -> KafkaLog: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def config(self) -> LogConfig: ...
    @property
    def entry_bytes_max(self) -> int: ...
    @property
    def producers(self) -> set[KafkaProducer]: ...
    def append(self, header: EntryHeader, batch: BatchParts) -> Appended: ...


class KafkaProducer(ReceiptQueue):
    """A producer of one stream."""

    def __init__(self, topic: KafkaPublishTopic, name: str) -> None:
        super().__init__(topic.log.state)
        self.topic = topic
        self.name = name
        self._entry_bytes_max = topic.entry_bytes_max
        self._manual_clock = topic.clock if isinstance(topic.clock, ManualClock) else None

    def append(self, entry: memoryview) -> None:
        """Appends an entry. Raises InvalidRequest, and the error with which the log failed."""
        self.check()
        topic = self.topic
        header, keys, values = checked_entry(entry, self._entry_bytes_max)
        if header.codec != Codec.KAFKA:
            raise InvalidRequest(
                f"{topic.name} is a Kafka topic: its entries are record batches (codec "
                f"{Codec.KAFKA.value}), this one has codec {header.codec}. A client of this "
                "version builds them automatically."
            )
        batch = batch_in(header, keys, values)
        try:
            if self._manual_clock is not None:
                check_parts(batch)
                opened = OpenedRecords(
                    batch.header, batch.section, topic.name, topic.config.max_message_bytes
                )
                now_ms = self._manual_clock.now_ms()
                header, batch = _dated(header, batch, opened.columns, now_ms)
            appended = topic.append(header, batch)
        except KafkaError as refusal:
            durable_at = topic.log.tail.last_appended
            receipt = Receipt(NOWHERE, header.sequence_id, header.size_bytes, durable_at, refusal)
            self.add(receipt, is_new=False)
            return
        place = Position(0, appended.first_offset)
        receipt = Receipt(place, header.sequence_id, header.size_bytes, appended.durable_at)
        self.add(receipt, is_new=not appended.is_duplicate)

    def detach(self) -> None:
        self.close()
        self.topic.producers.discard(self)


def _dated(
    entry: EntryHeader, batch: BatchParts, columns: RecordColumns, now_ms: int
) -> tuple[EntryHeader, BatchParts]:
    """Returns the entry and batch with the broker's time."""
    header, sent_ms = batch.header, entry.publish_time_ms
    times = [now_ms if time_ms == sent_ms else time_ms for time_ms in columns.timestamps_ms]
    if times != columns.timestamps_ms:
        built = batch_parts(
            columns.keys,
            columns.values,
            times,
            columns.headers,
            [offset - header.base_offset for offset in columns.offsets],
            base_offset=header.base_offset,
            compression=header.compression,
            timestamp_type=header.timestamp_type,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
        )
        section = built[1]
        batch = BatchParts.of(sealed(*built))
        entry = entry._replace(value_bytes=len(section), value_crc=crc32c(section))
    return entry._replace(publish_time_ms=now_ms), batch

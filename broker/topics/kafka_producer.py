"""A connected producer of a Kafka topic: appends batches and queues their receipts.

Its name has no state: a duplicate is detected by the producer id and the sequence numbers in its
header, if any, and answered with the original offset (broker/kafka/producers/producers.py). An
error that Kafka would return in a response is returned in the receipt, and the stream continues.

On a manual clock (`serve --test-clock`) the producer's own clock is ignored, as on other topics:
records that have the publish time as timestamp get the broker's time. Those with an event time keep
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ledgerfold.broker.kafka.config.config import LogConfig
from ledgerfold.broker.kafka.log.record_access import OpenedRecords
from ledgerfold.broker.kafka.log.validation import Appended
from ledgerfold.broker.kafka.partition import Partition
from ledgerfold.broker.topics.loaded_topic import LoadedTopic
from ledgerfold.broker.topics.receipts import NOWHERE, Receipt, ReceiptQueue
from ledgerfold.storage.entry import (
    Buffer,
    Codec,
    EntryHeader,
    Position,
    crc32c,
)
from ledgerfold.storage.entry_check import checked_entry
from ledgerfold.storage.errors import InvalidRequest, KafkaError
from ledgerfold.storage.kafka.batch import (
    BatchParts,
    check_parts,
    sealed,
)
from ledgerfold.storage.kafka.entries import batch_in
from ledgerfold.storage.kafka.records import batch_parts
from ledgerfold.storage.kafka.section import RecordColumns


class KafkaProducer(ReceiptQueue):
    """A producer of one stream. Created by KafkaTopic.attach_producer()."""

    def __init__(
        self,
        topic: LoadedTopic,
        partition: Partition,
        append: Callable[[EntryHeader, BatchParts], Appended],
        name: str,
        on_detached: Callable[[KafkaProducer], object],
    ) -> None:
        """Creates a producer. `append`: appends a batch to the topic."""
        super().__init__(topic, partition.log.state, name, on_detached)
        self._topic_name, self._partition, self._append = topic.name, partition, append

    @property
    def config(self) -> LogConfig:
        return self._partition.config

    def append_all(self, entries: Iterable[Buffer]) -> None:
        """Appends entries in order. Raises like append()."""
        for entry in entries:
            self.append(entry)

    def append(self, entry: Buffer) -> None:
        """Appends an entry. Raises InvalidRequest, and the error with which the log failed."""
        self.check()
        header, keys, values = checked_entry(entry, self._entry_bytes_max)
        if header.codec != Codec.KAFKA:
            raise InvalidRequest(
                f"{self._topic_name} is a Kafka topic: its entries are record batches (codec "
                f"{Codec.KAFKA.value}), this one has codec {header.codec}. A client of this "
                "version builds them automatically."
            )
        batch = batch_in(header, keys, values)
        try:
            now_ms = self.emulated_now_ms()
            if now_ms is not None:
                check_parts(batch)
                bytes_max = self.config.max_message_bytes
                opened = OpenedRecords(batch.header, batch.section, self._topic_name, bytes_max)
                header, batch = _dated(header, batch, opened.columns, now_ms)
            appended = self._append(header, batch)
        except KafkaError as refusal:
            durable_at = self._partition.log.tail.last_appended
            receipt = Receipt(NOWHERE, header.sequence_id, header.size_bytes, durable_at, refusal)
            self.add(receipt, is_new=False)
            return
        position = Position(0, appended.first_offset)
        receipt = Receipt(position, header.sequence_id, header.size_bytes, appended.durable_at)
        self.add(receipt, is_new=not appended.is_duplicate)


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

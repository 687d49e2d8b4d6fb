"""A loaded Kafka topic: a partition, and the streams on it.

It has no subscriptions, no compacted view and none of Pulsar's policies: it behaves as a partition
of Kafka's broker (docs/KAFKA.md). The id of the message at offset o is 0:o.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence

from ledgerfold.broker.common.clock import Timer
from ledgerfold.broker.kafka.config.config import LogConfig
from ledgerfold.broker.kafka.log.log import KafkaLog
from ledgerfold.broker.kafka.log.reads import StoredBatch
from ledgerfold.broker.kafka.log.validation import Appended, CopiedBatches
from ledgerfold.broker.kafka.partition import Partition
from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.broker.topics.kafka_description import ListPlaces, add_lists
from ledgerfold.broker.topics.kafka_producer import KafkaProducer
from ledgerfold.broker.topics.kafka_reader import KafkaReader, KafkaReaderOptions
from ledgerfold.broker.topics.loaded_topic import LoadedTopic, TopicContext
from ledgerfold.storage.entry import EntryHeader, read_header
from ledgerfold.storage.errors import (
    DiskFailure,
    InvalidRequest,
    KafkaError,
    KafkaErrorKind,
    LedgerfoldError,
    Moved,
    RecordsRefused,
    TopicBusy,
)
from ledgerfold.storage.kafka.batch import (
    BatchParts,
    check_counts,
    check_parts,
    read_batch_header,
)
from ledgerfold.storage.kafka.entries import entry_of
from ledgerfold.storage.kafka.records import ControlType, columns_of, end_marker
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.kafka_pb2 import (
    DescribeLogResponse,
    KafkaBatchInfo,
)
from ledgerfold.v1.records_pb2 import TopicRecord

_log = logging.getLogger(__name__)
IS_KAFKA = (
    "{} is a Kafka topic: it has no subscriptions, ledgers and policies of Pulsar, and Pulsar's "
    "clients do not reach it. `produce` and `read` publish and read, `topics set-config` changes "
    "settings, `cleaner run` cleans, `topics delete-records` and `truncate-log` delete records."
)
IS_NOT_KAFKA = "{} is no Kafka topic: those are created with `topics create --cleanup-policy`."
# The bytes that a search by time reads at once.
_SEARCH_BYTES = 1024 * 1024
# The largest page of batches of more than one batch.
PAGE_BYTES = 4 * 1024 * 1024
# The interval of checks for expired producers, as in Kafka.
PRODUCERS_CHECKED_MS = 600_000


class KafkaTopic(LoadedTopic):
    """A loaded topic. Created by Broker.any_topic(); unloaded by Broker.unload_topic()."""

    def __init__(self, broker: TopicContext, record: TopicRecord) -> None:
        super().__init__(broker, record)
        self.partition = Partition(
            self.stored,
            broker.store,
            broker.executor,
            broker.clock.now_ms,
            lambda: broker.kafka_config,
            lambda: broker.cleaner.defects(self.name).resends_by_record_time,
        )
        # The timer of the next expiry check.
        self._expiry: Timer | None = None
        self._expiry_due_ms = 0
        self.producers = set[KafkaProducer]()
        self.readers = set[KafkaReader]()

    @property
    def log(self) -> KafkaLog:
        return self.partition.log

    @property
    def config(self) -> LogConfig:
        return self.partition.config

    @property
    def failure(self) -> LedgerfoldError | None:
        """The error after which nothing can be appended."""
        return self.log.state.failure

    # -- loading and unloading -------------------------------------------------------------

    async def load(self) -> None:
        """Loads the topic. Raises KafkaError for settings that Kafka refuses, StorageError."""
        await self.partition.load()
        await self._skip_known_producer_ids()
        self._expire_later(PRODUCERS_CHECKED_MS)

    async def _skip_known_producer_ids(self) -> None:
        """Keeps the broker from assigning an id that a producer of the log has.

        Another directory may have assigned it: an archive brings the log without its store record.
        """
        ids = self.broker.metadata.producer_ids
        known = [each for each in self.partition.producers.entries if ids.may_allocate(each)]
        if known and self.failure is None:
            try:
                await self.broker.in_thread(lambda: ids.skip(max(known)))
            except DiskFailure as error:
                _log.error("%s can only be read: %s", self.name, error)
                self.log.state.fail(error)

    def _expire_later(self, delay_ms: int) -> None:
        due_ms = self._expiry_due_ms = self.clock.now_ms() + delay_ms

        def expire() -> None:
            now_ms = self.clock.now_ms()
            self.partition.producers.expire(now_ms)
            # At multiples of the interval, even if the clock jumps.
            self._expire_later(PRODUCERS_CHECKED_MS - (now_ms - due_ms) % PRODUCERS_CHECKED_MS)

        self._expiry = self.clock.call_later(delay_ms / 1000, expire)

    def take_over(self, before: KafkaTopic) -> None:
        """Takes over the state that an unload forgets from the topic before its truncation."""
        self.partition.hold_high_watermark(before.partition.held_high_watermark)
        assert self._expiry is not None
        self._expiry.cancel()
        self._expire_later(max(0, before._expiry_due_ms - self.clock.now_ms()))

    async def unload(self) -> None:
        """Ends all streams with Moved and closes the log. Acknowledged appends are durable.

        Raises the first StorageError, once everything has ended.
        """
        if self._expiry is not None:
            self._expiry.cancel()
        try:
            for producer in tuple(self.producers):
                producer.end(Moved(f"{self.name} was unloaded; connect again."))
            await self.partition.close()
        finally:
            await self.stored.close()

    def check_idle(self) -> None:
        """Raises TopicBusy if there are producers or readers."""
        if self.producers or self.readers:
            raise TopicBusy(self.name, len(self.producers), len(self.readers))

    # -- appending -------------------------------------------------------------------------

    def attach_producer(self, name: str) -> KafkaProducer:
        """Connects a producer. Raises the error with which the log failed."""
        self.log.tail.check_open()
        producer = KafkaProducer(self, self.partition, self.append, name, self.producers.discard)
        self.producers.add(producer)
        return producer

    def append(
        self,
        header: EntryHeader,
        batch: BatchParts,
        origin: Origin = Origin.CLIENT,
        copied: CopiedBatches | None = None,
    ) -> Appended:
        """Appends a batch, as Partition.append(), and counts it."""
        try:
            appended = self.partition.append(header, batch, origin, copied)
        except RecordsRefused as refusal:
            self.broker.cleaner.gauges.keyless_records += refusal.keyless
            raise
        if not appended.is_duplicate:
            self.count_in(header.message_count, batch.size_bytes)
        return appended

    async def append_batches(
        self, batches: bytes, origin: Origin, copied: CopiedBatches | None = None
    ) -> list[Appended]:
        """Appends concatenated batches; returns when they are durable.

        The first refused batch ends it: those before it are appended, and durable when it raises.
        Raises KafkaError, and the error with which the log failed.
        """
        appended = list[Appended]()
        try:
            for batch in split_batches(batches):
                if appended:
                    # One batch is bounded work, many are not.
                    await asyncio.sleep(0)
                entry = entry_of(batch, sequence_id=0, publish_time_ms=self.clock.now_ms())
                header, parts = read_header(entry), BatchParts.of(batch)
                if origin is Origin.REPLICATION:
                    await self._prepare_to_follow(parts)
                appended.append(self.append(header, parts, origin, copied))
        except KafkaError:
            await self.durable(appended)
            raise
        await self.durable(appended)
        return appended

    async def _prepare_to_follow(self, batch: BatchParts) -> None:
        """Keeps this broker from assigning the producer id of another one's batch, or a lower
        leader epoch after it.

        Raises KafkaError if the batch is damaged, Moved, DiskFailure.
        """
        producer_id, epoch = batch.header.producer_id, batch.header.leader_epoch
        ids = self.broker.metadata.producer_ids
        is_new_id, is_new_epoch = ids.may_allocate(producer_id), epoch > self.partition.leader_epoch
        if is_new_id or is_new_epoch:
            check_parts(batch)
        if is_new_id:
            await self.broker.in_thread(lambda: ids.skip(producer_id))
        if is_new_epoch:
            await self.partition.follow_epoch(epoch)

    async def end_transaction(
        self, producer_id: int, producer_epoch: int, *, commit: bool, timestamp_ms: int
    ) -> Appended:
        """Appends a coordinator's marker. Raises as append_batches()."""
        marker = end_marker(
            ControlType.COMMIT if commit else ControlType.ABORT,
            base_offset=0,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=timestamp_ms,
        )
        (appended,) = await self.append_batches(marker, Origin.COORDINATOR)
        return appended

    async def durable(self, appended: Sequence[Appended]) -> None:
        """Waits until all are durable. Raises the error with which the log failed."""
        state = self.log.state
        for each in appended:
            while each.durable_at is not None and (
                state.last_durable is None or state.last_durable < each.durable_at
            ):
                if state.failure is not None:
                    raise state.failure
                await state.changed()

    async def roll(self) -> int:
        """Rolls the active segment, unless it is empty. Returns the active one's base offset."""
        segment = self.log.roll()
        await self.log.settle()
        return segment.base_offset

    # -- reading ---------------------------------------------------------------------------

    async def open_reader(self, start: StartPosition, options: KafkaReaderOptions) -> KafkaReader:
        """Opens a reader, connected until it is detached. Raises OffsetOutOfRange, and what the log
        raises.
        """
        reader = KafkaReader(self, self.partition, self.resolve_start, options, self.readers)
        try:
            await reader.move(start)
        except BaseException:
            reader.detach()
            raise
        self.readers.add(reader)
        self.log.state.on_closed.add(reader.wake)
        self.partition.on_visible.add(reader.wake)
        return reader

    async def resolve_start(self, start: StartPosition, read_committed: bool) -> int:
        """Returns the offset of a start position. Raises KafkaError (OFFSET_OUT_OF_RANGE),
        InvalidRequest.
        """
        end = self.partition.visible_end(read_committed)
        match start.WhichOneof("at"):
            case "message_id":
                wanted = start.message_id.entry_id + (0 if start.inclusive else 1)
                if start.message_id.ledger_id < 0:
                    return self.partition.log_start_offset
                if start.message_id.ledger_id > 0:
                    raise InvalidRequest("The message at offset N of a Kafka topic has the id 0:N.")
                self.partition.check_in_range(wanted)
                return wanted
            case "publish_time_ms":
                found = await self.offset_at_time(start.publish_time_ms, read_committed)
                return end if found is None else found
            case "earliest":
                return self.partition.log_start_offset
        if start.inclusive:
            return max(self.last_offset, self.partition.log_start_offset)
        return end

    async def offset_at_time(self, timestamp_ms: int, read_committed: bool) -> int | None:
        """Returns the first offset with that timestamp or a later one (Kafka: offsetsForTimes), or
        None.
        """
        end = self.partition.visible_end(read_committed)
        for segment in list(self.log.segments):
            if segment.facts.max_timestamp_ms < timestamp_ms:
                continue
            offset = max(segment.base_offset, self.partition.log_start_offset)
            async for batch in self._batches(offset, end):
                if batch.header.is_control or batch.header.max_timestamp_ms < timestamp_ms:
                    continue
                columns = columns_of(batch.entry.data[batch.entry.header.header_bytes :])
                for found, time_ms in zip(columns.offsets, columns.timestamps_ms, strict=True):
                    if time_ms >= timestamp_ms and found >= offset:
                        return found
        return None

    @property
    def last_offset(self) -> int:
        """The last offset below the high watermark; -1: nothing can be read."""
        end = self.partition.high_watermark
        return end - 1 if end > self.partition.log_start_offset else -1

    async def _batches(self, offset: int, end: int) -> AsyncIterator[StoredBatch]:
        place = None
        while True:
            read = await self.log.reads.read(
                offset, end=end, bytes_max=_SEARCH_BYTES, location=place
            )
            if not read.batches:
                return
            offset, place = read.next_offset, read.location
            for batch in read.batches:
                yield batch

    # -- description -----------------------------------------------------------------------

    async def describe(
        self,
        *,
        batches: bool,
        batches_from: int = 0,
        bytes_max: int = PAGE_BYTES,
        has_lists: bool = True,
        lists_from: str = "",
        lists_max: int = 0,
    ) -> DescribeLogResponse:
        """Describes the log. `batches`: includes a page of stored batches.

        The page has batches that end at or after `batches_from`, of at most `bytes_max` or a single
        one; `more_from` is where the next page begins. `has_lists`: segments, producers and aborted
        transactions are included, from `lists_from` on, a page of `lists_max` of each or all (0).
        Raises InvalidRequest, LimitExceeded.
        """
        partition, log = self.partition, self.log
        description = DescribeLogResponse(
            log_start_offset=partition.log_start_offset,
            log_end_offset=log.end_offset,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
        )
        if has_lists:
            add_lists(description, partition, ListPlaces.parse(lists_from), lists_max)
        if self.record.kafka.HasField("first_dirty_offset"):
            description.checkpoint = self.record.kafka.first_dirty_offset
        if batches:
            await self._add_page(description, batches_from, min(bytes_max, PAGE_BYTES))
        return description

    async def _add_page(
        self, description: DescribeLogResponse, batches_from: int, bytes_max: int
    ) -> None:
        size_bytes = 0
        async for batch in self._batches(batches_from, self.log.durable_end_offset):
            size_bytes += batch.header.size_bytes
            if description.batches and size_bytes > bytes_max:
                description.more_from = batch.header.base_offset
                return
            body = batch.entry.data[batch.entry.header.header_bytes :]
            description.batches.append(KafkaBatchInfo(batch=body))


def split_batches(data: bytes) -> Iterator[bytes]:
    """Splits concatenated batches. Raises KafkaError if one is cut short or has negative counts."""
    at = 0
    while at < len(data):
        header = read_batch_header(data, at)
        check_counts(header)
        size_bytes = header.size_bytes
        if not 0 < size_bytes <= len(data) - at:
            raise KafkaError(
                KafkaErrorKind.CORRUPT_MESSAGE,
                f"The record batch's header gives {size_bytes} bytes; it has {len(data) - at}.",
            )
        yield data[at : at + size_bytes]
        at += size_bytes

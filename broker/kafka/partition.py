"""A Kafka partition: its log, settings and producers, and the range that may be read.

An append takes these steps, all on the event loop without a pause:

1. The batch is validated and gets its offsets and time (broker/kafka/log/validation.py).
2. The active segment rolls before it, if due (ledgerfold/kafka/rolling.py).
3. Its producer's state is checked (broker/kafka/producers/producers.py).
4. It is queued, and its producer's state and the transaction index are updated.

In a single broker, durable data are readable: the high watermark follows the last durable batch,
unless it is held back to emulate lagging followers. Reads see data below it; reads of committed
records see data below the last stable offset.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from random import getrandbits

from ledgerfold.broker.kafka.config.config import BrokerConfig, LogConfig
from ledgerfold.broker.kafka.config.settings import INT_MAX
from ledgerfold.broker.kafka.log.aborted import committed
from ledgerfold.broker.kafka.log.checkpoint_file import topic_partition
from ledgerfold.broker.kafka.log.loading import FoundBatch
from ledgerfold.broker.kafka.log.log import KafkaLog
from ledgerfold.broker.kafka.log.reads import StoredBatch
from ledgerfold.broker.kafka.log.segments import LiveSegment
from ledgerfold.broker.kafka.log.validation import (
    Appended,
    AppendRules,
    CopiedBatches,
    ValidatedBatch,
)
from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.broker.kafka.producers.producer_snapshots import replay_start, take_snapshot
from ledgerfold.broker.kafka.producers.producers import Producers
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.kafka.rolling import Growth
from ledgerfold.storage.entry import EntryHeader
from ledgerfold.storage.errors import KafkaError, KafkaErrorKind
from ledgerfold.storage.kafka.batch import BatchHeader, BatchParts
from ledgerfold.storage.kafka.records import read_end_marker
from ledgerfold.storage.kafka.transaction_index import AbortedTransaction
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.records_pb2 import TopicRecord


class Partition:
    """The partition of a loaded Kafka topic, used on the event loop.

    `broker_config`: returns the broker's present settings; `by_record_time`: as for Producers.
    """

    def __init__(
        self,
        stored: StoredTopic,
        store: LedgerStore,
        executor: Executor,
        clock_ms: Callable[[], int],
        broker_config: Callable[[], BrokerConfig],
        by_record_time: Callable[[], bool] = lambda: False,
    ) -> None:
        self._stored, self._clock_ms, self._broker_config = stored, clock_ms, broker_config
        self.name, self.label = stored.name, str(topic_partition(stored.name))
        self.config = self._config()
        self._rules = AppendRules(self.label, self.config)
        expiration_ms = broker_config().number("producer.id.expiration.ms")
        self.producers = Producers(self.label, expiration_ms, by_record_time)
        remember = functools.partial(take_snapshot, self.producers)
        self.log = KafkaLog(stored, store, executor, clock_ms, self._grow, remember)
        # The offset where the replay of a load begins: earlier batches are known from a snapshot.
        self._replayed_from = 0
        # The log was truncated: aborted transactions come from its record, not from the replay.
        self._was_truncated = False
        # The limit of a high watermark that is held back.
        self.held_high_watermark: int | None = None
        # A log start, and the first offset of the batch at or after it: None if there is none, or
        # if it is not needed because no open transaction began before it.
        self._start_batch: tuple[int, int | None] = (self.log_start_offset, None)
        # Called when more can be read.
        self.on_visible: set[Callable[[], None]] = set()
        self.log.on_durable.add(self._notify_visible)

    def _config(self) -> LogConfig:
        return LogConfig.existing(self._stored.record.kafka.config, self._broker_config())

    def _grow(self, base_offset: int, created_ms: int) -> Growth:
        return Growth(
            base_offset,
            created_ms,
            index_interval_bytes=self.config.index_interval_bytes,
            index_bytes_max=self.config.segment_index_bytes,
            jitter_ms=self.config.roll_jitter_ms(getrandbits(31)),
        )

    # -- loading and closing ---------------------------------------------------------------

    async def load(self) -> None:
        """Loads the log and its producers. Raises DiskFailure, Corruption, MissingFile."""
        before = self._stored.record.kafka
        self._was_truncated = before.HasField("truncated_to")

        def begin(log_end: int, intact_end: int) -> int:
            known, self._replayed_from = replay_start(before, log_end, intact_end)
            self.producers.load(known, self._replayed_from, self._clock_ms())
            return self._replayed_from

        await self.log.open(begin, self._on_batch)
        if self.log.ends_with_loss:
            aborted = self.producers.abort_open_transactions(self.log.end_offset)
            self.log.segments.last_ended.aborted.extend(each.record() for each in aborted)
        if self.log.end_offset <= self.log_start_offset:
            # No batch is left that could restore them.
            self.producers.load((), self.log.end_offset, self._clock_ms())
        self.producers.end_offset = self.log.end_offset
        self.log.producers_at_load = take_snapshot(self.producers, self.log.end_offset)
        if not self._was_truncated:
            self.producers.keep_last_batches()
            self.producers.expire(self._clock_ms())
        await self._find_unstable()
        self.producers.pass_high_watermark(self.high_watermark)

    async def close(self) -> None:
        """Ends all reads and makes appends durable. Raises DiskFailure."""
        await self.log.close()

    def _on_batch(self, batch: FoundBatch) -> None:
        if batch.header.last_offset < self._replayed_from:
            return
        marker = read_end_marker(batch.batch()) if batch.header.is_control else None
        first = batch.header.base_offset
        aborted = self.producers.abort_open_transactions(first) if batch.is_behind_loss else ()
        aborted += self.producers.replay(batch.header, marker, batch.append_time_ms)
        if batch.segment.growth is not None and not self._was_truncated:
            batch.segment.aborted.extend(each.record() for each in aborted)

    def _see_start(self, header: BatchHeader) -> None:
        """Updates the batch at the log start, in append order."""
        start, offset = self._start_batch
        if offset is None and header.last_offset >= start:
            self._start_batch = start, header.base_offset

    # -- settings --------------------------------------------------------------------------

    async def change_config(self, changes: Mapping[str, str | None]) -> None:
        """Changes the topic's own settings; None unsets one. All or none. Raises KafkaError."""

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            values = LogConfig.changed(record.kafka.config, changes, self._broker_config())
            record.kafka.config.clear()
            record.kafka.config.update(values)

        await self._stored.change(edit, self.renew_config)

    def renew_config(self) -> None:
        """Applies changed settings of the topic or the broker."""
        self.config = self._config()
        self._rules = AppendRules(self.label, self.config)
        self.producers.expiration_ms = self._broker_config().number("producer.id.expiration.ms")

    # -- appending -------------------------------------------------------------------------

    def append(
        self,
        entry: EntryHeader,
        batch: BatchParts,
        origin: Origin = Origin.CLIENT,
        copied: CopiedBatches | None = None,
    ) -> Appended:
        """Appends one batch. Raises KafkaError, and the error with which the log failed.

        `copied`: for a leader's batches only.
        """
        self.log.tail.check_open()
        now_ms = self._clock_ms()
        if copied is not None and copied.append_time_ms is not None:
            now_ms = copied.append_time_ms
        taken = self._take(batch, origin, now_ms, fits_segment=copied is None)
        header = taken.header
        marker = read_end_marker(taken.header_bytes + taken.section) if header.is_control else None
        # NOTE: as in Kafka, a batch that is refused now, or a duplicate, may have rolled the
        # segment.
        if copied is None:
            self._roll_before(header, now_ms)
        else:
            self._check_span(header)
        prepared = self.producers.prepare(header, marker, origin)
        if prepared.duplicate is not None:
            sent, durable_at = prepared.duplicate, self.log.tail.last_appended
            return Appended(sent.first_offset, sent.last_offset, durable_at, is_duplicate=True)
        position = self.log.append(entry, taken, now_ms)
        self._see_start(header)
        aborted = self.producers.commit(prepared, now_ms)
        if aborted:
            self.log.segments.active.aborted.extend(each.record() for each in aborted)
        return Appended(header.base_offset, header.last_offset, position, taken.append_time_ms)

    def _take(
        self, batch: BatchParts, origin: Origin, now_ms: int, *, fits_segment: bool
    ) -> ValidatedBatch:
        rules, end = self._rules, self.log.end_offset
        if origin is Origin.REPLICATION:
            return rules.follow(
                batch, log_end=end, log_start=self.log_start_offset, fits_segment=fits_segment
            )
        epoch = self.leader_epoch
        return rules.lead(batch, origin, offset=end, now_ms=now_ms, leader_epoch=epoch)

    @property
    def leader_epoch(self) -> int:
        """The epoch of appends: the largest one of another log's batches, or 0."""
        return self._stored.record.kafka.leader_epoch

    async def follow_epoch(self, epoch: int) -> None:
        """Makes later appends continue at a leader's epoch: epochs never fall in a log.

        Raises Moved, DiskFailure.
        """

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            record.kafka.leader_epoch = max(record.kafka.leader_epoch, epoch)

        await self._stored.change(edit)

    def _check_span(self, header: BatchHeader) -> None:
        base = self.log.segments.active.base_offset
        if header.last_offset - base > INT_MAX:
            raise KafkaError(
                KafkaErrorKind.INVALID_REQUEST,
                f"A batch up to offset {header.last_offset} does not fit into the segment of "
                f"{self.label} that begins at {base}: its offsets end at "
                f"{base + INT_MAX}. Begin another segment first.",
            )

    def _roll_before(self, header: BatchHeader, now_ms: int) -> None:
        growth = self.log.segments.active.growth
        assert growth is not None
        if growth.must_end(
            size_bytes=header.size_bytes,
            max_timestamp_ms=header.max_timestamp_ms,
            last_offset=header.last_offset,
            segment_bytes=self.config.segment_bytes,
            roll_ms=self.config.roll_ms,
            now_ms=now_ms,
        ):
            self.log.roll(header.base_offset)

    # -- what may be read ------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        return self._stored.record.kafka.log_start_offset

    @property
    def high_watermark(self) -> int:
        durable = self.log.durable_end_offset
        limit = self.held_high_watermark
        return durable if limit is None else min(limit, durable)

    @property
    def last_stable_offset(self) -> int:
        start, (known_for, offset) = self.log_start_offset, self._start_batch
        # NOTE: until the batch has been found, nothing after the log start is stable.
        start_batch = offset if known_for == start else start
        return self.producers.last_stable_offset(self.high_watermark, start, start_batch)

    def hold_high_watermark(self, offset: int | None) -> int:
        """Holds the high watermark at an offset, or releases it with None. Returns its present
        value.
        """
        self.held_high_watermark = offset
        self._notify_visible()
        return self.high_watermark

    def _notify_visible(self) -> None:
        self.producers.pass_high_watermark(self.high_watermark)
        for callback in tuple(self.on_visible):
            callback()

    def visible_end(self, read_committed: bool) -> int:
        """Returns the end of what a reader may see."""
        return self.last_stable_offset if read_committed else self.high_watermark

    def visible(
        self, batches: Sequence[StoredBatch], aborted_in: Sequence[LiveSegment] | None
    ) -> Sequence[StoredBatch]:
        """Returns the batches that a consumer delivers: without markers and empty batches.

        `aborted_in`: for read-committed, the segments before the read: a later cleaning drops
        lines.
        """
        data = [each for each in batches if each.header.record_count and not each.header.is_control]
        return data if aborted_in is None else committed(data, aborted_in)

    def check_in_range(self, offset: int) -> None:
        """Raises KafkaError (OFFSET_OUT_OF_RANGE), as a fetch at that offset would."""
        start, end = self.log_start_offset, self.log.end_offset
        if not start <= offset <= end:
            raise KafkaError(
                KafkaErrorKind.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {offset} for partition {self.label}, but we only "
                f"have log segments in the range {start} to {end}.",
            )

    # -- how far it is clean ---------------------------------------------------------------

    @property
    def checkpoint(self) -> int | None:
        """The offset where the next cleaning starts; None if none is stored."""
        log = self._stored.record.kafka
        return log.first_dirty_offset if log.HasField("first_dirty_offset") else None

    async def set_checkpoint(self, offset: int | None) -> None:
        """Stores or removes the checkpoint. Raises Moved, DiskFailure."""

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            if offset is None:
                record.kafka.ClearField("first_dirty_offset")
            else:
                record.kafka.first_dirty_offset = offset

        await self._stored.change(edit)

    # -- the log's start -------------------------------------------------------------------

    async def delete_records(self, offset: int) -> int:
        """Advances the log start, as set_log_start(), for an administrator.

        Raises KafkaError (POLICY_VIOLATION) if old segments are not deleted, too.
        """
        if not self.config.is_deleted:
            raise KafkaError(
                KafkaErrorKind.POLICY_VIOLATION,
                f"Records of partition {self.label} can not be deleted due to the configured "
                "policy",
            )
        return await self.set_log_start(offset)

    async def set_log_start(self, offset: int) -> int:
        """Advances the log start to an offset, or to the high watermark for -1. Returns its value.

        Raises KafkaError (OFFSET_OUT_OF_RANGE), DiskFailure, Moved.
        """
        log_start = self.high_watermark if offset == -1 else offset
        if log_start > self.high_watermark or log_start < 0:
            raise KafkaError(
                KafkaErrorKind.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {log_start} of partition {self.label} "
                f"since it is larger than the high watermark {self.high_watermark}",
            )

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            log = record.kafka
            log.log_start_offset = max(log.log_start_offset, log_start)

        before = self.log_start_offset
        await self._stored.change(edit)
        if self.log_start_offset > before:
            await self.begins_later()
        return self.log_start_offset

    async def begins_later(self) -> None:
        """Follows a move of the log start. Raises Moved, Corruption, MissingFile."""
        self.producers.start_at(self.log_start_offset)
        await self._find_start_batch()

    async def _find_start_batch(self) -> None:
        start, durable_end = self.log_start_offset, self.log.durable_end_offset
        batch = await self._batch_from(start)
        if batch is None and self.log.end_offset > durable_end:
            batch = start
        self._start_batch = start, batch

    async def _find_unstable(self) -> None:
        """Finds the first remaining batch of each transaction that a truncation reopened, at a
        load.
        """
        for first in self.producers.open_offsets:
            if first < self.log_start_offset:
                await self._find_start_batch()
            else:
                batch = await self._batch_from(first)
                self.producers.begins_at(first, self.log.end_offset if batch is None else batch)

    async def _batch_from(self, offset: int) -> int | None:
        """Returns the first offset of the first durable batch that ends at or after `offset`, or
        None.
        """
        result = await self.log.reads.read(offset, end=self.log.durable_end_offset, bytes_max=1)
        return result.batches[0].header.base_offset if result.batches else None

    def aborted(self) -> Iterator[AbortedTransaction]:
        """Yields the transaction index, in order."""
        for segment in self.log.segments:
            for each in segment.aborted:
                yield AbortedTransaction.of(each)

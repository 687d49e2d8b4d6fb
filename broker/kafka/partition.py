"""A Kafka partition: its log, its settings, its producers, and what may be read of it.

An append goes through these steps, all of them on the event loop and without a pause:

1. What the batch may be (broker/kafka/validation.py); it gets its offsets and its time.
2. Whether the active segment ends before it (ledgerfold/kafka/rolling.py).
3. Whether its producer may append it now, or has done so before (broker/kafka/producers.py).
4. It is queued, and its producer's state and the transaction index know of it.

What is durable is what a single broker has: so the high watermark is behind the last durable batch,
unless it is held back to see what followers that lag would do. Reads see what lies below it, reads
of committed records what lies below the last stable offset.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from random import getrandbits
from typing import NamedTuple

from ledgerfold.broker.kafka.aborted import committed, record_of
from ledgerfold.broker.kafka.checkpoint_file import topic_partition
from ledgerfold.broker.kafka.config import BrokerConfig, LogConfig
from ledgerfold.broker.kafka.loading import FoundBatch
from ledgerfold.broker.kafka.log import KafkaLog
from ledgerfold.broker.kafka.producer import Marker, Origin, read_marker
from ledgerfold.broker.kafka.producers import AbortedTransaction, Producers
from ledgerfold.broker.kafka.reads import StoredBatch
from ledgerfold.broker.kafka.remembered import beginning, remembered
from ledgerfold.broker.kafka.segments import LiveSegment
from ledgerfold.broker.kafka.settings import INT_MAX
from ledgerfold.broker.kafka.validation import AppendRules, Taken
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.kafka.rolling import Growth
from ledgerfold.storage.entry import EntryHeader, Position
from ledgerfold.storage.errors import KafkaError, KafkaErrorKind
from ledgerfold.storage.kafka.batch import BatchHeader, BatchParts
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.records_pb2 import TopicRecord


class Appended(NamedTuple):
    """What became of a batch. `durable_at`: when its receipt may go out; None: at once.

    `append_time_ms`: the time that all its records got, under LogAppendTime.
    """

    first_offset: int
    last_offset: int
    durable_at: Position | None
    append_time_ms: int | None = None
    is_duplicate: bool = False


class TakenOver(NamedTuple):
    """Of batches that a log has in which a copy of another is built, segment by segment.

    No segment ends before them, however full or old it is. `append_time_ms`: in that other log.
    """

    append_time_ms: int | None = None


class Partition:
    """One per loaded Kafka topic, used on the event loop.

    `broker_config`: the broker's settings, as they are now; `by_record_time`: as for Producers.
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
        remember = functools.partial(remembered, self.producers)
        self.log = KafkaLog(stored, store, executor, clock_ms, self._grow, remember)
        # At a load: batches before it are known.
        self._replayed_from = 0
        # And the record tells of all transactions that were aborted: a cleaning may have forgotten
        # some whose markers are there.
        self._was_truncated = False
        # As far as it is held back.
        self.held_high_watermark: int | None = None
        # A start of the log, and of the batch that it lies in, or of the first one behind it; None:
        # none is, or it was not looked for, because no transaction is open that began before it.
        self._start_batch: tuple[int, int | None] = (self.log_start_offset, None)
        # There is more to read.
        self.on_visible: set[Callable[[], None]] = set()
        self.log.on_durable.add(self._tell_visible)

    def _config(self) -> LogConfig:
        return LogConfig.kept(self._stored.record.kafka.config, self._broker_config())

    def _grow(self, base_offset: int, created_ms: int) -> Growth:
        return Growth(
            base_offset,
            created_ms,
            index_interval_bytes=self.config.index_interval_bytes,
            index_bytes_max=self.config.segment_index_bytes,
            jitter_ms=self.config.roll_jitter_ms(getrandbits(31)),
        )

    # -- its life --------------------------------------------------------------------------

    async def load(self) -> None:
        """Raises DiskFailure, Corruption, MissingFile."""
        before = self._stored.record.kafka
        self._was_truncated = before.HasField("truncated_to")

        def begin(log_end: int, is_whole: bool) -> int:
            known, self._replayed_from = beginning(before, log_end, is_whole=is_whole)
            self.producers.load(known, self._replayed_from, self._clock_ms())
            return self._replayed_from

        await self.log.open(begin, self._found)
        if self.log.ends_with_loss:
            aborted = self.producers.pass_loss(self.log.end_offset)
            self.log.segments.last_ended.aborted.extend(map(record_of, aborted))
        if self.log.end_offset <= self.log_start_offset:
            # Nothing is left that could tell of them.
            self.producers.load((), self.log.end_offset, self._clock_ms())
        self.producers.end_offset = self.log.end_offset
        self.log.known_at_load = remembered(self.producers, self.log.end_offset)
        if not self._was_truncated:
            self.producers.keep_last_batches()
            self.producers.expire(self._clock_ms())
        await self._find_unstable()
        self.producers.pass_high_watermark(self.high_watermark)

    async def close(self) -> None:
        """Ends all reads; what was appended is durable. Raises DiskFailure."""
        await self.log.close()

    def _found(self, found: FoundBatch) -> None:
        if found.header.last_offset < self._replayed_from:
            return
        marker = _marker_of(found.header, found.batch) if found.header.is_control else None
        aborted = self.producers.pass_loss(found.header.base_offset) if found.is_behind_loss else ()
        aborted += self.producers.replay(found.header, marker, found.append_time_ms)
        if found.segment.growth is not None and not self._was_truncated:
            found.segment.aborted.extend(map(record_of, aborted))

    def _see_start(self, header: BatchHeader) -> None:
        """In the order of the batches."""
        start, offset = self._start_batch
        if offset is None and header.last_offset >= start:
            self._start_batch = start, header.base_offset

    # -- settings --------------------------------------------------------------------------

    async def change_config(self, changes: Mapping[str, str | None]) -> None:
        """The topic's own settings; None takes one back. All or none. Raises KafkaError."""

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            values = LogConfig.changed(record.kafka.config, changes, self._broker_config())
            record.kafka.config.clear()
            record.kafka.config.update(values)

        await self._stored.change(edit, self.renew_config)

    def renew_config(self) -> None:
        """The settings may be others now: the topic's, or the broker's below them."""
        self.config = self._config()
        self._rules = AppendRules(self.label, self.config)
        self.producers.expiration_ms = self._broker_config().number("producer.id.expiration.ms")

    # -- appending -------------------------------------------------------------------------

    def append(
        self,
        entry: EntryHeader,
        batch: BatchParts,
        origin: Origin = Origin.CLIENT,
        taken_over: TakenOver | None = None,
    ) -> Appended:
        """One batch. Raises KafkaError: nothing was appended then; and what made the log fail.

        `taken_over`: of a leader's alone.
        """
        self.log.tail.check_open()
        now_ms = self._clock_ms()
        if taken_over is not None and taken_over.append_time_ms is not None:
            now_ms = taken_over.append_time_ms
        taken = self._take(batch, origin, now_ms, fits_segment=taken_over is None)
        header = taken.header
        marker = None
        if header.is_control:
            marker = _marker_of(header, lambda: taken.header_bytes + taken.section)
        # NOTE: as in Kafka, a batch that is refused now, or known, may have ended the segment.
        if taken_over is None:
            self._roll_before(header, now_ms)
        else:
            self._check_span(header)
        prepared = self.producers.prepare(header, marker, origin)
        if prepared.duplicate is not None:
            sent, upto = prepared.duplicate, self.log.tail.last_appended
            return Appended(sent.first_offset, sent.last_offset, upto, is_duplicate=True)
        position = self.log.append(entry, taken, now_ms)
        self._see_start(header)
        aborted = self.producers.commit(prepared, now_ms)
        if aborted:
            self.log.segments.active.aborted.extend(map(record_of, aborted))
        return Appended(header.base_offset, header.last_offset, position, taken.append_time_ms)

    def _take(self, batch: BatchParts, origin: Origin, now_ms: int, *, fits_segment: bool) -> Taken:
        rules, end = self._rules, self.log.end_offset
        if origin is Origin.REPLICATION:
            return rules.follow(
                batch, log_end=end, log_start=self.log_start_offset, fits_segment=fits_segment
            )
        return rules.lead(batch, origin, offset=end, now_ms=now_ms)

    def _check_span(self, header: BatchHeader) -> None:
        base = self.log.segments.active.base_offset
        if header.last_offset - base > INT_MAX:
            raise KafkaError(
                KafkaErrorKind.INVALID_REQUEST,
                f"A batch up to offset {header.last_offset} does not fit into the segment of "
                f"{self.label} that begins at {base}: that ends {INT_MAX} behind it. Begin another "
                "segment first.",
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
        held = self.held_high_watermark
        return durable if held is None else min(held, durable)

    @property
    def last_stable_offset(self) -> int:
        start, (known_for, offset) = self.log_start_offset, self._start_batch
        # NOTE: where its batch is still looked for, nothing behind the log's start is stable.
        start_batch = offset if known_for == start else start
        return self.producers.last_stable_offset(self.high_watermark, start, start_batch)

    def hold_high_watermark(self, offset: int | None) -> int:
        """At that offset, until it is let go of with None. Where it is now."""
        self.held_high_watermark = offset
        self._tell_visible()
        return self.high_watermark

    def _tell_visible(self) -> None:
        self.producers.pass_high_watermark(self.high_watermark)
        for callback in tuple(self.on_visible):
            callback()

    def visible_end(self, read_committed: bool) -> int:
        """Behind what such a reader may see."""
        return self.last_stable_offset if read_committed else self.high_watermark

    def visible(
        self, batches: Sequence[StoredBatch], aborted_in: Sequence[LiveSegment] | None
    ) -> Sequence[StoredBatch]:
        """Those of them that a consumer hands on: markers and empty batches are not.

        `aborted_in`: for a reader of committed records, the segments that there were from the first
        offset on when the batches were asked for. A cleaning that replaced them since has
        forgotten what it took out.
        """
        data = [each for each in batches if each.header.record_count and not each.header.is_control]
        return data if aborted_in is None else committed(data, aborted_in)

    def check_in_range(self, offset: int) -> None:
        """Raises KafkaError (OFFSET_OUT_OF_RANGE), as a fetch from there would."""
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
        """Where the next cleaning starts; None: none is stored."""
        log = self._stored.record.kafka
        return log.first_dirty_offset if log.HasField("first_dirty_offset") else None

    async def set_checkpoint(self, offset: int | None) -> None:
        """Raises Moved, DiskFailure."""

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            if offset is None:
                record.kafka.ClearField("first_dirty_offset")
            else:
                record.kafka.first_dirty_offset = offset

        await self._stored.change(edit)

    # -- the log's start -------------------------------------------------------------------

    async def set_log_start(self, offset: int) -> int:
        """Nothing below it is read any more; -1: the high watermark. Never back. Where it is.

        Raises KafkaError (OFFSET_OUT_OF_RANGE), DiskFailure, Moved.
        """
        wanted = self.high_watermark if offset == -1 else offset
        if wanted > self.high_watermark or wanted < 0:
            raise KafkaError(
                KafkaErrorKind.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {wanted} of partition {self.label} "
                f"since it is larger than the high watermark {self.high_watermark}",
            )

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            log = record.kafka
            log.log_start_offset = max(log.log_start_offset, wanted)

        before = self.log_start_offset
        await self._stored.change(edit)
        if self.log_start_offset > before:
            await self.begins_later()
        return self.log_start_offset

    async def begins_later(self) -> None:
        """The log's start has moved. Raises Moved, Corruption, MissingFile."""
        self.producers.start_at(self.log_start_offset)
        await self._find_start_batch()

    async def _find_start_batch(self) -> None:
        start, looked_upto = self.log_start_offset, self.log.durable_end_offset
        found = await self._batch_from(start)
        if found is None and self.log.end_offset > looked_upto:
            found = start
        self._start_batch = start, found

    async def _find_unstable(self) -> None:
        """At a load. Of a transaction that a truncation has opened again a cleaning may have taken
        what came first: nothing is unstable before what is left.
        """
        for first in self.producers.open_offsets:
            if first < self.log_start_offset:
                await self._find_start_batch()
            else:
                found = await self._batch_from(first)
                self.producers.begins_at(first, self.log.end_offset if found is None else found)

    async def _batch_from(self, offset: int) -> int | None:
        """Where the first durable batch begins that ends at or behind it; None: there is none."""
        found = await self.log.reads.read(offset, upto=self.log.durable_end_offset, bytes_max=1)
        return found.batches[0].header.base_offset if found.batches else None

    def aborted(self) -> Iterator[AbortedTransaction]:
        """The transaction index, in order."""
        for segment in self.log.segments:
            for each in segment.aborted:
                yield AbortedTransaction(
                    each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset
                )


def _marker_of(header: BatchHeader, batch: Callable[[], bytes]) -> Marker | None:
    """None: a cleaning left the header alone, or it is no transaction's marker."""
    if not header.record_count:
        return None
    return read_marker(batch())

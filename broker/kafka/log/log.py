"""The log of a Kafka partition: batches by offset, on the broker's ledgers.

    segment_list.py   which ledgers make up which segment
    loading.py        how a segment is loaded
    segments.py       where an offset is
    reads.py          reads
    broker/log        writing to disk (tail, group_commit, new_ledgers)

Offsets are assigned as batches are appended, and are reused only after a truncation
(truncation.py). A load finds the log's end after the last durable batch or, if there is no batch,
at the base offset of the active segment. Segments roll as in Kafka
(ledgerfold/kafka/rolling.py). A ledger may end earlier; its
segment then continues in the next ledger.

Each change of the segment list is one synced write: a roll, the replacement of cleaned segments, a
deletion by retention.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import NamedTuple, TypeVar

from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.kafka.log.loading import FoundBatch, SegmentLoader
from ledgerfold.broker.kafka.log.pending_segments import (
    PendingSegments,
    record_close,
    record_open,
    record_repaired_figures,
)
from ledgerfold.broker.kafka.log.reads import KafkaReads
from ledgerfold.broker.kafka.log.segment_list import check_order, intact_end, recovered, relist
from ledgerfold.broker.kafka.log.segments import (
    LiveSegment,
    Part,
    Segments,
    cleaned_segment,
)
from ledgerfold.broker.kafka.log.validation import ValidatedBatch
from ledgerfold.broker.kafka.producers.producer_snapshots import carry_over, forget_snapshots
from ledgerfold.broker.log.files import LogFiles
from ledgerfold.broker.log.group_commit import GroupCommit
from ledgerfold.broker.log.new_ledgers import NewLedgers
from ledgerfold.broker.log.raw_ledgers import RawLedgers
from ledgerfold.broker.log.state import LogState
from ledgerfold.broker.log.stored_topic import Edit, StoredTopic
from ledgerfold.broker.log.tail import LogTail
from ledgerfold.broker.log.writers import Writers
from ledgerfold.kafka.rolling import Growth
from ledgerfold.storage.crash_points import reach
from ledgerfold.storage.entry import EntryHeader, Position, crc32c
from ledgerfold.storage.errors import CompactionFenced, DiskFailure
from ledgerfold.storage.kafka.batch import (
    BATCH_HEADER_BYTES,
)
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.storage.records import put_segments
from ledgerfold.v1.records_pb2 import (
    KafkaProducers,
    KafkaSegment,
    LedgerRecord,
    TopicRecord,
)

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
# The batches name their producers.
_NO_PRODUCER = 0
# The index of key_bytes in an entry's header; key_crc follows.
_KEY_AT = EntryHeader._fields.index("key_bytes")


class _Appended(NamedTuple):
    position: Position
    next_offset: int


class KafkaLog:
    """The log of a loaded topic, used on the event loop only.

    `grow`: creates the size tracker of a segment from its base offset and creation time, by the
    topic's settings. `take_snapshot`: returns the producer state up to an offset, for the record.
    """

    def __init__(
        self,
        stored: StoredTopic,
        store: LedgerStore,
        executor: Executor,
        clock_ms: Callable[[], int],
        grow: Callable[[int, int], Growth],
        take_snapshot: Callable[[int], KafkaProducers],
    ) -> None:
        self._stored, self._store, self._clock_ms = stored, store, clock_ms
        self.grow, self._take_snapshot = grow, take_snapshot
        self.state = state = LogState(stored.name)
        self._files = files = LogFiles(store, executor, state)
        self._ledgers = RawLedgers(stored.record.ledger_ids, files.record)
        self._loading = SegmentLoader(
            store, self._ledgers, lambda base_offset: grow(base_offset, clock_ms())
        )
        self._pending = PendingSegments()
        # The base offset of the segment that a new ledger begins, if it begins one.
        self._begins_at: Callable[[int], int | None] = dict[int, int]().get
        writers = Writers()
        self._new = NewLedgers(stored, store, self._ledgers, writers, state, self._relist)
        self._commit = GroupCommit(writers, self._new, files, state)
        self.tail = LogTail(stored, writers, self._new, self._commit, state, clock_ms)
        self.segments = Segments()
        self._is_open = False
        # Raw segments that had ended when the log was loaded.
        self._ended = list[LiveSegment]()
        # All batches before it are there. If later ones are lost, later snapshots describe them.
        self._intact_end, self._has_lost = 0, False
        # The producer state at the load; set by the partition, which replays batches.
        self.producers_at_load = KafkaProducers()
        self.reads = KafkaReads(self.segments, self._ledgers, files, state)
        # The offsets after the last appended batch, and after the last durable one.
        self.end_offset = 0
        self.durable_end_offset = 0
        self._in_flight: deque[_Appended] = deque()
        # Called when `durable_end_offset` has risen, or the log has failed.
        self.on_durable: set[Callable[[], None]] = set()
        state.on_durable.add(self._advance)

    # -- opening and closing ---------------------------------------------------------------

    async def open(
        self, begin: Callable[[int, int], int], on_batch: Callable[[FoundBatch], object]
    ) -> None:
        """Loads the segments and begins a ledger, on a thread.

        `begin` receives the log's end, and whether nothing before the active segment was lost; it
        returns the offset from which batches must be replayed. `on_batch` then receives each batch
        from there on, in order, and some earlier ones. If the disk takes no new ledger, the log has
        failed but can be read. Raises DiskFailure if the log has no ledger yet or cannot be read,
        Corruption, MissingFile.
        """
        await self._files.in_thread(lambda: self._open(begin, on_batch))

    def _open(
        self, begin: Callable[[int, int], int], on_batch: Callable[[FoundBatch], object]
    ) -> None:
        truncated_to = self._stored.record.kafka.truncated_to
        check_order(self._stored.record)
        try:
            self._begin()
        except DiskFailure as error:
            if not self._stored.record.ledger_ids:
                raise
            _log.error("%s can only be read: %s", self._stored.name, error)
            self.state.fail(error)
        self._begins_at = self._pending.base_of
        end, _ = recovered(self._stored.record.kafka, self._loading.end_of)
        end = max(end, truncated_to)
        since = begin(end, self._intact_end)
        for segment in self._stored.record.kafka.segments:
            if segment.is_cleaned or segment.ledger_ids:
                self.segments.append(self._loading.segment(segment, since, on_batch))
        loaded = self.segments.before(self.segments.active)
        self._ended = [each for each in loaded if not each.is_cleaned]
        self._is_open = True
        self.end_offset = self.durable_end_offset = end
        self.state.last_durable = self._ledgers.last_recorded()

    def _begin(self) -> None:
        """Begins a ledger. Ledgers that a failed writer left open end at their last durable entry
        before they are read.
        """
        self._store.recover_ledgers(self._stored.record.ledger_ids)
        log = self._stored.record.kafka
        self._loading.read_record(log)
        rolled_at = log.rolled.end_offset
        self._intact_end = intact_end(log, rolled_at, self._loading.end_of)
        self._has_lost = self._intact_end < rolled_at
        _, begins_at = recovered(log, self._loading.end_of)
        self._begins_at = lambda _: begins_at
        self._new.load()

    def _relist(self, record: TopicRecord) -> None:
        relist(record.kafka, record.ledger_ids, self._begins_at)
        if not self._is_open:
            record_open(record.kafka)
            if self._has_lost:
                # NOTE: other batches will get the offsets of those in later snapshots.
                forget_snapshots(record.kafka, self._intact_end)
        record_repaired_figures(record.kafka, self._ended)
        self._pending.record(record.kafka, record.ledger_ids)

    async def close(self) -> None:
        """Makes everything durable and records the state for the next load. Raises DiskFailure."""
        if not await self._commit.close():
            return
        active = self.segments.active
        assert active.growth is not None
        active.growth.end()
        producers = self._take_snapshot(self.end_offset)

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            record_repaired_figures(record.kafka, self._ended)
            record_close(record.kafka, active, self.producers_at_load, producers)

        await self._stored.change(edit)

    @property
    def ends_with_loss(self) -> bool:
        """True if a repair gave up entries at the log's end as it was opened."""
        return self._loading.is_behind_loss

    # -- appending -------------------------------------------------------------------------

    def append(self, entry: EntryHeader, batch: ValidatedBatch, append_time_ms: int) -> Position:
        """Appends a batch at the log's end, where its offsets continue; it is durable once the
        state says so.

        `entry`: the header of the entry as received. Raises the error with which the log failed.
        """
        header, section = batch.header, batch.section
        # Instead of _replace(), which takes twice as long: this runs for each entry.
        key = BATCH_HEADER_BYTES, crc32c(batch.header_bytes)
        changed = EntryHeader._make((*entry[:_KEY_AT], *key, *entry[_KEY_AT + 2 :]))
        if batch.is_rebuilt:
            changed = changed._replace(value_bytes=len(section), value_crc=crc32c(section))
        sections = batch.header_bytes, section
        position = self.tail.append(changed, sections, _NO_PRODUCER, append_time_ms)
        active = self.segments.active
        if not active.parts or active.parts[-1].ledger_id != position.ledger_id:
            active.parts.append(Part(position.ledger_id, header.base_offset))
        assert active.growth is not None
        active.growth.add(header, append_time_ms)
        self.end_offset = end = header.next_offset
        self._in_flight.append(_Appended(position, end))
        return position

    def roll(self, base_offset: int | None = None) -> LiveSegment:
        """Begins a new active segment and returns it, unless an empty one begins there already.

        `base_offset`: its base offset, by default the log's end and never below it. Raises the
        error with which the log failed.
        """
        self.tail.check_open()
        active = self.segments.active
        assert active.growth is not None
        base = self.end_offset if base_offset is None else base_offset
        if not active.growth.size_bytes and active.base_offset == base:
            active.growth = self.grow(base, self._clock_ms())
            return active
        active.growth.end()
        self.end_offset = base
        ledger_id = self.tail.begin_ledger()
        known = self._take_snapshot(base)
        growth = self.grow(base, self._clock_ms())
        self._pending.add(ledger_id, growth, active, known, self._stored.record.ledger_ids)
        self.segments.append(LiveSegment(base, [Part(ledger_id, base)], growth))
        return self.segments.active

    def _advance(self) -> None:
        durable = self.state.last_durable
        while self._in_flight and durable is not None:
            if self._in_flight[0].position > durable:
                break
            self.durable_end_offset = self._in_flight.popleft().next_offset
        for callback in tuple(self.on_durable):
            callback()

    # -- segments --------------------------------------------------------------------------

    async def settle(self) -> None:
        """Waits until all present segments but the active one are durable, closed and recorded.

        Raises the error with which the log failed.
        """
        first = self.segments.active.ledger_ids
        await self._new.settled()
        if first:
            await self._commit.flush_before(first[0])

    @runs_to_completion
    async def replace(
        self,
        sources: Sequence[LiveSegment],
        by: Sequence[tuple[KafkaSegment, LedgerRecord | None]],
        and_also: Edit,
    ) -> None:
        """Replaces the log's first segments by the output of a cleaning, in one write.

        They are settled. Raises CompactionFenced if they are no longer its first segments, Moved,
        DiskFailure: nothing has changed then.
        """
        count = len(sources)
        old = [each for segment in sources for each in segment.ledger_ids]
        live = [cleaned_segment(each) for each, _ in by]

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            listed = [list(each.ledger_ids) for each in record.kafka.segments[:count]]
            if listed != [each.ledger_ids for each in sources] or not count < len(self.segments):
                raise CompactionFenced(record.name)
            for _, ledger in by:
                if ledger is not None:
                    batch.put(ledger)
            carry_over(record.kafka.segments[:count], (each for each, _ in by))
            self._drop_from(record, batch, count)
            reach("clean.before-batch")
            put_segments(record.kafka, [*(each for each, _ in by), *record.kafka.segments])
            and_also(record, batch)

        def applied() -> None:
            reach("clean.after-batch")
            self._forget(count, live)
            gone = {each.base_offset for each in sources} - {each.base_offset for each in live}
            if self.producers_at_load.end_offset in gone:
                # A segment's snapshot is deleted with it, as in Kafka, and this one was the
                # snapshot of the load.
                self.producers_at_load = KafkaProducers()

        await self._stored.change(edit, applied)
        await self.delete_files(old)
        reach("clean.after-delete")

    @runs_to_completion
    async def drop_first(self, choose: Callable[[], int], and_also: Edit) -> int:
        """Deletes the log's first segments: as many as `choose` returns when the change is applied.

        The active segment stays, and so does a segment that ended since the call: it may not be
        closed yet. Returns their number. Raises Moved, DiskFailure.
        """
        dropped, active = list[LiveSegment](), self.segments.active
        await self.settle()

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            settled = self.segments.before(active)
            dropped.extend(settled[: choose()])
            self._drop_from(record, batch, len(dropped))
            if dropped:
                and_also(record, batch)

        await self._stored.change(edit, lambda: self._forget(len(dropped), ()))
        await self.delete_files([each for segment in dropped for each in segment.ledger_ids])
        return len(dropped)

    def _drop_from(self, record: TopicRecord, batch: MetadataBatch, count: int) -> None:
        for segment in record.kafka.segments[:count]:
            for ledger_id in segment.ledger_ids:
                self._store.mark_deleting(ledger_id, batch)
                if not segment.is_cleaned:
                    record.ledger_ids.remove(ledger_id)
        del record.kafka.segments[:count]

    def _forget(self, count: int, by: Sequence[LiveSegment]) -> None:
        gone = [
            each
            for segment in list(self.segments)[:count]
            if not segment.is_cleaned
            for each in segment.ledger_ids
        ]
        self.segments.replace_first(count, by)
        self._ledgers.drop_oldest(gone)

    async def in_thread(self, call: Callable[[], _T]) -> _T:
        """Runs disk work on a thread."""
        return await self._files.in_thread(call)

    async def delete_files(self, ledger_ids: Sequence[int]) -> None:
        """Deletes the files of unreferenced ledgers. The store retries those that it cannot remove
        now.
        """
        if not ledger_ids:
            return
        try:
            await self._files.in_thread(functools.partial(self._store.delete_all_files, ledger_ids))
        except DiskFailure as error:
            _log.warning("Files of ledgers of %s stay for now: %s", self._stored.name, error)

    def files_of(self, segment: LiveSegment) -> list[LedgerRecord]:
        """Returns the records of a segment's ledgers. Raises MissingFile, Moved."""
        return [self._files.record(each) for each in segment.ledger_ids]

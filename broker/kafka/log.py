"""A Kafka partition's log: batches, by their offsets, on the broker's ledgers.

    listing.py    which ledgers make up which segment
    rolling.py    how a segment grows, and when it ends
    loading.py    what a load learns of a segment
    segments.py   where an offset is
    reads.py      reads
    below it      how anything gets to the disk (broker/log: tail, group_commit, new_ledgers)

Offsets are given out as batches are appended, and never twice but by a truncation (truncation.py):
the log's end is found again behind what is durable, and where nothing is left, in the base offset
of the active segment. A segment ends when Kafka's would; a ledger may end before, and the segment
goes on in the next.

What changes the list of segments is one synced write: a roll, what a cleaning puts in the place of
segments, what retention deletes.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import NamedTuple, TypeVar

from ledgerfold.broker.ground.uncancelled import to_its_end
from ledgerfold.broker.kafka.begun import BegunSegments, tell_closed, tell_ended, tell_opened
from ledgerfold.broker.kafka.listing import holds_all_before, recovered, relist
from ledgerfold.broker.kafka.loading import FoundBatch, SegmentLoader
from ledgerfold.broker.kafka.reads import KafkaReads
from ledgerfold.broker.kafka.remembered import forget_snapshots, hand_on
from ledgerfold.broker.kafka.segments import (
    LiveSegment,
    Part,
    Segments,
    cleaned_segment,
)
from ledgerfold.broker.kafka.validation import Taken
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
from ledgerfold.v1.records_pb2 import (
    KafkaProducers,
    KafkaSegment,
    LedgerRecord,
    TopicRecord,
)

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
# Its batches tell of their producers.
_NO_PRODUCER = 0
# In an entry's header: key_bytes and, behind it, key_crc.
_KEY_AT = EntryHeader._fields.index("key_bytes")


class _Appended(NamedTuple):
    position: Position
    next_offset: int


class KafkaLog:
    """One per loaded topic, used on the event loop only.

    `grow`: how a segment with that base offset that begins then grows, by the topic's settings.
    `remember`: what is known of producers up to an offset, for the record.
    """

    def __init__(
        self,
        stored: StoredTopic,
        store: LedgerStore,
        executor: Executor,
        clock_ms: Callable[[], int],
        grow: Callable[[int, int], Growth],
        remember: Callable[[int], KafkaProducers],
    ) -> None:
        self._stored, self._store, self._clock_ms = stored, store, clock_ms
        self.grow, self._remember = grow, remember
        self.state = state = LogState(stored.name)
        self._files = files = LogFiles(store, executor, state)
        self._ledgers = RawLedgers(stored.record.ledger_ids, files.record)
        self._loading = SegmentLoader(
            store, self._ledgers, lambda base_offset: grow(base_offset, clock_ms())
        )
        self._begun = BegunSegments()
        # Where the segment begins that a new ledger begins.
        self._begins_at: Callable[[int], int | None] = dict[int, int]().get
        writers = Writers()
        self._new = NewLedgers(stored, store, self._ledgers, writers, state, self._relist)
        self._commit = GroupCommit(writers, self._new, files, state)
        self.tail = LogTail(stored, writers, self._new, self._commit, state, clock_ms)
        self.segments = Segments()
        self._is_open = False
        # Never cleaned, and ended, when it was loaded.
        self._ended = list[LiveSegment]()
        # Of what was recorded when the active segment began nothing was lost.
        self._is_whole = False
        # What was known of producers then; who replays batches says it.
        self.known_at_load = KafkaProducers()
        self.reads = KafkaReads(self.segments, self._ledgers, files, state)
        # Behind the last batch that was appended, and the last one that is durable.
        self.end_offset = 0
        self.durable_end_offset = 0
        self._on_their_way: deque[_Appended] = deque()
        # `durable_end_offset` has risen, or nothing will be durable any more.
        self.on_durable: set[Callable[[], None]] = set()
        state.on_durable.add(self._advance)

    # -- its life --------------------------------------------------------------------------

    async def open(
        self, begin: Callable[[int, bool], int], found: Callable[[FoundBatch], object]
    ) -> None:
        """Finds the segments and begins a ledger, on a thread, where `begin` is told of the log's
        end, and whether all is there that was when the active segment began; it says where batches
        begin to matter. Then `found` is told of each from there on, in order, and of some before.
        What there is can be read even if the disk takes no new ledger: then the log has failed.
        Raises DiskFailure when there is nothing yet, or it cannot be read, Corruption, MissingFile.
        """
        await self._files.in_thread(lambda: self._open(begin, found))

    def _open(
        self, begin: Callable[[int, bool], int], found: Callable[[FoundBatch], object]
    ) -> None:
        truncated_to = self._stored.record.kafka.truncated_to
        try:
            self._begin()
        except DiskFailure as error:
            if not self._stored.record.ledger_ids:
                raise
            _log.error("%s can only be read: %s", self._stored.name, error)
            self.state.fail(error)
        self._begins_at = self._begun.base_of
        end, _ = recovered(self._stored.record.kafka, self._loading.end_of)
        end = max(end, truncated_to)
        since = begin(end, self._is_whole)
        for segment in self._stored.record.kafka.segments:
            if segment.is_cleaned or segment.ledger_ids:
                self.segments.append(self._loading.segment(segment, since, found))
        loaded = self.segments.before(self.segments.active)
        self._ended = [each for each in loaded if not each.is_cleaned]
        self._is_open = True
        self.end_offset = self.durable_end_offset = end
        self.state.last_durable = self._ledgers.last_recorded()

    def _begin(self) -> None:
        """A new ledger. Raises DiskFailure."""
        # What a failed writer left open ends at its last durable entry, before it is looked at.
        self._store.recover_ledgers(self._stored.record.ledger_ids)
        log = self._stored.record.kafka
        self._loading.learn(log)
        self._is_whole = holds_all_before(log, log.rolled.end_offset, self._loading.end_of)
        _, begins_at = recovered(log, self._loading.end_of)
        self._begins_at = lambda _: begins_at
        self._new.load()

    def _relist(self, record: TopicRecord) -> None:
        relist(record.kafka, record.ledger_ids, self._begins_at)
        if not self._is_open:
            tell_opened(record.kafka)
            if not self._is_whole:
                # NOTE: other batches will get the offsets of those that it tells of.
                forget_snapshots(record.kafka)
        tell_ended(record.kafka, self._ended)
        self._begun.tell(record.kafka, record.ledger_ids)

    async def close(self) -> None:
        """All is durable, and the record tells what a load needs to know. Raises DiskFailure."""
        if not await self._commit.close():
            return
        active = self.segments.active
        assert active.growth is not None
        active.growth.end()
        producers = self._remember(self.end_offset)

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            tell_ended(record.kafka, self._ended)
            tell_closed(record.kafka, active, self.known_at_load, producers)

        await self._stored.change(edit)

    @property
    def ends_with_loss(self) -> bool:
        """When it was opened: a repair gave up entries at its end, which begin to matter there."""
        return self._loading.is_behind_loss

    # -- appending -------------------------------------------------------------------------

    def append(self, entry: EntryHeader, batch: Taken, append_time_ms: int) -> Position:
        """A batch behind the log's end, which its offsets are; durable once the state says so.

        `entry`: the header of the entry as it came. Raises what made the log fail.
        """
        header, section = batch.header, batch.section
        # _replace() by hand: this is done for each entry, and takes half as long.
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
        self._on_their_way.append(_Appended(position, end))
        return position

    def roll(self, base_offset: int | None = None) -> LiveSegment:
        """The active segment, after a new one has begun, unless it is that one, and as good as new.

        `base_offset`: of the new one; at least the log's end, which it is unless it is told.
        Raises what made the log fail.
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
        known = self._remember(base)
        growth = self.grow(base, self._clock_ms())
        self._begun.add(ledger_id, growth, active, known, self._stored.record.ledger_ids)
        self.segments.append(LiveSegment(base, [Part(ledger_id, base)], growth))
        return self.segments.active

    def _advance(self) -> None:
        durable = self.state.last_durable
        while self._on_their_way and durable is not None:
            if self._on_their_way[0].position > durable:
                break
            self.durable_end_offset = self._on_their_way.popleft().next_offset
        for callback in tuple(self.on_durable):
            callback()

    # -- segments --------------------------------------------------------------------------

    async def settle(self) -> None:
        """Returns when all segments but the active one are durable, closed, and in the record.

        Those that there are when it is asked. Raises what made the log fail.
        """
        first = self.segments.active.ledger_ids
        await self._new.settled()
        if first:
            await self._commit.flush_before(first[0])

    async def replace(
        self,
        sources: Sequence[LiveSegment],
        by: Sequence[tuple[KafkaSegment, LedgerRecord | None]],
        and_also: Edit,
    ) -> None:
        """Puts what a cleaning wrote in the place of the log's first segments, in one write.

        They are settled. Raises CompactionFenced when they are not its first ones any more, Moved,
        DiskFailure: nothing has changed then.
        """
        await to_its_end(self._replace(sources, by, and_also))

    async def _replace(
        self,
        sources: Sequence[LiveSegment],
        by: Sequence[tuple[KafkaSegment, LedgerRecord | None]],
        and_also: Edit,
    ) -> None:
        count = len(sources)
        old = [each for segment in sources for each in segment.ledger_ids]
        live = [cleaned_segment(each) for each, _ in by]

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            listed = [list(each.ledger_ids) for each in record.kafka.segments[:count]]
            if listed != [each.ledger_ids for each in sources] or not count < len(self.segments):
                raise CompactionFenced(record.name)
            for _, ledger in by:
                if ledger is not None:
                    batch.put_ledger(ledger)
            hand_on(record.kafka.segments[:count], (each for each, _ in by))
            self._drop_from(record, batch, count)
            reach("clean.before-batch")
            kept = [*(each for each, _ in by), *record.kafka.segments]
            relisted = type(record.kafka)(segments=kept)
            del record.kafka.segments[:]
            record.kafka.segments.extend(relisted.segments)
            and_also(record, batch)

        def applied() -> None:
            reach("clean.after-batch")
            self._forget(count, live)
            gone = {each.base_offset for each in sources} - {each.base_offset for each in live}
            if self.known_at_load.end_offset in gone:
                # A segment's snapshot goes with it, as in Kafka, and that of the load was its.
                self.known_at_load = KafkaProducers()

        await self._stored.change(edit, applied)
        await self.delete_files(old)
        reach("clean.after-delete")

    async def drop_first(self, choose: Callable[[], int], and_also: Edit) -> int:
        """Deletes the log's first segments: as many as `choose` says when their turn has come.

        Never the active one, nor one that ended since this was asked for: it may not be closed yet.
        How many. Raises Moved, DiskFailure.
        """
        return await to_its_end(self._drop_first(choose, and_also))

    async def _drop_first(self, choose: Callable[[], int], and_also: Edit) -> int:
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
        """Work of the disk."""
        return await self._files.in_thread(call)

    async def delete_files(self, ledger_ids: Sequence[int]) -> None:
        """Of ledgers that nobody names. What cannot be removed now the store tries again."""
        for ledger_id in ledger_ids:
            try:
                await self._files.in_thread(functools.partial(self._store.delete_files, ledger_id))
            except DiskFailure as error:
                _log.warning("The files of ledger %d stay for now: %s", ledger_id, error)

    def files_of(self, segment: LiveSegment) -> list[LedgerRecord]:
        """The records of its ledgers. Raises MissingFile, Moved."""
        return [self._files.record(each) for each in segment.ledger_ids]

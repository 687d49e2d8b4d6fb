"""A topic's log: raw ledgers in order and the compacted view beside them, read as one.

Reading follows the view: read-compacted reads at or below the horizon come from the compacted
ledger, all others from the raw ledgers (Pulsar: CompactedTopicUtils). Only what is durable is read.
Appending is in broker/log/tail.py, where entries are in broker/log/positions.py.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from ledgerfold.broker.log.ledger_record import last_entry
from ledgerfold.broker.log.positions import LogPositions
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.broker.log.view import RAW, View
from ledgerfold.storage.entry import EARLIEST, LATEST, Position
from ledgerfold.storage.errors import CompactedLedgerDamaged, Corruption, DiskFailure, MissingFile
from ledgerfold.storage.ledger import LedgerReader, LedgerStore, LedgerWriter, StoredEntry
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import LedgerRecord, SegmentRecord, TopicRecord
from ledgerfold.v1.records_pb2 import Position as PositionRecord

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class ReadResult(NamedTuple):
    """Entries of one view, and where to go on. Empty and not moved: nothing more now."""

    entries: Sequence[StoredEntry]
    next_position: Position


class TopicLog(LogPositions):
    """One per loaded topic, used on the event loop only."""

    def __init__(
        self,
        stored: StoredTopic,
        store: LedgerStore,
        executor: Executor,
        clock_ms: Callable[[], int],
    ) -> None:
        super().__init__(stored, store, executor, clock_ms)
        self.view = View()

    async def open(self) -> None:
        """Begins a new ledger and opens the compacted view, on a thread.

        What there is can be read even if the disk takes no new ledger: then the log has failed.
        Raises DiskFailure when there is nothing yet.
        """
        await self._in_thread(self._open)

    def _open(self) -> None:
        try:
            self._begin()
        except DiskFailure as error:
            if not self._stored.record.ledger_ids:
                raise
            _log.error("%s can only be read: %s", self._stored.name, error)
            self._fail(error)
        self._last_durable = self._find_last_durable()
        self.view = self.current_view()
        # Raw entries that went before lay at or below it.
        self._dropped_upto = self.view.horizon

    def _begin(self) -> None:
        """Closes what a failed writer left open, drops empty ledgers, begins one. One batch."""
        self._store.recover_ledgers(self._stored.record.ledger_ids)
        gone = list[int]()
        begun = list[LedgerWriter]()

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            kept = [each for each in record.ledger_ids if self.last_in(each) is not None]
            gone.extend(each for each in record.ledger_ids if each not in set(kept))
            for ledger_id in gone:
                self._store.mark_deleting(ledger_id, batch)
            gone.extend(self._forget_truncated(record, batch))
            begun.append(self._store.create_ledger(record.name, batch))
            record.ledger_ids[:] = [*kept, begun[0].ledger_id]
            record.epoch += 1

        self._stored.change_now(edit)
        self.ledgers.keep(self._stored.record.ledger_ids)
        (self._writer,) = begun
        for ledger_id in gone:
            self._store.delete_files(ledger_id)

    def _forget_truncated(self, record: TopicRecord, batch: MetadataBatch) -> list[int]:
        """The compacted ledger that a truncation left for this load to drop, if it did."""
        if not (record.HasField("truncated_upto") and record.HasField("compacted")):
            return []
        ledger_id = record.compacted.ledger_id
        self._store.mark_deleting(ledger_id, batch)
        record.ClearField("compacted")
        return [ledger_id]

    def current_view(self) -> View:
        """The view that the topic's record describes: routed by where `__compaction` was moved."""
        if not self._stored.record.HasField("compacted"):
            return View()
        compacted, name = self._stored.record.compacted, self._stored.record.name
        is_moved = self._stored.record.HasField("compaction_moved_to")
        routed_by = self._stored.record.compaction_moved_to if is_moved else compacted.horizon
        horizon = Position(routed_by.ledger_id, routed_by.entry_id)
        missing = self._store.missing_of(compacted.ledger_id)
        if missing is None:
            reader = self._store.open_reader(compacted.ledger_id)
            return View(reader, horizon, compacted.ledger_id, name)
        view = View(None, horizon, compacted.ledger_id, name)
        _log.error("%s", view.damaged(missing))
        return view

    # -- reading ---------------------------------------------------------------------------

    @property
    def horizon(self) -> Position | None:
        return self.view.horizon

    @property
    def has_damage(self) -> bool:
        """Whether the compacted ledger is known to be damaged or missing."""
        return self.view.damage is not None

    def check_compacted(self) -> None:
        """Raises CompactedLedgerDamaged when that is known, or a file is missing now."""
        view = self.view
        if view.damage is not None:
            raise view.damage
        missing = self._store.missing_of(view.ledger_id) if view.ledger_id >= 0 else None
        if missing is not None:
            raise view.damaged(missing)

    @property
    def floor(self) -> Position:
        """Retention removed what lies before it, from the compacted ledger, too."""
        if not self._stored.record.HasField("retention_floor"):
            return EARLIEST
        floor = self._stored.record.retention_floor
        return Position(floor.ledger_id, floor.entry_id)

    def compacted_segments(self) -> list[SegmentRecord]:
        """Those of the current compacted ledger that hold something readable, in order."""
        if self.view.compacted is None:
            return []
        return [
            segment
            for segment in self.view.compacted.record.segments
            if (segment.last.ledger_id, segment.last.entry_id) >= self.floor
        ]

    async def read(self, position: Position, *, view: View, bytes_max: int) -> ReadResult:
        """Durable entries at and after `position`, at least one if there is one, about `bytes_max`.

        `view`: RAW, the current one, or an earlier one that is pinned.
        Raises Moved when the topic was unloaded, Corruption, MissingFile, CompactedLedgerDamaged.
        """
        if self._closed is not None:
            raise self._closed
        if view.horizon is not None and view.routes_compacted(position):
            if view.ledger_id >= 0:
                start = max(position, self.floor)
                with view.reading() as compacted:
                    # A horizon that was moved back lies before the ledger's last entries.
                    end = compacted.last or view.horizon
                    entries = await self._read_ledger(compacted, start, bytes_max, end)
                if entries:
                    return ReadResult(entries, entries[-1].header.position.next)
            position = view.horizon.next
        return await self._read_raw(position, bytes_max)

    async def _read_ledger(
        self, reader: LedgerReader, position: Position, bytes_max: int, end: Position
    ) -> list[StoredEntry]:
        """On the loop what is in memory anyway, for a thread costs more; on a thread the rest."""
        try:
            entries = reader.read(position, bytes_max=bytes_max, end=end, wait=False)
        except BlockingIOError:
            read = functools.partial(reader.read, position, bytes_max=bytes_max, end=end)
            return await self._in_thread(read)
        # The others' turn: a fast reader must not keep the loop to itself.
        await asyncio.sleep(0)
        return entries

    async def _read_raw(self, position: Position, bytes_max: int) -> ReadResult:
        position = self._existing(position)
        durable = self._last_durable
        if durable is None or position > durable:
            return ReadResult((), position)
        reader = self._reader(position.ledger_id)
        entries = None
        with self._unless_trimmed(position.ledger_id):
            entries = await self._read_ledger(reader, position, bytes_max, durable)
        if entries is None:
            return await self._read_raw(position, bytes_max)
        if not entries:
            return ReadResult((), position)
        return ReadResult(entries, self.next_position(entries[-1].header.position))

    async def wait_beyond(self, position: Position) -> None:
        """Returns when a raw read at `position` may give something. Raises Moved on unload."""
        while True:
            if self._closed is not None:
                raise self._closed
            if self._last_durable is not None and self._existing(position) <= self._last_durable:
                return
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)

    # -- ledgers ---------------------------------------------------------------------------

    async def drop_ledgers(
        self, choose: Callable[[], Sequence[int]], *, hides_compacted: bool
    ) -> list[int]:
        """Takes raw ledgers out of the log, in one batch, then deletes their files. Which ones.

        `choose`: the oldest ones that may go, asked at the moment at which they do.
        `hides_compacted`: what lay in them is not read from the compacted ledger either.
        """
        dropped = list[int]()

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            dropped.extend(choose())
            for ledger_id in dropped:
                record.ledger_ids.remove(ledger_id)
                self._store.mark_deleting(ledger_id, batch)
            if dropped and hides_compacted:
                record.retention_floor.CopyFrom(PositionRecord(ledger_id=record.ledger_ids[0]))

        await self._stored.change(edit, lambda: self.forget_ledgers(dropped))
        for ledger_id in dropped:
            await self._in_thread(functools.partial(self._store.delete_files, ledger_id))
        return dropped

    async def terminate(self) -> Position:
        """Nothing is appended any more. The last entry there is, once that is durable, too.

        Raises what made the log fail, DiskFailure.
        """

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            # Another call may have been faster.
            if not record.HasField("terminated_at"):
                end = self.last_position()
                record.terminated_at.ledger_id, record.terminated_at.entry_id = end

        if not self.is_terminated:
            self._is_ending = True
            await self.flush()
            if self._closed is not None:
                raise self._closed
            try:
                await self._stored.change(edit, self._wake)
            except DiskFailure as error:
                # Whether it is durable shows when the topic is loaded anew.
                self._fail(error)
                raise
        end = self._stored.record.terminated_at
        return Position(end.ledger_id, end.entry_id)

    async def last_published_before(self, publish_time_ms: int, after: Position) -> Position:
        """The last of the entries behind `after` before the first one published later than that.

        "Later": at that time or after. `after` itself when there is none.
        """
        for record in self.ledgers.since(after.ledger_id):
            last = last_entry(record)
            if last is None or last <= after:
                continue
            found = await self._find_in(record, publish_time_ms, after)
            if found is not None:
                return max(after, self.previous_position(found)) if found.entry_id else after
            if self.has_ledger(record.ledger_id):
                after = last
        return after

    async def _find_in(
        self, record: LedgerRecord, publish_time_ms: int, after: Position
    ) -> Position | None:
        """The first entry of a raw ledger behind `after` of that time or later.

        None, too, when the ledger is trimmed meanwhile.
        """
        if all(each.publish_time_max_ms < publish_time_ms for each in record.segments):
            return None
        with self._unless_trimmed(record.ledger_id):
            search = self._reader(record.ledger_id).position_at_time
            return await self._in_thread(functools.partial(search, publish_time_ms, after.next))
        return None

    @contextmanager
    def _unless_trimmed(self, ledger_id: int) -> Iterator[None]:
        """A search passes over a ledger that is trimmed meanwhile."""
        try:
            with self._moved_if_closed():
                yield
        except MissingFile:
            if self.has_ledger(ledger_id):
                raise

    async def last_entry(self, read_compacted: bool) -> StoredEntry | None:
        """The view's last entry: compacted if no raw one is above the horizon (reference 14.1)."""
        return await self._of_one_view(lambda view: self._last_entry(view, read_compacted))

    async def _of_one_view(self, ask: Callable[[View], Awaitable[_T]]) -> _T:
        """The answer of the current view. Asked again when a run commits, and trims, meanwhile."""
        while True:
            view = self.view
            with self._moved_if_closed():
                answer = await ask(view)
            if view is self.view:
                return answer

    async def _last_entry(self, view: View, read_compacted: bool) -> StoredEntry | None:
        last = self._last_durable
        if last is not None and not self.has_ledger(last.ledger_id):
            last = None
        if read_compacted and view.horizon is not None and (last is None or last <= view.horizon):
            with view.reading() as compacted:
                entry = await self._in_thread(compacted.last_entry)
            return entry if entry is not None and entry.header.position >= self.floor else None
        if last is None:
            return None
        entries = (await self._read_raw(last, 1)).entries
        return entries[0] if entries else None

    async def resolve_start(
        self, start: StartPosition, read_compacted: bool
    ) -> tuple[Position, bool]:
        """Where to begin reading, and whether that names an entry that exists or may come."""
        at = start.WhichOneof("at")
        if at == "earliest":
            return EARLIEST, True
        if at == "publish_time_ms":
            return await self._position_at_time(start.publish_time_ms, read_compacted), True
        if at == "message_id":
            wanted = Position(start.message_id.ledger_id, start.message_id.entry_id)
            if wanted < Position(0, 0):
                return EARLIEST, True
            if wanted < LATEST:
                whole = start.inclusive or start.message_id.batch_index >= 0
                if whole or await self._is_batch(wanted, read_compacted):
                    return wanted, True
                return wanted.next, True
        if start.inclusive:
            entry = await self.last_entry(read_compacted)
            if entry is not None:
                return entry.header.position, True
        return self._after_last(), True

    async def _is_batch(self, position: Position, read_compacted: bool) -> bool:
        """Whether the view has an entry there that is a batch. One that is damaged is passed."""
        view = self.view if read_compacted else RAW
        try:
            entries = (await self.read(position, view=view, bytes_max=1)).entries
        except (Corruption, CompactedLedgerDamaged):
            return False
        headers = (each.header for each in entries)
        return any(each.position == position and not each.is_plain for each in headers)

    async def first_published_since(self, publish_time_ms: int) -> Position:
        """The first entry of that time or later, in the compacted ledger, else in the raw ones.

        Where the next one will be when there is none (apache/pulsar#21600).
        """

        async def ask(view: View) -> Position:
            found = await self._compacted_at_time(view, publish_time_ms)
            return found or await self._raw_at_time(publish_time_ms, EARLIEST)

        return await self._of_one_view(ask)

    async def _compacted_at_time(self, view: View, publish_time_ms: int) -> Position | None:
        if view.ledger_id < 0:
            return None
        with view.reading() as compacted:
            find = functools.partial(compacted.position_at_time, publish_time_ms, self.floor)
            return await self._in_thread(find)

    async def _position_at_time(self, publish_time_ms: int, read_compacted: bool) -> Position:
        if not read_compacted:
            return await self._raw_at_time(publish_time_ms, EARLIEST)

        async def ask(view: View) -> Position:
            found = await self._compacted_at_time(view, publish_time_ms)
            return found or await self._raw_at_time(publish_time_ms, view.horizon or EARLIEST)

        return await self._of_one_view(ask)

    async def _raw_at_time(self, publish_time_ms: int, after: Position) -> Position:
        """The first raw entry behind `after` of that time or later; where the next one will be."""
        for record in self.ledgers.since(after.ledger_id):
            found = await self._find_in(record, publish_time_ms, after)
            if found is not None:
                return found
        return self._after_last()

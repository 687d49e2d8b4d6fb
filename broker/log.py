"""A topic's log: raw ledgers in order, the compacted view beside them, appends and reads.

Appending (storage/ledger.py does the work):
1. append() stamps the entry with its position and queues it; nothing is written yet.
2. One flush at a time runs in a thread: what queued up meanwhile is the next group (group commit).
3. After the sync the durable position advances; producers get their receipts, readers wake.

Reading follows the view: read-compacted reads at or below the horizon come from the compacted
ledger, all others from the raw ledgers (Pulsar: CompactedTopicUtils). Only what is durable is read.

A failed write or sync ends the log: appends and reads after it raise, and the topic is loaded anew.
"""

from __future__ import annotations

import asyncio
import functools
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import NamedTuple, TypeVar

from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import LedgerRecord, TopicRecord

from broker.view import View
from storage.entry import (
    EARLIEST,
    HEADER_BYTES,
    LATEST,
    EntryHeader,
    Position,
    stamped_header,
)
from storage.errors import DiskFailure, LedgerfoldError, MissingFile, Moved
from storage.ledger import LedgerReader, LedgerStore, LedgerWriter, StoredEntry
from storage.metadata import MetadataBatch, MetadataStore

_T = TypeVar("_T")


class ReadResult(NamedTuple):
    """Entries of one view, and where to go on. Empty and not moved: nothing more now."""

    entries: Sequence[StoredEntry]
    next_position: Position


class TopicLog:
    """One per loaded topic, used on the event loop only."""

    def __init__(
        self,
        record: TopicRecord,
        metadata: MetadataStore,
        store: LedgerStore,
        executor: Executor,
        clock_ms: Callable[[], int],
    ) -> None:
        self._record = record
        self._metadata = metadata
        self._store = store
        self._executor = executor
        self._clock_ms = clock_ms
        self._writer: LedgerWriter | None = None
        # Writers with something to flush or to close, oldest first.
        self._flushing: deque[LedgerWriter] = deque()
        self._flush_task: asyncio.Task[None] | None = None
        self._disk = asyncio.Lock()
        self._waiters: set[asyncio.Future[None]] = set()
        self._failure: LedgerfoldError | None = None
        self._last_durable: Position | None = None
        self.on_durable: set[Callable[[], None]] = set()
        # A ledger has got its last entry, at this position / is closed.
        self.on_roll_begun: set[Callable[[Position], None]] = set()
        self.on_roll: set[Callable[[], None]] = set()
        self.view = View(None, None)

    # -- opening and closing ---------------------------------------------------------------

    def open(self) -> None:
        """Drops empty raw ledgers, begins a new one and opens the compacted view. One batch."""
        record = self._record
        with self._metadata.batch() as batch:
            kept = []
            for ledger_id in record.ledger_ids:
                if self._store.open_reader(ledger_id).last is None:
                    self._store.mark_deleting(ledger_id, batch)
                else:
                    kept.append(ledger_id)
            empty = [each for each in record.ledger_ids if each not in kept]
            del record.ledger_ids[:]
            record.ledger_ids.extend(kept)
            record.epoch += 1
            self._writer = self._begin_ledger(batch)
        for ledger_id in empty:
            self._store.delete_files(ledger_id)
        self._last_durable = self._find_last_durable()
        self.view = self.current_view()

    def _begin_ledger(self, batch: MetadataBatch) -> LedgerWriter:
        """Puts a new ledger and the topic's record with it into `batch`."""
        writer = self._store.create_ledger(self._record.name, batch)
        self._record.ledger_ids.append(writer.ledger_id)
        batch.put_topic(self._record)
        return writer

    def current_view(self) -> View:
        """The view that the topic's record describes."""
        if not self._record.HasField("compacted"):
            return View(None, None)
        compacted = self._record.compacted
        reader = self._store.open_reader(compacted.ledger_id) if compacted.ledger_id >= 0 else None
        horizon = Position(compacted.horizon.ledger_id, compacted.horizon.entry_id)
        return View(reader, horizon)

    async def close(self) -> None:
        """Flushes, closes the open ledger, and ends all waiting reads with Moved."""
        if self._failure is None:
            await self.flush()
        writer, self._writer = self._writer, None
        self._fail(Moved(f"{self._record.name} was unloaded; connect again."))
        if writer is not None and not writer.is_failed:
            async with self._disk:
                await self._in_thread(writer.close)

    def _fail(self, error: LedgerfoldError) -> None:
        self._failure = self._failure or error
        self._wake()
        for callback in tuple(self.on_durable):
            callback()

    @property
    def has_failed_writer(self) -> bool:
        """Whether a write or sync failed: the ledger's tail must be recovered before it is read."""
        return isinstance(self._failure, DiskFailure)

    @property
    def failure(self) -> LedgerfoldError | None:
        return self._failure

    async def _in_thread(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    # -- appending -------------------------------------------------------------------------

    def append(self, header: EntryHeader, entry: memoryview, producer_number: int) -> Position:
        """Gives the entry its position and queues it. Durable once `last_durable` reaches it."""
        if self._failure is not None:
            raise self._failure
        writer = self._writer
        assert writer is not None
        if writer.should_roll():
            writer = self._roll(writer)
        stamped = stamped_header(
            header, writer.ledger_id, writer.next_entry_id, self._clock_ms(), producer_number
        )
        position = writer.append(header, stamped, entry[HEADER_BYTES:])
        if self._flush_task is None:
            self._flush_task = asyncio.get_running_loop().create_task(self._flush_all())
        return position

    def _roll(self, writer: LedgerWriter) -> LedgerWriter:
        with self._metadata.batch() as batch:
            begun = self._begin_ledger(batch)
        self._flushing.append(writer)
        self._writer = begun
        for callback in tuple(self.on_roll_begun):
            callback(Position(writer.ledger_id, writer.next_entry_id - 1))
        return begun

    async def _flush_all(self) -> None:
        """Group commit: flushes until nothing is queued."""
        try:
            while self._flushing or (self._writer is not None and self._writer.pending_bytes):
                async with self._disk:
                    await self._flush_one()
        except LedgerfoldError as error:
            self._fail(error)
        finally:
            self._flush_task = None

    async def _flush_one(self) -> None:
        writer = self._flushing[0] if self._flushing else self._writer
        if writer is None:
            return
        durable = await self._in_thread(writer.flush)
        if durable.entry_id >= 0:
            self._advance(durable)
        if self._flushing and not writer.pending_bytes:
            await self._in_thread(writer.close)
            self._flushing.popleft()
            for callback in tuple(self.on_roll):
                callback()

    def _advance(self, durable: Position) -> None:
        self._last_durable = durable
        self._wake()
        for callback in tuple(self.on_durable):
            callback()

    async def flush(self) -> None:
        """Waits until all that was appended is durable. Raises what made the log fail."""
        while self._flush_task is not None:
            await asyncio.shield(self._flush_task)
        if self._failure is not None:
            raise self._failure

    async def seal(self) -> Position | None:
        """Flushes and seals the open segment; the last durable position, None if there is none."""
        await self.flush()
        writer = self._writer
        if writer is not None:
            async with self._disk:
                await self._in_thread(writer.seal_segment)
        return self._last_durable

    # -- reading ---------------------------------------------------------------------------

    def _reader(self, ledger_id: int) -> LedgerReader:
        return self._store.open_reader(ledger_id)

    def ledger_ids(self) -> Sequence[int]:
        """The raw ledgers that exist, oldest first; the last one may be empty."""
        return self._record.ledger_ids

    def has_ledger(self, ledger_id: int) -> bool:
        return ledger_id in self._record.ledger_ids

    @property
    def horizon(self) -> Position | None:
        return self.view.horizon

    async def read(self, position: Position, *, read_compacted: bool, bytes_max: int) -> ReadResult:
        """Durable entries at and after `position`, at least one if there is one, about `bytes_max`.

        Raises Moved when the topic was unloaded, Corruption, MissingFile.
        """
        if self._failure is not None:
            raise self._failure
        view = self.view
        if read_compacted and view.horizon is not None and view.routes_compacted(position):
            if view.compacted is not None:
                entries = await self._read_compacted(view, position, bytes_max)
                if entries:
                    return ReadResult(entries, entries[-1].header.position.next)
            position = view.horizon.next
        return await self._read_raw(position, bytes_max)

    async def _read_compacted(
        self, view: View, position: Position, bytes_max: int
    ) -> list[StoredEntry]:
        compacted, horizon = view.compacted, view.horizon
        assert compacted is not None
        assert horizon is not None
        with view.pinned():
            return await self._in_thread(
                lambda: compacted.read(position, bytes_max=bytes_max, end=horizon)
            )

    async def _read_raw(self, position: Position, bytes_max: int) -> ReadResult:
        position = self._existing(position)
        durable = self._last_durable
        if durable is None or position > durable:
            return ReadResult((), position)
        reader = self._reader(position.ledger_id)
        try:
            entries = await self._in_thread(
                lambda: reader.read(position, bytes_max=bytes_max, end=durable)
            )
        except MissingFile:
            if self.has_ledger(position.ledger_id):
                raise
            # Trimmed between the look at the record and the read.
            return await self._read_raw(position, bytes_max)
        if not entries:
            return ReadResult((), position)
        return ReadResult(entries, self.next_position(entries[-1].header.position))

    def _existing(self, position: Position) -> Position:
        """`position` if it may hold an entry now or later, else the first one after it that may."""
        ids = self._record.ledger_ids
        at = bisect_left(ids, position.ledger_id)
        if at == len(ids):
            return position
        if ids[at] != position.ledger_id:
            return Position(ids[at], 0)
        position = Position(position.ledger_id, max(position.entry_id, 0))
        last = self._reader(position.ledger_id).last
        if at + 1 < len(ids) and self._is_finished(at) and (last is None or position > last):
            return self._existing(Position(ids[at + 1], 0))
        return position

    def _is_finished(self, at: int) -> bool:
        """Whether no entry can come to this raw ledger any more."""
        ledger_id = self._record.ledger_ids[at]
        return all(
            writer is None or writer.ledger_id != ledger_id
            for writer in (self._writer, *self._flushing)
        )

    async def wait_beyond(self, position: Position) -> None:
        """Returns when a raw read at `position` may give something. Raises Moved on unload."""
        while True:
            if self._failure is not None:
                raise self._failure
            if self._last_durable is not None and self._existing(position) <= self._last_durable:
                return
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    # -- ledgers ---------------------------------------------------------------------------

    def ledger_records(self) -> list[LedgerRecord]:
        """Of the raw ledgers, oldest first; counts include what is not durable yet."""
        return [self._reader(ledger_id).record for ledger_id in self._record.ledger_ids]

    def drop_ledgers(self, ledger_ids: Sequence[int]) -> None:
        """Takes raw ledgers out of the log, in one batch, then deletes their files."""
        with self._metadata.batch() as batch:
            for ledger_id in ledger_ids:
                self._record.ledger_ids.remove(ledger_id)
                self._store.mark_deleting(ledger_id, batch)
            batch.put_topic(self._record)
        for ledger_id in ledger_ids:
            self._store.delete_files(ledger_id)

    # -- positions -------------------------------------------------------------------------

    @property
    def last_durable(self) -> Position | None:
        return self._last_durable

    @property
    def last_appended(self) -> Position | None:
        """The last position given out, durable or not."""
        for writer in (self._writer, *reversed(self._flushing)):
            if writer is not None and writer.next_entry_id:
                return Position(writer.ledger_id, writer.next_entry_id - 1)
        return self._last_durable

    def _find_last_durable(self) -> Position | None:
        for ledger_id in reversed(self._record.ledger_ids):
            last = self._reader(ledger_id).last
            if last is not None:
                return last
        return None

    def last_position(self) -> Position:
        """The last durable raw entry; (L, -1) of the newest ledger when there is none."""
        if self._last_durable is not None and self.has_ledger(self._last_durable.ledger_id):
            return self._last_durable
        return Position(self._record.ledger_ids[-1], -1)

    def first_position(self) -> Position:
        """Of the raw ledgers that exist."""
        return Position(self._record.ledger_ids[0], 0)

    def next_position(self, position: Position) -> Position:
        """The one after, in the next ledger when `position` ends a finished one."""
        return self._existing(position.next)

    def previous_position(self, position: Position) -> Position:
        """The mark-delete form of "before": (L, -1) for the first entry of a ledger."""
        return Position(position.ledger_id, max(position.entry_id - 1, -1))

    def entries_between(self, after: Position, upto: Position) -> int:
        """Raw entries p with after < p <= upto in the ledgers that exist."""
        count = 0
        for ledger_id in self._record.ledger_ids:
            last = self._reader(ledger_id).last
            if last is None or ledger_id < after.ledger_id or ledger_id > upto.ledger_id:
                continue
            low = after.entry_id if ledger_id == after.ledger_id else -1
            high = (
                min(upto.entry_id, last.entry_id) if ledger_id == upto.ledger_id else last.entry_id
            )
            count += max(0, high - low)
        return count

    async def last_entry(self, read_compacted: bool) -> StoredEntry | None:
        """The last entry of the view (reference section 14.1).

        It is the compacted ledger's when the last raw one is not above the horizon.
        """
        last, view = self._last_durable, self.view
        if read_compacted and view.horizon is not None and (last is None or last <= view.horizon):
            compacted = view.compacted
            if compacted is None:
                return None
            with view.pinned():
                return await self._in_thread(compacted.last_entry)
        if last is None or not self.has_ledger(last.ledger_id):
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
                return (wanted if whole else wanted.next), True
        if start.inclusive:
            entry = await self.last_entry(read_compacted)
            if entry is not None:
                return entry.header.position, True
        return self._after_last(), True

    def _after_last(self) -> Position:
        """Where the next published entry will be."""
        return self._existing(self.last_position().next)

    async def _position_at_time(self, publish_time_ms: int, read_compacted: bool) -> Position:
        view = self.view
        if read_compacted and view.compacted is not None:
            compacted = view.compacted
            with view.pinned():
                found = await self._in_thread(lambda: compacted.position_at_time(publish_time_ms))
            if found is not None:
                return found
        for ledger_id in tuple(self._record.ledger_ids):
            reader = self._reader(ledger_id)
            find = functools.partial(reader.position_at_time, publish_time_ms)
            found = await self._in_thread(find)
            beyond = (
                not read_compacted or view.horizon is None or found is None or found > view.horizon
            )
            if found is not None and beyond:
                return found
        return self._after_last()

"""The open end of a topic's log: appends, group commit, rolls.

1. append() gives the entry its position and queues it; nothing is written yet.
2. One flush at a time runs in a thread: what queued up meanwhile is the next group.
3. After the sync the durable position advances; producers get their receipts, readers wake.

Flushes, seals and closes have the log's disk to themselves, one after the other, and each goes on
to its end though its caller is cancelled: a thread cannot be called back. Appends and rolls go on
meanwhile. So a step names the ledger that it is about, and never "the open one" after an await.

A ledger that has reached a limit is followed by a new one at once; it is flushed and closed in its
turn. The new one begins in memory, and entries queue up in it, while its record and the topic's are
written: it is flushed when they are durable, never before. A failed write or sync ends the writing:
callers that append from then on get the error, what is durable can be read, and the topic has to be
loaded anew (broker/topics/broker.py).
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import TypeVar

from ledgerfold.broker.ground.uncancelled import to_its_end
from ledgerfold.broker.log.raw_ledgers import RawLedgers
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.storage.entry import EntryHeader, Position
from ledgerfold.storage.errors import (
    CompactedLedgerDamaged,
    DiskFailure,
    LedgerfoldError,
    MissingFile,
    Moved,
    TopicTerminated,
)
from ledgerfold.storage.ledger import LedgerStore, LedgerWriter
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.records_pb2 import LedgerRecord, TopicRecord

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class LogTail:
    """Used on the event loop only; disk work runs in the executor."""

    def __init__(
        self,
        stored: StoredTopic,
        store: LedgerStore,
        executor: Executor,
        clock_ms: Callable[[], int],
    ) -> None:
        self._stored = stored
        self._store = store
        self._executor = executor
        # What the record lists, and the ledgers behind those that it will list soon.
        self.ledgers = RawLedgers(stored.record.ledger_ids, self._ledger_record)
        self._clock_ms = clock_ms
        self._writer: LedgerWriter | None = None
        # Writers with something to flush or to close, oldest first.
        self._flushing: deque[LedgerWriter] = deque()
        self._flush_task: asyncio.Task[None] | None = None
        # Those whose records are not durable yet, oldest first; nothing is flushed to them.
        self._unbegun: list[LedgerWriter] = []
        self._begin_task: asyncio.Task[None] | None = None
        # Held for each flush, seal and close: one at a time, in the order they were asked for.
        self._disk = asyncio.Lock()
        self._waiters: set[asyncio.Future[None]] = set()
        self._failure: LedgerfoldError | None = None
        self._closed: LedgerfoldError | None = None
        # Nothing is appended any more, whether or not that is recorded yet.
        self._is_ending = stored.record.HasField("terminated_at")
        self._last_durable: Position | None = None
        # No entry behind it was ever deleted. None: nobody knows.
        self._dropped_upto: Position | None = None
        self.on_durable: set[Callable[[], None]] = set()
        # A ledger has got its last entry, at this position / is closed / nothing is read any more.
        self.on_roll_begun: set[Callable[[Position], None]] = set()
        self.on_roll: set[Callable[[], None]] = set()
        self.on_closed: set[Callable[[], None]] = set()

    def _ledger_record(self, ledger_id: int) -> LedgerRecord:
        with self._moved_if_closed():
            return self._store.record(ledger_id)

    @contextmanager
    def _moved_if_closed(self) -> Iterator[None]:
        """After an unload others may have deleted what this log's record still names."""
        try:
            yield
        except (MissingFile, CompactedLedgerDamaged):
            if self._closed is not None:
                raise self._closed from None
            raise

    async def close(self) -> bool:
        """Flushes, closes the open ledger, and ends all reads with Moved. Raises DiskFailure.

        Whether all that was ever appended is durable: False after an earlier failure. What that
        leaves open is closed when the topic is loaded again.
        """
        try:
            # NOTE: not after a failure, in whatever ledger: what is queued follows what was lost.
            if self._failure is None:
                await self.flush()
        finally:
            await self._begun()
            has_failed = self._failure is not None
            writer, self._writer = self._writer, None
            self._end()
            # NOTE: after a failure, too: a thread may still write to what is recovered next.
            await to_its_end(self._close(None if has_failed else writer))
        return not has_failed

    async def _close(self, writer: LedgerWriter | None) -> None:
        async with self._disk:
            if writer is not None:
                await self._in_thread(writer.close)

    def _end(self) -> None:
        self._closed = Moved(f"{self._stored.name} was unloaded; connect again.")
        self._fail(self._closed)
        for callback in tuple(self.on_closed):
            callback()

    def _fail(self, error: LedgerfoldError) -> None:
        self._failure = self._failure or error
        self._wake()
        for callback in tuple(self.on_durable):
            callback()

    @property
    def failure(self) -> LedgerfoldError | None:
        """Why nothing can be appended any more."""
        return self._failure

    @property
    def closed(self) -> LedgerfoldError | None:
        """Why nothing can be read any more: the topic was unloaded."""
        return self._closed

    @property
    def is_terminated(self) -> bool:
        """Durably: what is in it is all there will ever be."""
        return self._stored.record.HasField("terminated_at")

    def check_open(self) -> None:
        """Raises what made the log fail, TopicTerminated, and Moved until that is durable."""
        if self._failure is not None:
            raise self._failure
        if self._is_ending:
            if self.is_terminated:
                raise TopicTerminated(self._stored.name)
            raise Moved(f"{self._stored.name} is being terminated; connect again.")

    async def _in_thread(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

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

    def append(self, header: EntryHeader, entry: memoryview, producer_number: int) -> Position:
        """Gives the entry its position and queues it. Durable once `last_durable` reaches it."""
        self.check_open()
        writer = self._writer
        assert writer is not None
        if writer.should_roll():
            writer = self._roll(writer)
        body = entry[header.header_bytes :]
        position = writer.append(header, body, self._clock_ms(), producer_number)
        self._start_flushing()
        return position

    async def roll_if_due(self) -> None:
        """Closes the open ledger and begins another, if a limit is reached: age, most likely.

        Raises what made the log fail.
        """
        if self._failure is None and self._writer is not None and self._writer.should_roll():
            await self.roll()

    async def roll(self) -> int:
        """Closes the open ledger, if it has an entry, and begins another.

        The id of the ledger that is open then, all earlier ones being closed; what is published
        meanwhile may have been followed by others. Raises what made the log fail.
        """
        if self._failure is not None:
            raise self._failure
        writer = self._writer
        assert writer is not None
        if writer.next_entry_id:
            writer = self._roll(writer)
            self._start_flushing()
        ledger_id = writer.ledger_id
        await self._with_disk(lambda: self._flush_before(ledger_id))
        return ledger_id

    def _roll(self, writer: LedgerWriter) -> LedgerWriter:
        """Begins another ledger behind that one, which gets no entry any more."""
        try:
            begun = self._store.create_ledger(self._stored.name)
        except DiskFailure as error:
            self._fail(error)
            raise
        self.ledgers.append(begun.ledger_id)
        self._flushing.append(writer)
        self._writer = begun
        self._unbegun.append(begun)
        if self._begin_task is None:
            self._begin_task = asyncio.get_running_loop().create_task(self._begin_all())
        for callback in tuple(self.on_roll_begun):
            callback(Position(writer.ledger_id, writer.next_entry_id - 1))
        return begun

    async def _begin_all(self) -> None:
        """Makes new ledgers durable: in each write all that there are."""
        try:
            while self._unbegun:
                begun = list[LedgerWriter]()
                await self._stored.change(functools.partial(self._put_unbegun, begun))
                del self._unbegun[: len(begun)]
        except LedgerfoldError as error:
            self._fail_to_begin(error)
        except Exception as error:
            self._fail_to_begin(self._defect(error))
        finally:
            self._begin_task = None

    def _put_unbegun(
        self, begun: list[LedgerWriter], record: TopicRecord, batch: MetadataBatch
    ) -> None:
        """Into `begun`, too: those that there are when their turn has come."""
        begun += self._unbegun
        for writer in begun:
            record.ledger_ids.append(writer.ledger_id)
            batch.put_ledger(writer.record)

    def _fail_to_begin(self, error: LedgerfoldError) -> None:
        """What waits in ledgers that no record names is not to be written, ever."""
        self._fail(error)
        for writer in self._unbegun:
            self._store.drop_writer(writer.ledger_id)
        self.ledgers.keep(self._stored.record.ledger_ids)

    async def _begun(self) -> None:
        """Returns when no ledger is being begun. What failed is the log's failure."""
        while self._begin_task is not None:
            await asyncio.shield(self._begin_task)

    def _start_flushing(self) -> None:
        if self._flush_task is None:
            self._flush_task = asyncio.get_running_loop().create_task(self._flush_all())

    async def _flush_all(self) -> None:
        """Group commit: flushes until nothing is queued."""
        try:
            while self._closed is None and self._oldest_unflushed() is not None:
                async with self._disk:
                    # Asked anew: a seal, a roll or the end may have had the disk before.
                    writer = None if self._closed else self._oldest_unflushed()
                    if writer is not None:
                        await self._flush_one(writer)
        except LedgerfoldError as error:
            self._fail(error)
        except Exception as error:
            self._fail(self._defect(error))
        finally:
            self._flush_task = None

    def _defect(self, error: Exception) -> LedgerfoldError:
        """NOTE: nobody may wait for receipts that do not come."""
        _log.error("The log of %s", self._stored.name, exc_info=error)
        return LedgerfoldError(f"The log of {self._stored.name} failed: {error!r}")

    def _oldest_unflushed(self) -> LedgerWriter | None:
        if self._flushing:
            return self._flushing[0]
        writer = self._writer
        return writer if writer is not None and writer.pending_bytes else None

    async def _flush_one(self, writer: LedgerWriter) -> None:
        """Flushes the oldest ledger, and closes it if another one follows. Holding the disk."""
        await self._flush_writer(writer)
        # It may have been followed during the flush, and may have got entries before that.
        if self._flushing and self._flushing[0] is writer and not writer.pending_bytes:
            await self._in_thread(writer.close)
            self._flushing.popleft()
            for callback in tuple(self.on_roll):
                callback()

    async def _flush_writer(self, writer: LedgerWriter) -> None:
        if writer in self._unbegun:
            await self._begun()
            if self._failure is not None:
                raise self._failure
        durable = await self._in_thread(writer.flush)
        if durable.entry_id >= 0:
            self._advance(durable)

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
        """Flushes the ledger that is open now and seals its segment.

        The last durable position, None if there is none: sealed segments hold all up to there.
        Publishing goes on meanwhile: what comes during the seal goes into the next segment, though
        another ledger may have followed by then. Raises what made the log fail.
        """
        return await self._with_disk(self._seal)

    async def _seal(self) -> Position | None:
        writer = self._writer
        assert writer is not None
        await self._flush_before(writer.ledger_id)
        await self._flush_writer(writer)
        # Nothing of a later ledger is durable: the disk was held since this one was the open one.
        await self._in_thread(writer.seal_segment)
        return self._last_durable

    async def _flush_before(self, ledger_id: int) -> None:
        """Flushes and closes the ledgers before that one. Holding the disk."""
        while self._flushing and self._flushing[0].ledger_id < ledger_id:
            await self._flush_one(self._flushing[0])

    async def _with_disk(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Does `work` once the disk is free. A caller that is cancelled does not end it.

        Raises what made the log fail; a failure of `work` is one.
        """

        async def step() -> _T:
            async with self._disk:
                if self._failure is not None:
                    raise self._failure
                try:
                    return await work()
                except LedgerfoldError as error:
                    self._fail(error)
                    raise

        return await to_its_end(step())

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

"""Group commit: queued entries are written and synced in order, many at a time.

1. One flush at a time runs in a thread; entries queued meanwhile form the next group.
2. After the sync the durable position advances; producers get their receipts, readers wake.

Flushes, seals and closes use the disk exclusively, one after the other, and each runs to completion
even if its caller is cancelled, since a thread cannot be interrupted. Appends and rolls continue
meanwhile (broker/log/tail.py). Therefore a step names its ledger, and never "the open one" after an
await. A failed write or sync ends all writing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.log.files import LogFiles
from ledgerfold.broker.log.new_ledgers import NewLedgers
from ledgerfold.broker.log.state import LogState
from ledgerfold.broker.log.writers import Writers
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.storage.ledger import LedgerWriter

_T = TypeVar("_T")


class GroupCommit:
    """The flush loop of one log. Used on the event loop only; disk work runs on a thread."""

    def __init__(
        self, writers: Writers, new_ledgers: NewLedgers, files: LogFiles, state: LogState
    ) -> None:
        self._writers, self._new = writers, new_ledgers
        self._files, self._state = files, state
        self._task: asyncio.Task[None] | None = None
        # Held for each flush, seal and close: one at a time, in request order.
        self._disk = asyncio.Lock()
        # Called when a ledger was closed.
        self.on_roll: set[Callable[[], None]] = set()

    def start(self) -> None:
        """Starts the flush loop if it is not running.

        Called when there is something to flush or close.
        """
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._flush_all())

    async def _flush_all(self) -> None:
        """Flushes until nothing is queued."""
        state, writers = self._state, self._writers
        try:
            while state.closed is None and writers.oldest_unflushed() is not None:
                async with self._disk:
                    # Checked again: a seal, a roll or a close may have held the disk before.
                    writer = None if state.closed else writers.oldest_unflushed()
                    if writer is not None:
                        await self._flush_one(writer)
        except Exception as error:
            state.fail(state.cause(error))
        finally:
            self._task = None

    async def _flush_one(self, writer: LedgerWriter) -> None:
        """Flushes the oldest ledger, and closes it if another one follows.

        The caller holds the disk.
        """
        await self._flush_writer(writer)
        followed = self._writers.followed
        # A roll during the flush may have superseded it, after more entries were appended to it.
        if followed and followed[0] is writer and not writer.pending_bytes:
            await self._files.in_thread(writer.close)
            followed.popleft()
            for callback in tuple(self.on_roll):
                callback()

    async def _flush_writer(self, writer: LedgerWriter) -> None:
        if writer in self._new:
            await self._new.settled()
            if self._state.failure is not None:
                raise self._state.failure
        durable = await self._files.in_thread(writer.flush)
        if durable.entry_id >= 0:
            self._state.advance(durable)

    async def flush(self) -> None:
        """Waits until everything appended is durable. Raises the error that failed the log."""
        while self._task is not None:
            await asyncio.shield(self._task)
        if self._state.failure is not None:
            raise self._state.failure

    async def flush_before(self, ledger_id: int) -> None:
        """Flushes and closes the ledgers before `ledger_id`.

        Raises the error that failed the log.
        """
        await self._with_disk(lambda: self._flush_before(ledger_id))

    async def _flush_before(self, ledger_id: int) -> None:
        followed = self._writers.followed
        while followed and followed[0].ledger_id < ledger_id:
            await self._flush_one(followed[0])

    async def seal(self) -> Position | None:
        """Flushes the currently open ledger and seals its segment.

        Returns the last durable position, None if there is none: sealed segments contain everything
        through it. Publishing continues: entries appended during the seal go into the next segment,
        even if another ledger follows by then. Raises the error that failed the log.
        """
        return await self._with_disk(self._seal)

    async def _seal(self) -> Position | None:
        writer = self._writers.open
        assert writer is not None
        await self._flush_before(writer.ledger_id)
        await self._flush_writer(writer)
        # No later ledger has durable entries: the disk was held since this one was open.
        await self._files.in_thread(writer.seal_segment)
        return self._state.last_durable

    @runs_to_completion
    async def _with_disk(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Runs `work` once the disk is free, to completion even if the caller is cancelled.

        Raises the error that failed the log; a failure of `work` fails the log.
        """
        async with self._disk:
            if self._state.failure is not None:
                raise self._state.failure
            try:
                return await work()
            except LedgerfoldError as error:
                self._state.fail(error)
                raise

    async def close(self) -> bool:
        """Flushes, closes the open ledger, and ends all reads with Moved. Raises DiskFailure.

        Returns whether everything appended is durable: False after an earlier failure. Ledgers left
        open by it are closed when the topic is loaded again.
        """
        try:
            # NOTE: not after a failure in any ledger: queued entries follow lost ones.
            if self._state.failure is None:
                await self.flush()
        finally:
            await self._new.settled()
            has_failed = self._state.failure is not None
            writer, self._writers.open = self._writers.open, None
            self._state.close()
            # NOTE: after a failure, too: a thread may still write to the next ledger to recover.
            await self._close(None if has_failed else writer)
        return not has_failed

    @runs_to_completion
    async def _close(self, writer: LedgerWriter | None) -> None:
        async with self._disk:
            if writer is not None:
                await self._files.in_thread(writer.close)

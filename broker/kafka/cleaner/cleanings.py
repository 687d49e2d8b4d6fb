"""Cleanings in progress: awaits and aborts them; pauses prevent new ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from ledgerfold.broker.kafka.cleaner.cleaning import CleaningResult
from ledgerfold.broker.kafka.cleaner.states import Aborted, InProgress, States
from ledgerfold.storage.errors import (
    CompactionCancelled,
    CompactorUnavailable,
    DiskFailure,
    LedgerfoldError,
)


class Cleanings:
    """The states of logs, and the tasks of their cleanings, on the event loop."""

    def __init__(self) -> None:
        self.states = States()
        self._cleanings: dict[str, asyncio.Task[CleaningResult]] = {}
        # Set when a log leaves its state.
        self._changed = asyncio.Event()
        # Logs whose stored pauses are in their state; bounded by the number of topics.
        self._restored = set[str]()
        # Pauses by administrators that are not stored; bounded as above.
        self.unstored = Counter[str]()
        # How often a log met a full disk since its last completed cleaning.
        self._full_disks: dict[str, int] = {}

    async def _run(self, name: str, work: Coroutine[Any, Any, CleaningResult]) -> CleaningResult:
        """Runs a cleaning as a task. Raises CompactionCancelled if it is aborted."""
        task = self._cleanings[name] = asyncio.create_task(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                # The pass itself is cancelled, with or without the cleaning.
                cancel_once(task)
                await asyncio.wait({task})
                raise
            raise CompactionCancelled(f"The cleaning of {name} was aborted.") from None
        finally:
            del self._cleanings[name]

    def _obstacle(self, name: str, error: Exception) -> LedgerfoldError | None:
        """Returns the error of a cleaning if it is not its log's fault: the log is tried again.

        After a full disk other logs come first, for which there may be room.
        """
        if isinstance(error, DiskFailure) and error.is_full:
            self._full_disks[name] = self._full_disks.get(name, 0) + 1
            return error
        return error if isinstance(error, CompactorUnavailable) else None

    async def idle(self, name: str) -> None:
        """Waits until no cleaning or deletion of the log is in progress."""
        while isinstance(self.states.of(name), InProgress | Aborted):
            await self._changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _end(self, name: str) -> None:
        self.states.end(name)
        self._wake()

    async def abort_and_pause(self, name: str) -> None:
        """Aborts a log's cleaning and prevents another until resume(). Returns once paused."""
        while self.states.is_aborted(name):
            # Another caller is aborting it, too.
            await self._changed.wait()
        if not self.states.abort_and_pause(name):
            if name in self._cleanings:
                cancel_once(self._cleanings[name])
            while self.states.is_aborted(name):
                await self._changed.wait()

    def restore_pauses(self, name: str, holds: int) -> None:
        """Restores the pauses in the record of a log, if this is its first load since the start."""
        if name not in self._restored:
            self._restored.add(name)
            self.states.restore(name, holds)

    def resume(self, name: str) -> None:
        self.states.resume(name)
        self._wake()

    def end_pause(self, name: str) -> None:
        """Ends the caller's pause, unless the log was deleted meanwhile."""
        self.states.end_pause(name)
        self._wake()

    @asynccontextmanager
    async def paused(self, name: str, *, aborts: bool) -> AsyncIterator[None]:
        """Pauses a log for the block. A cleaning is aborted if `aborts`, else awaited."""
        if aborts:
            await self.abort_and_pause(name)
        else:
            await self.idle(name)
            self.states.abort_and_pause(name)
        try:
            yield
        finally:
            self.end_pause(name)

    async def forget(self, name: str) -> None:
        """Aborts the log's cleaning before its topic is unloaded."""
        if name in self._cleanings:
            task = self._cleanings[name]
            cancel_once(task)
            await asyncio.wait({task})


def cancel_once(task: asyncio.Task[CleaningResult]) -> None:
    """Cancels a cleaning once: a second cancel would interrupt the wait for the worker."""
    if not task.cancelling():
        task.cancel()

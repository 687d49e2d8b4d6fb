"""Running work, as the event loop sees it: its progress, its end, its cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, Future
from typing import Generic

from ledgerfold.compactor.job.work import EngineRun, Result, Work
from ledgerfold.storage.errors import CompactionCancelled, CompactionFailed
from ledgerfold.v1.admin_pb2 import COMPACTION_PHASE_QUEUED, CompactionProgress

# The interval of progress reports, and of repeated cancellations.
_TICK_SECONDS = 0.1


class Running(Generic[Result]):
    """Work that begins when the executor reaches it."""

    def __init__(self, work: Work[Result], executor: Executor) -> None:
        self._work = work
        self._future: Future[Result] = executor.submit(work.execute)
        self._end = asyncio.wrap_future(self._future)
        # The caller may have left; then nobody else retrieves the error.
        self._end.add_done_callback(lambda end: end.cancelled() or end.exception())
        self._cancelling: asyncio.Task[None] | None = None
        self._why = ""

    async def result(self) -> Result:
        """Returns the result. Raises CompactionCancelled, CompactionFailed, StorageError,
        InvalidRequest.
        """
        await asyncio.wait({self._end})
        if self._future.cancelled():
            if self._why:
                raise CompactionFailed("start", self._why, worker_died=True)
            raise CompactionCancelled("The compaction was cancelled.")
        return self._end.result()

    def cancel(self, why: str = "") -> None:
        """Cancels the work: soon, or at once if it is queued. `why`: the worker is stopping."""
        self._why = self._why or why
        if self._cancelling is None and not self._future.cancel() and not self._future.done():
            self._cancelling = asyncio.create_task(self._cancel_until_ended())

    async def ended(self) -> None:
        """Waits for the end, regardless of the result."""
        await asyncio.wait({self._end})

    async def _cancel_until_ended(self) -> None:
        while not self._end.done():
            await asyncio.to_thread(self._work.cancel, self._why)
            await asyncio.wait({self._end}, timeout=_TICK_SECONDS)


class RunningCompaction(Running[Result]):
    """A running compaction. Calls `on_end` once, on the event loop."""

    def __init__(
        self, run: EngineRun[Result], executor: Executor, on_end: Callable[[], None]
    ) -> None:
        super().__init__(run, executor)
        self._run = run
        self._end.add_done_callback(lambda end: on_end())

    async def progress(self) -> AsyncIterator[CompactionProgress]:
        """Yields the progress now and after each change, until the run has ended."""
        last: CompactionProgress | None = None
        while not self._end.done():
            now = CompactionProgress(phase=COMPACTION_PHASE_QUEUED)
            if self._future.running():
                now = self._run.progress
            if now != last:
                last = now
                yield now
            await asyncio.wait({self._end}, timeout=_TICK_SECONDS)

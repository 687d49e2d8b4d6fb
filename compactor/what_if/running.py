"""A running analysis, as the event loop sees it: its result, cancellation and preemption."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future

from ledgerfold.compactor.what_if.spark_analysis import SparkAnalysis
from ledgerfold.storage.errors import CompactionCancelled, CompactorUnavailable
from ledgerfold.v1.what_if_pb2 import TopicWhatIf

# A cancellation is repeated this often: a job may have been about to start.
_TICK_SECONDS = 0.1
# Attempts, as runs preempt an analysis.
ATTEMPTS = 5


class RunningAnalysis:
    """An analysis in progress. `make` creates each attempt; `executor` also queues runs."""

    def __init__(self, make: Callable[[], SparkAnalysis], executor: Executor) -> None:
        self._make, self._executor = make, executor
        self._now: _Attempt | None = None
        self._is_cancelled = False

    async def result(self) -> TopicWhatIf:
        """Waits for the result. Raises CompactionCancelled, CompactorUnavailable, and what
        SparkAnalysis raises.
        """
        for _ in range(ATTEMPTS):
            self._now = _Attempt(self._make(), self._executor)
            await self._now.ended()
            if self._is_cancelled:
                raise CompactionCancelled("The analysis was cancelled.")
            # Otherwise the run that preempted it is ahead of it in the queue.
            if not self._now.was_cancelled:
                return self._now.future.result()
        raise CompactorUnavailable(
            f"The analysis gave way to compactions {ATTEMPTS} times. Try again later."
        )

    def cancel(self) -> None:
        """Cancels the analysis, which ends soon."""
        self._is_cancelled = True
        self.give_way()

    def give_way(self) -> None:
        """Cancels the attempt; the next one is queued after the present queue."""
        if self._now is not None:
            self._now.cancel()


class _Attempt:
    def __init__(self, run: SparkAnalysis, executor: Executor) -> None:
        self._run = run
        self.future: Future[TopicWhatIf] = executor.submit(run.execute)
        self._end = asyncio.wrap_future(self.future)
        # The caller may have left, and nobody else retrieves the error.
        self._end.add_done_callback(lambda end: end.cancelled() or end.exception())
        self._cancelling: asyncio.Task[None] | None = None

    @property
    def was_cancelled(self) -> bool:
        """True if an ended attempt was cancelled."""
        future = self.future
        return future.cancelled() or isinstance(future.exception(), CompactionCancelled)

    async def ended(self) -> None:
        """Waits for the end, whatever the result."""
        await asyncio.wait({self._end})

    def cancel(self) -> None:
        if self._cancelling is None and not self.future.cancel() and not self.future.done():
            self._cancelling = asyncio.create_task(self._cancel_until_ended())

    async def _cancel_until_ended(self) -> None:
        while not self._end.done():
            await asyncio.to_thread(self._run.cancel)
            await asyncio.wait({self._end}, timeout=_TICK_SECONDS)

"""An analysis on its way, as the event loop sees it: its end, its cancellation, its giving way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future

from ledgerfold.compactor.what_if.spark_analysis import SparkAnalysis
from ledgerfold.storage.errors import CompactionCancelled, CompactorUnavailable
from ledgerfold.v1.what_if_pb2 import TopicWhatIf

# A cancellation is repeated this often: a job may have been about to start.
_TICK_SECONDS = 0.1
# How often it begins anew behind runs that came.
ATTEMPTS = 5


class RunningAnalysis:
    """`make` gives a fresh one for each attempt; `executor` is the one that runs queue up on."""

    def __init__(self, make: Callable[[], SparkAnalysis], executor: Executor) -> None:
        self._make, self._executor = make, executor
        self._now: _Attempt | None = None
        self._is_cancelled = False

    async def result(self) -> TopicWhatIf:
        """Raises CompactionCancelled, CompactorUnavailable, and what SparkAnalysis raises."""
        for _ in range(ATTEMPTS):
            self._now = _Attempt(self._make(), self._executor)
            await self._now.ended()
            if self._is_cancelled:
                raise CompactionCancelled("The analysis was cancelled.")
            # Else the run that it gave way to stands in the queue before it.
            if not self._now.was_cancelled:
                return self._now.future.result()
        raise CompactorUnavailable(
            f"The analysis gave way to compactions {ATTEMPTS} times. Try again later."
        )

    def cancel(self) -> None:
        """It ends soon."""
        self._is_cancelled = True
        self.give_way()

    def give_way(self) -> None:
        """The attempt ends soon; the next one begins behind what is in the queue then."""
        if self._now is not None:
            self._now.cancel()


class _Attempt:
    def __init__(self, run: SparkAnalysis, executor: Executor) -> None:
        self._run = run
        self.future: Future[TopicWhatIf] = executor.submit(run.execute)
        self._end = asyncio.wrap_future(self.future)
        # Whoever asked may be gone: nobody else looks at its error then.
        self._end.add_done_callback(lambda end: end.cancelled() or end.exception())
        self._cancelling: asyncio.Task[None] | None = None

    @property
    def was_cancelled(self) -> bool:
        """Of one that has ended."""
        future = self.future
        return future.cancelled() or isinstance(future.exception(), CompactionCancelled)

    async def ended(self) -> None:
        """Whatever its result."""
        await asyncio.wait({self._end})

    def cancel(self) -> None:
        if self._cancelling is None and not self.future.cancel() and not self.future.done():
            self._cancelling = asyncio.create_task(self._cancel_until_ended())

    async def _cancel_until_ended(self) -> None:
        while not self._end.done():
            await asyncio.to_thread(self._run.cancel)
            await asyncio.wait({self._end}, timeout=_TICK_SECONDS)

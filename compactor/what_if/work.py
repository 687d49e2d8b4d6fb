"""An analysis as the worker runs it: a group of jobs that can be cancelled and preempted.

It creates no folder and writes no file. It is queued with runs, and a run preempts it: the analysis
ends, and starts again after that run.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor

from ledgerfold.compactor.job.engine import Engine
from ledgerfold.compactor.job.running import Running
from ledgerfold.compactor.job.work import Work
from ledgerfold.storage.errors import (
    CompactionCancelled,
    CompactionFailed,
    CompactorUnavailable,
    LedgerfoldError,
)
from ledgerfold.v1.what_if_pb2 import TopicWhatIf

STAGE = "what-if"
STRATEGIES_MAX = 16
# Attempts, as runs preempt an analysis.
ATTEMPTS = 5
_log = logging.getLogger(__name__)


class AnalysisWork(Work[TopicWhatIf]):
    """A cancellable analysis."""

    def __init__(self, engine: Engine, topic: str) -> None:
        super().__init__(f"what-if {uuid.uuid4().hex}", engine)
        self._topic = topic

    @abstractmethod
    def _execute(self) -> TopicWhatIf:
        """Runs within its job group."""

    def execute(self) -> TopicWhatIf:
        """Runs the analysis. Raises CompactionCancelled, CompactionFailed, StorageError."""
        try:
            with self._engine.job_group(self._group, self._topic):
                self._check_cancelled()
                return self._execute()
        except LedgerfoldError:
            raise
        except self._engine.failures as error:
            why = self._engine.end_causing(error)
            if why is not None:
                raise CompactionFailed(STAGE, why) from error
            self._check_cancelled()
            _log.error("%s failed", self._group, exc_info=error)
            raise CompactionFailed(STAGE, self._engine.sentence_of(error)) from error

    def _cancelled(self) -> CompactionCancelled:
        return CompactionCancelled("The analysis was cancelled.")


class RunningAnalysis:
    """An analysis in progress. `make` creates each attempt; `executor` also queues runs."""

    def __init__(self, make: Callable[[], AnalysisWork], executor: Executor) -> None:
        self._make, self._executor = make, executor
        self._now: Running[TopicWhatIf] | None = None
        self._is_cancelled = False

    async def result(self) -> TopicWhatIf:
        """Waits for the result. Raises CompactionCancelled, CompactorUnavailable, and what
        AnalysisWork raises.
        """
        for _ in range(ATTEMPTS):
            self._now = Running(self._make(), self._executor)
            await self._now.ended()
            if self._is_cancelled:
                raise CompactionCancelled("The analysis was cancelled.")
            # A cancelled attempt was preempted by a run, which precedes the next attempt in the
            # queue.
            with contextlib.suppress(CompactionCancelled):
                return await self._now.result()
        raise CompactorUnavailable(
            f"Compactions interrupted the analysis {ATTEMPTS} times. Try again later."
        )

    def cancel(self) -> None:
        """Cancels the analysis, which ends soon."""
        self._is_cancelled = True
        self.preempt()

    def preempt(self) -> None:
        """Cancels the attempt; the next attempt is added at the end of the queue."""
        if self._now is not None:
            self._now.cancel()

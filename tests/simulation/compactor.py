"""A worker in memory that compacts step by step: it can be interrupted, killed, and delayed.

It replaces the supervisor (broker/worker/supervisor.py) and handles files as the real worker does,
through the same interface, in a job of a separate process: creates the run's folder, reads and
verifies the plan's segments, writes survivors aside, syncs, renames, syncs the folders. The pure
model of the plan's strategy determines the survivors (tests/model/choice_model.py).

* `kill(late_calls)`: the run fails at once; the old worker's job continues for that many file
  system calls, as Spark's tasks do, in parallel with its successor.
* When the broker dies, its worker also notices late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from ledgerfold.broker.worker.compactor import Compactor, OnProgress
from ledgerfold.storage.errors import (
    CompactionCancelled,
    CompactionFailed,
    CompactorUnavailable,
    InvalidStrategy,
    LedgerfoldError,
)
from ledgerfold.storage.files import Files
from ledgerfold.v1.compactor_pb2 import (
    AnalyzeRequest,
    CleanManifest,
    CleanPlan,
    CompactionPlan,
    DescribeDecisionsRequest,
    DescribeDecisionsResponse,
    Manifest,
)
from ledgerfold.v1.records_pb2 import CompactionStrategy
from ledgerfold.v1.what_if_pb2 import TopicWhatIf
from tests.simulation.disk import Disk
from tests.simulation.executor import SimExecutor
from tests.simulation.files import SimFiles
from tests.simulation.jobs import Process
from tests.simulation.loop import PROCESS
from tests.simulation.moments import CALLED_BY_WORKER, MANIFEST
from tests.support.kafka_round import KafkaRound
from tests.support.survivors import Survivors

T = TypeVar("T", covariant=True)


class SimCompactor(Compactor):
    """A compactor, one per broker process. Workers are numbered over the whole simulation."""

    def __init__(
        self,
        disk: Disk,
        new_worker: Callable[[], Process],
        reach: Callable[[str], None] = lambda moment: None,
        planned: Callable[[CleanPlan], None] = lambda plan: None,
    ) -> None:
        """`planned`: called with each cleaning that it gets."""
        self._disk, self._new_worker, self._reach = disk, new_worker, reach
        self._planned = planned
        self.worker = new_worker()
        self._died: asyncio.Future[None] | None = None

    def start(self) -> None:
        """Does nothing."""

    async def stop(self) -> None:
        """Does nothing."""

    async def known(self) -> None:
        """Returns at once: the compactor is known."""

    def retry_now(self) -> None:
        """Does nothing: it never waits."""

    async def describe_decisions(
        self, request: DescribeDecisionsRequest
    ) -> DescribeDecisionsResponse:
        """Returns no words."""
        return DescribeDecisionsResponse()

    async def check_strategy(self, strategy: CompactionStrategy) -> None:
        """Accepts only built-in strategies."""
        raise InvalidStrategy(strategy.name, "it is not known here")

    @property
    def is_running(self) -> bool:
        return self._died is not None

    def kill(self, late_calls: int) -> None:
        """Kills the worker as kill -9 does."""
        self.worker.crash_in = late_calls
        self.worker = self._new_worker()
        if self._died is not None and not self._died.done():
            self._died.set_result(None)

    async def analyze(self, request: AnalyzeRequest) -> TopicWhatIf:
        """Never called: the simulation has no analyses."""
        raise CompactorUnavailable("There is no Spark here.")

    async def run(self, plan: CompactionPlan, on_progress: OnProgress) -> Manifest:
        worker = self.worker
        return await self._execute(_Run(plan, self._files(worker), worker), worker)

    async def clean(self, plan: CleanPlan) -> CleanManifest:
        """Runs a cleaning of a Kafka log, as run()."""
        worker = self.worker
        self._planned(plan)
        return await self._execute(_Clean(plan, self._files(worker)), worker)

    def _files(self, worker: Process) -> SimFiles:
        def called(operation: str) -> None:
            moment = CALLED_BY_WORKER.get(operation)
            if moment is not None:
                self._reach(moment)

        return SimFiles(self._disk, worker, called)

    async def _execute(self, task: _Work[T], worker: Process) -> T:
        loop = asyncio.get_running_loop()
        died = loop.create_future()
        self._died = died
        done = loop.run_in_executor(SimExecutor(self._disk.jobs, worker), task.execute)
        try:
            await asyncio.wait({done, died}, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                raise CompactionFailed("worker", "it died")
            self._reach(MANIFEST)
            return done.result()
        except asyncio.CancelledError:
            task.is_cancelled = True
            process = PROCESS.get()
            # A dead broker waits for nothing.
            if process is None or not process.is_dead:
                await asyncio.wait({done, died}, return_when=asyncio.FIRST_COMPLETED)
            raise
        finally:
            self._died = None


class _Work(Protocol[T]):
    is_cancelled: bool

    def execute(self) -> T: ...


class _Clean:
    """A cleaning; its output is removed unless it completes."""

    def __init__(self, plan: CleanPlan, files: Files) -> None:
        self._files = files
        self._round = KafkaRound(plan, files, self._check)
        self.is_cancelled = False

    def execute(self) -> CleanManifest:
        try:
            for folder in self._round.folders():
                self._files.remove_dir(folder)
            return self._round.run()
        except (LedgerfoldError, OSError) as error:
            for folder in self._round.folders():
                _remove(self._files, folder)
            if isinstance(error, LedgerfoldError):
                raise
            raise CompactionFailed("worker", repr(error)) from error

    def _check(self) -> None:
        if self.is_cancelled:
            raise CompactionCancelled("The round was cancelled.")


def _remove(files: Files, folder: Path) -> None:
    for _ in range(3):
        try:
            files.remove_dir(folder)
            return
        except (LedgerfoldError, FileNotFoundError):
            continue


class _Run:
    def __init__(self, plan: CompactionPlan, files: Files, worker: Process) -> None:
        self._plan, self._files, self._worker = plan, files, worker
        self._folder = Path(plan.ledgers_dir) / str(plan.ledger_id)
        self.is_cancelled = False

    def execute(self) -> Manifest:
        try:
            return self._execute()
        except (LedgerfoldError, OSError) as error:
            _remove(self._files, self._folder)
            if isinstance(error, LedgerfoldError):
                raise
            raise CompactionFailed("worker", repr(error)) from error

    def _execute(self) -> Manifest:
        plan, files = self._plan, self._files
        files.remove_dir(self._folder)
        files.make_dir(self._folder)
        work = Survivors(plan, files, check=self._check, segment_bytes_max=plan.segment_bytes_max)
        segments, counts = work.write()
        if segments:
            files.sync_dir(self._folder)
        else:
            files.remove_dir(self._folder)
        files.sync_dir(self._folder.parent)
        return Manifest(
            run_id=plan.run_id,
            ledger_id=plan.ledger_id,
            horizon=plan.horizon,
            segments=segments,
            counts=counts,
            # Without it, no later run keeps a segment.
            strategy_version=str(plan.strategy_version or ""),
        )

    def _check(self) -> None:
        if self.is_cancelled:
            raise CompactionCancelled("The compaction was cancelled.")

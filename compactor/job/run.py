"""A compaction run in the worker: the new ledger's folder, the job, the manifest."""

from __future__ import annotations

import logging
from itertools import chain
from pathlib import Path

from ledgerfold.compactor import memory
from ledgerfold.compactor.job.engine import Engine
from ledgerfold.compactor.job.pipeline import Clock, JobResult, run_job
from ledgerfold.compactor.job.plan import TaskPlan, cut, key_bytes_of
from ledgerfold.compactor.job.progress import Parts, copy_parts, scan_parts
from ledgerfold.compactor.job.work import PROCESS_ENDED, EngineRun
from ledgerfold.compactor.user_strategies.own import Own
from ledgerfold.storage import crash_points
from ledgerfold.storage.errors import (
    Corruption,
    IncompatibleFormat,
    LedgerfoldError,
    MissingFile,
    StrategyFailed,
)
from ledgerfold.storage.files import Files
from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest

_log = logging.getLogger(__name__)


class CompactionRun(EngineRun[Manifest]):
    """The execution of a CompactionPlan."""

    def __init__(
        self,
        plan: CompactionPlan,
        engine: Engine,
        files: Files,
        clock: Clock,
        own: Own | None = None,
    ) -> None:
        """Prepares the run. `own`: the plan's strategy, if it is user-defined
        (compactor/user_strategies/sandbox.py).

        Raises InvalidRequest if the plan is invalid.
        """
        self.plan, self._own, self._clock = plan, own, clock
        self._take(cut(plan, engine.cores, own))
        super().__init__(plan.run_id, plan.topic, engine, files)

    def _take(self, tasks: TaskPlan) -> None:
        self._tasks = tasks
        scanned = scan_parts(list(chain.from_iterable(tasks.scans)), key_bytes_of)
        self._parts = scanned.plus(copy_parts(tasks.segments))._replace(
            scans=len(tasks.scans), merges=tasks.buckets, copies=len(tasks.copies)
        )

    @property
    def _total(self) -> Parts:
        return self._parts

    def _failure_of(self, error: Exception) -> LedgerfoldError:
        if self._own is not None and self._engine.is_end_of_process(error):
            return StrategyFailed(self._own.name, f"in {self._stage}", PROCESS_ENDED)
        return super()._failure_of(error)

    def _run_job(self) -> JobResult:
        engine = self._engine
        return run_job(engine.context, self._tasks, engine.progress, self._clock)

    def _read_all(self, folder: Path) -> None:
        """Starts over without key indexes. No task is running."""
        self._files.remove_dir(folder)
        self._files.make_dir(folder)
        plan = CompactionPlan()
        plan.CopyFrom(self.plan)
        plan.keeps_segments = False
        self._take(cut(plan, self._engine.cores, self._own))
        self._before = self._engine.progress.value

    def _work(self) -> Manifest:
        folder = self._tasks.output.folder
        self._make(folder)
        crashing = crash_points.armed(self.plan.crash_at)
        with crashing, self._jobs(), self._engine.code_of(self._own):
            try:
                segments, counts = self._run_job()
            except (Corruption, MissingFile, IncompatibleFormat) as error:
                if not self._tasks.indexed:
                    raise
                # A key index is derived data. If a segment is damaged, the full run finds that.
                fact = getattr(error, "fact", error)
                _log.warning("Run %s reads every segment: %s", self.run_id, fact)
                self._read_all(folder)
                segments, counts = self._run_job()
        counts.worker_peak_bytes = memory.peak_bytes()
        self._settle(folder, holds_files=bool(segments))
        self._files.sync_dir(folder.parent)
        crash_points.reach("worker.before-manifest")
        return Manifest(
            run_id=self.plan.run_id,
            ledger_id=self.plan.ledger_id,
            horizon=self.plan.horizon,
            segments=segments,
            counts=counts,
            strategy_version=str(self._tasks.strategy.version),
            engine=self._engine.name,
        )

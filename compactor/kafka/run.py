"""One cleaning in the worker: folders for the new ledgers, the jobs, the manifest."""

from __future__ import annotations

from pathlib import Path

from ledgerfold.compactor import memory
from ledgerfold.compactor.job.engine import Engine
from ledgerfold.compactor.job.pipeline import Clock
from ledgerfold.compactor.job.plan import size_bytes_of
from ledgerfold.compactor.job.progress import Parts, copy_parts, scan_parts
from ledgerfold.compactor.job.work import EngineRun
from ledgerfold.compactor.kafka.job import CleaningJob
from ledgerfold.compactor.kafka.plan import plan_tasks
from ledgerfold.storage import crash_points
from ledgerfold.storage.files import Files
from ledgerfold.v1.compactor_pb2 import CleanManifest, CleanPlan


class CleanRun(EngineRun[CleanManifest]):
    """A run of a CleanPlan. A dry run creates no folder."""

    def __init__(self, plan: CleanPlan, engine: Engine, files: Files, clock: Clock) -> None:
        """Raises InvalidRequest if the plan is invalid."""
        self.plan = plan
        tasks = plan_tasks(plan, engine.cores)
        parts = scan_parts(tasks.files, size_bytes_of).plus(copy_parts(tasks.files))
        self._parts = parts._replace(scans=len(tasks.scans), merges=tasks.buckets)
        self._ledgers_dir = Path(plan.ledgers_dir)
        self._job = CleaningJob(engine, plan, tasks, clock)
        super().__init__(plan.run_id, plan.topic, engine, files)

    @property
    def _total(self) -> Parts:
        """The parts. Phase one is the map; it is reported as done while a full map is rebuilt."""
        return self._parts._replace(copies=self._job.copies)

    def _work(self) -> CleanManifest:
        with self._jobs():
            manifest = self._job.run(self._make)
        manifest.stats.worker_peak_bytes = memory.peak_bytes()
        written = {group.ledger_id for group in manifest.groups if group.files}
        for folder in self._folders:
            self._settle(folder, holds_files=int(folder.name) in written)
        if self._folders:
            self._files.sync_dir(self._ledgers_dir)
        crash_points.reach("worker.before-manifest")
        return manifest

"""One cleaning in the worker: folders for the new ledgers, the Spark jobs, the manifest."""

from __future__ import annotations

from pathlib import Path

from ledgerfold.compactor import memory
from ledgerfold.compactor.job.pipeline import Clock
from ledgerfold.compactor.job.session import Session
from ledgerfold.compactor.job.spark_run import SparkRun
from ledgerfold.compactor.kafka.job import CleaningJob
from ledgerfold.compactor.kafka.plan import plan_tasks
from ledgerfold.storage import crash_points
from ledgerfold.storage.files import Files
from ledgerfold.v1.admin_pb2 import (
    COMPACTION_PHASE_ONE,
    COMPACTION_PHASE_TWO,
    CompactionProgress,
)
from ledgerfold.v1.compactor_pb2 import CleanManifest, CleanPlan


class CleanRun(SparkRun[CleanManifest]):
    """A run of a CleanPlan. A dry run creates no folder."""

    def __init__(self, plan: CleanPlan, session: Session, files: Files, clock: Clock) -> None:
        """Raises InvalidRequest if the plan is invalid."""
        self.plan = plan
        self._tasks = plan_tasks(plan, session.cores)
        self._ledgers_dir = Path(plan.ledgers_dir)
        self._before = session.progress.value
        self._job = CleaningJob(session.context, plan, self._tasks, session.progress, clock)
        super().__init__(plan.run_id, session, files)

    @property
    def progress(self) -> CompactionProgress:
        """The progress. Phase one is the map; it seems done while a full map is rebuilt."""
        done = self._session.progress.value.minus(self._before)
        scans, merges = len(self._tasks.scans), self._tasks.buckets
        messages = sum(file.record.messages for file in self._tasks.files)
        size_bytes = sum(file.record.size_bytes for file in self._tasks.files)
        is_mapping = done.scans + done.merges < scans + merges
        return CompactionProgress(
            phase=COMPACTION_PHASE_ONE if is_mapping else COMPACTION_PHASE_TWO,
            tasks_done=done.scans + done.merges if is_mapping else done.copies,
            tasks_total=scans + merges if is_mapping else self._job.copies,
            messages=min(done.scanned_messages if is_mapping else done.copied_messages, messages),
            bytes=min(done.scanned_bytes if is_mapping else done.copied_bytes, size_bytes),
            messages_total=messages,
            bytes_total=size_bytes,
        )

    def _work(self) -> CleanManifest:
        self._before = self._session.progress.value
        memory.reset_peaks()
        crash_points.reach("worker.phase-one")
        with self._session.job_group(self.plan.run_id, self.plan.topic):
            self._check_cancelled()
            manifest = self._job.run(self._make)
        self._check_cancelled()
        manifest.stats.worker_peak_bytes = memory.peak_bytes()
        written = {group.ledger_id for group in manifest.groups if group.files}
        for folder in self._made:
            self._settle(folder, holds_files=int(folder.name) in written)
        if self._made:
            self._files.sync_dir(self._ledgers_dir)
        crash_points.reach("worker.before-manifest")
        return manifest

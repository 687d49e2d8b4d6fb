"""One run in the worker: the new ledger's folder, the Spark job, the manifest.

However a run ends, its folder is complete (and then named by a manifest) or gone. Tasks that Spark
was told to stop may go on for a moment; they cannot create the folder, only files in it, so
removing it is tried until it holds.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from pathlib import Path

from ledgerfold.v1.admin_pb2 import (
    COMPACTION_PHASE_ONE,
    COMPACTION_PHASE_TWO,
    CompactionProgress,
)
from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest
from py4j.protocol import Py4JError, Py4JJavaError

from compactor import memory
from compactor.pipeline import Clock, run_job
from compactor.plan import TaskPlan, cut
from compactor.progress import progress_of
from compactor.session import Session
from storage import crash_points
from storage.errors import (
    CompactionCancelled,
    CompactionFailed,
    DiskFailure,
    LedgerfoldError,
)
from storage.files import Files

_REMOVAL_TRIES = 1000
_STAGES = {COMPACTION_PHASE_ONE: "phase one", COMPACTION_PHASE_TWO: "phase two"}
# The last line of a Python traceback: "OSError: ...", "pyarrow.lib.ArrowInvalid: ..."
_PYTHON_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Invalid)\b")
_log = logging.getLogger(__name__)


class CompactionRun:
    """`execute` on one thread; the rest may be called from others meanwhile."""

    def __init__(self, plan: CompactionPlan, session: Session, files: Files, clock: Clock) -> None:
        """Raises InvalidRequest when the plan makes no sense."""
        self.plan = plan
        self._tasks: TaskPlan = cut(plan, session.cores)
        self._session, self._files, self._clock = session, files, clock
        self._before = session.progress.value
        self._is_cancelled = threading.Event()

    @property
    def progress(self) -> CompactionProgress:
        return progress_of(self._session.progress.value.minus(self._before), self._tasks)

    def cancel(self) -> None:
        """Asks Spark to stop it. Call until `execute` has ended: a job may be about to start."""
        self._is_cancelled.set()
        # A JVM that is gone runs nothing, which `execute` learns by itself.
        with contextlib.suppress(Py4JError, OSError):
            self._session.context.cancelJobGroup(self.plan.run_id)

    def execute(self) -> Manifest:
        """Raises CompactionCancelled, CompactionFailed, StorageError; no files are left then."""
        folder = self._tasks.output.folder
        try:
            return self._execute(folder)
        except LedgerfoldError:
            self._remove(folder)
            raise
        except (Py4JError, OSError) as error:
            self._remove(folder)
            if self._is_cancelled.is_set():
                raise CompactionCancelled("The compaction was cancelled.") from error
            _log.exception("Run %s failed", self.plan.run_id)
            raise CompactionFailed(self._stage, _sentence(error)) from error
        except BaseException:
            self._remove(folder)
            raise

    def _execute(self, folder: Path) -> Manifest:
        self._check_cancelled()
        self._before = self._session.progress.value
        memory.reset_peaks()
        # What a run of the same ledger id left when its worker was killed.
        self._files.remove_dir(folder)
        self._files.make_dir(folder)
        crash_points.reach("worker.phase-one")
        with self._session.job_group(self.plan.run_id):
            self._check_cancelled()
            segments, counts = run_job(
                self._session.context, self._tasks, self._session.progress, self._clock
            )
        self._check_cancelled()
        counts.worker_peak_bytes = memory.peak_bytes()
        if segments:
            self._files.sync_dir(folder)
        else:
            self._files.remove_dir(folder)
        self._files.sync_dir(folder.parent)
        crash_points.reach("worker.before-manifest")
        return Manifest(
            run_id=self.plan.run_id,
            ledger_id=self.plan.ledger_id,
            horizon=self.plan.horizon,
            segments=segments,
            counts=counts,
        )

    @property
    def _stage(self) -> str:
        return _STAGES[self.progress.phase]

    def _check_cancelled(self) -> None:
        if self._is_cancelled.is_set():
            raise CompactionCancelled("The compaction was cancelled.")

    def _remove(self, folder: Path) -> None:
        for tries_left in reversed(range(_REMOVAL_TRIES)):
            try:
                self._files.remove_dir(folder)
                return
            except (DiskFailure, FileNotFoundError) as error:
                # A task that is being stopped created or renamed a file under our hands.
                if not tries_left:
                    _log.error("What run %s wrote is left behind: %s", self.plan.run_id, error)


def _sentence(error: Exception) -> str:
    """What went wrong, for people: no stack trace (the log has it)."""
    if not isinstance(error, Py4JJavaError):
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    text = str(error.java_exception.getMessage() or "")
    if "Python worker exited unexpectedly" in text or "PYTHON_WORKER_EXITED" in text:
        return "a Python worker of Spark was killed (out of memory?)"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if _PYTHON_ERROR.match(line)]
    return (python or lines or ["Spark gave no reason"])[-1 if python else 0][:300]

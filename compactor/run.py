"""One run in the worker: the new ledger's folder, the Spark job, the manifest.

However a run ends, its folder is complete (and then named by a manifest) or gone. The folder is the
run's own: one that is there already is another's, and is not touched. Tasks that Spark was
told to stop, or whose JVM is gone, may go on for a moment; they cannot create the folder, only
files in it, so removing it is tried until it holds.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError

from ledgerfold.compactor import memory
from ledgerfold.compactor.pipeline import Clock, run_job
from ledgerfold.compactor.plan import TaskPlan, cut
from ledgerfold.compactor.progress import progress_of
from ledgerfold.compactor.session import Session
from ledgerfold.compactor.strategies.own import Own
from ledgerfold.storage import crash_points
from ledgerfold.storage.errors import (
    CompactionCancelled,
    CompactionFailed,
    DiskFailure,
    InvalidRequest,
    LedgerfoldError,
    StrategyFailed,
)
from ledgerfold.storage.files import Files
from ledgerfold.v1.admin_pb2 import (
    COMPACTION_PHASE_ONE,
    COMPACTION_PHASE_TWO,
    CompactionProgress,
)
from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest

# Tasks without a JVM end sooner.
_REMOVAL_SECONDS = 5.0
# Between a connection that broke because the JVM died and the system's word for it.
_JVM_END_SECONDS = 2.0
_STAGES = {COMPACTION_PHASE_ONE: "phase one", COMPACTION_PHASE_TWO: "phase two"}
WORKER_ENDED = (
    "its Python worker of Spark ended (it was out of memory, could not be interrupted, or was "
    "killed)"
)
# The last line of a Python traceback: "OSError: ...", "pyarrow.lib.ArrowInvalid: ..."
_PYTHON_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Invalid)\b")
_log = logging.getLogger(__name__)


class CompactionRun:
    """`execute` on one thread; the rest may be called from others meanwhile."""

    def __init__(
        self,
        plan: CompactionPlan,
        session: Session,
        files: Files,
        clock: Clock,
        own: Own | None = None,
    ) -> None:
        """`own`: what the plan's strategy is, when it is none of ours (trial.py).

        Raises InvalidRequest when the plan makes no sense.
        """
        self.plan, self._own = plan, own
        self._tasks: TaskPlan = cut(plan, session.cores, own)
        self._session, self._files, self._clock = session, files, clock
        self._before = session.progress.value
        self._is_cancelled = threading.Event()
        # Why it was ended, when it was not a cancellation.
        self._why = ""

    @property
    def progress(self) -> CompactionProgress:
        return progress_of(self._session.progress.value.minus(self._before), self._tasks)

    def cancel(self, why: str = "") -> None:
        """Asks Spark to stop it. Call until `execute` has ended: a job may be about to start.

        `why`: it fails with that, instead of being cancelled.
        """
        self._why = self._why or why
        self._is_cancelled.set()
        # A JVM that is gone runs nothing, which `execute` learns by itself.
        with contextlib.suppress(Py4JError, OSError):
            self._session.context.cancelJobGroup(self.plan.run_id)

    def execute(self) -> Manifest:
        """Raises CompactionCancelled, CompactionFailed, StorageError, InvalidRequest (the folder is
        there already); no files of the run are left then.
        """
        self._check_cancelled()
        folder = self._tasks.output.folder
        self._make(folder)
        try:
            return self._execute(folder)
        except LedgerfoldError:
            self._remove(folder)
            raise
        except (Py4JError, OSError) as error:
            named = self._named(error)
            self._remove(folder)
            raise named from error
        except BaseException:
            self._remove(folder)
            raise

    def _make(self, folder: Path) -> None:
        if not self._files.exists(folder.parent):
            raise InvalidRequest(f"There is no ledgers folder {folder.parent} on this machine.")
        if self._files.exists(folder):
            raise InvalidRequest(f"{folder} is there already; a run makes its own folder.")
        self._files.make_dir(folder)

    def _named(self, error: Exception) -> LedgerfoldError:
        """What is the matter, of our own errors."""
        # Spark's own errors come from a JVM that is alive. All others may be about its end, which
        # the system tells a moment later.
        is_sparks = isinstance(error, Py4JJavaError)
        jvm_end = self._session.jvm_end(0 if is_sparks else _JVM_END_SECONDS)
        if jvm_end is not None:
            return CompactionFailed(self._stage, f"Spark's JVM ended ({jvm_end})")
        if self._is_cancelled.is_set():
            return self._cancelled()
        _log.error("Run %s failed", self.plan.run_id, exc_info=error)
        if self._own is not None and is_end_of_worker(error):
            return StrategyFailed(self._own.name, f"in {self._stage}", WORKER_ENDED)
        return CompactionFailed(self._stage, sentence_of(error))

    def _cancelled(self) -> LedgerfoldError:
        if self._why:
            return CompactionFailed(self._stage, self._why)
        return CompactionCancelled("The compaction was cancelled.")

    def _execute(self, folder: Path) -> Manifest:
        self._before = self._session.progress.value
        memory.reset_peaks()
        crash_points.reach("worker.phase-one")
        with (
            self._session.job_group(self.plan.run_id, self.plan.topic),
            self._session.code_of(self._own),
        ):
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
            strategy_version=str(self._tasks.strategy.version),
        )

    @property
    def _stage(self) -> str:
        return _STAGES[self.progress.phase]

    def _check_cancelled(self) -> None:
        if self._is_cancelled.is_set():
            raise self._cancelled()

    def _remove(self, folder: Path) -> None:
        deadline = time.monotonic() + _REMOVAL_SECONDS
        while True:
            try:
                self._files.remove_dir(folder)
                return
            except (DiskFailure, FileNotFoundError) as error:
                # A task that is being stopped created or renamed a file under our hands.
                if time.monotonic() > deadline:
                    _log.error("What run %s wrote is left behind: %s", self.plan.run_id, error)
                    return


def is_end_of_worker(error: Exception) -> bool:
    """Whether a strategy's code took the process along that asked it."""
    text = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else ""
    return "Python worker exited unexpectedly" in text or "PYTHON_WORKER_EXITED" in text


def sentence_of(error: Exception) -> str:
    """What went wrong, for people: no stack trace (the log has it)."""
    if not isinstance(error, Py4JJavaError):
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    text = str(error.java_exception.getMessage() or "")
    if is_end_of_worker(error):
        return "a Python worker of Spark was killed (out of memory?)"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if _PYTHON_ERROR.match(line)]
    return (python or lines or ["Spark gave no reason"])[-1 if python else 0][:300]

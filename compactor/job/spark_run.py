"""What every run in the worker is: folders of its own, a Spark job, and a clean end.

However a run ends, its folders are complete (and then named by what it answers) or gone. They are
the run's own: one that is there already is another's, and is not touched. Tasks that Spark was
told to stop, or whose JVM is gone, may go on for a moment; they cannot create a folder, only
files in it, so removing it is tried until it holds.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Generic, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError

from ledgerfold.compactor.job.session import Session
from ledgerfold.storage.errors import (
    CompactionCancelled,
    CompactionFailed,
    DiskFailure,
    InvalidRequest,
    LedgerfoldError,
)
from ledgerfold.storage.files import Files
from ledgerfold.v1.admin_pb2 import (
    COMPACTION_PHASE_ONE,
    COMPACTION_PHASE_TWO,
    CompactionProgress,
)

Result = TypeVar("Result")
# Tasks without a JVM end sooner.
_REMOVAL_SECONDS = 5.0
WORKER_ENDED = (
    "its Python worker of Spark ended (it was out of memory, could not be interrupted, or was "
    "killed)"
)
# Between a connection that broke because the JVM died and the system's word for it.
_JVM_END_SECONDS = 2.0
_STAGES = {COMPACTION_PHASE_ONE: "phase one", COMPACTION_PHASE_TWO: "phase two"}
# The last line of a Python traceback: "OSError: ...", "pyarrow.lib.ArrowInvalid: ..."
_PYTHON_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Invalid)\b")
_log = logging.getLogger(__name__)


class SparkRun(ABC, Generic[Result]):
    """`execute` on one thread; the rest may be called from others meanwhile."""

    def __init__(self, run_id: str, session: Session, files: Files) -> None:
        self.run_id = run_id
        self._session, self._files = session, files
        self._made: list[Path] = []
        self._is_cancelled = threading.Event()
        # Why it was ended, when it was not a cancellation.
        self._why = ""

    @property
    @abstractmethod
    def progress(self) -> CompactionProgress:
        """How far it is."""

    @abstractmethod
    def _work(self) -> Result:
        """Makes its folders, by `_make`. Raises what its jobs raise."""

    def cancel(self, why: str = "") -> None:
        """Asks Spark to stop it. Call until `execute` has ended: a job may be about to start.

        `why`: it fails with that, instead of being cancelled.
        """
        self._why = self._why or why
        self._is_cancelled.set()
        # A JVM that is gone runs nothing, which `execute` learns by itself.
        with contextlib.suppress(Py4JError, OSError):
            self._session.context.cancelJobGroup(self.run_id)

    def execute(self) -> Result:
        """Raises CompactionCancelled, CompactionFailed, StorageError, InvalidRequest (a folder is
        there already); no files of the run are left then.
        """
        self._check_cancelled()
        try:
            return self._work()
        except LedgerfoldError:
            self._remove_made()
            raise
        except (Py4JError, OSError) as error:
            named = self._named(error)
            self._remove_made()
            raise named from error
        except BaseException:
            self._remove_made()
            raise

    def _make(self, folder: Path) -> None:
        if not self._files.exists(folder.parent):
            raise InvalidRequest(f"There is no ledgers folder {folder.parent} on this machine.")
        if self._files.exists(folder):
            raise InvalidRequest(f"{folder} is there already; a run makes its own folder.")
        self._files.make_dir(folder)
        self._made.append(folder)

    def _named(self, error: Exception) -> LedgerfoldError:
        """What is the matter, of our own errors."""
        # Spark's own errors come from a JVM that is alive. All others may be about its end, which
        # the system tells a moment later.
        is_sparks = isinstance(error, Py4JJavaError)
        jvm_end = self._session.jvm_end(0 if is_sparks else _JVM_END_SECONDS)
        if jvm_end is not None:
            why = f"Spark's JVM ended ({jvm_end})"
            return CompactionFailed(self._stage, why, worker_died=True)
        if self._is_cancelled.is_set():
            return self._cancelled()
        _log.error("Run %s failed", self.run_id, exc_info=error)
        return self._failure_of(error)

    def _failure_of(self, error: Exception) -> LedgerfoldError:
        """Of an error in a task, when nothing else ended the run."""
        why, worker_died = sentence_of(error), is_end_of_worker(error)
        return CompactionFailed(self._stage, why, worker_died=worker_died)

    def _cancelled(self) -> LedgerfoldError:
        if self._why:
            return CompactionFailed(self._stage, self._why, worker_died=True)
        return CompactionCancelled("The compaction was cancelled.")

    @property
    def _stage(self) -> str:
        return _STAGES[self.progress.phase]

    def _check_cancelled(self) -> None:
        if self._is_cancelled.is_set():
            raise self._cancelled()

    def _settle(self, folder: Path, *, holds_files: bool) -> None:
        """Durable as it is; gone when nothing is in it. Its parent is the caller's to sync."""
        if holds_files:
            self._files.sync_dir(folder)
        else:
            self._files.remove_dir(folder)

    def _remove_made(self) -> None:
        deadline = time.monotonic() + _REMOVAL_SECONDS
        for folder in self._made:
            while True:
                try:
                    self._files.remove_dir(folder)
                    break
                except (DiskFailure, FileNotFoundError) as error:
                    # A task that is being stopped created or renamed a file under our hands.
                    if time.monotonic() > deadline:
                        _log.error("What run %s wrote is left behind: %s", self.run_id, error)
                        break


def is_end_of_worker(error: Exception) -> bool:
    """Whether a Python worker of Spark is gone."""
    text = _text_of(error) if isinstance(error, Py4JJavaError) else ""
    return "Python worker exited unexpectedly" in text or "PYTHON_WORKER_EXITED" in text


def sentence_of(error: Exception) -> str:
    """What went wrong, for people: no stack trace (the log has it)."""
    if not isinstance(error, Py4JJavaError):
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    text = _text_of(error)
    if is_end_of_worker(error):
        return "a Python worker of Spark was killed (out of memory?)"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if _PYTHON_ERROR.match(line)]
    return (python or lines or ["Spark gave no reason"])[-1 if python else 0][:300]


def _text_of(error: Py4JJavaError) -> str:
    return str(error.java_exception.getMessage() or "")

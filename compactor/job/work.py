"""The base classes of work on an engine, and of runs: folders, a job, and cleanup.

At the end of a run its folders are either complete (and its result names them) or removed. They
belong to the run: an existing folder belongs to another run and is not touched. Tasks that are
being stopped, or whose engine has ended, may continue for a moment; they cannot create a folder,
only files in it, so its removal is retried until it succeeds.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

from ledgerfold.compactor import memory
from ledgerfold.compactor.job.engine import Engine
from ledgerfold.compactor.job.progress import Parts, progress_of
from ledgerfold.storage import crash_points
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
# Tasks of an engine that has ended stop sooner than this.
_REMOVAL_SECONDS = 5.0
PROCESS_ENDED = (
    "the process of its task ended (it was out of memory, could not be interrupted, or was killed)"
)
_STAGES = {COMPACTION_PHASE_ONE: "phase one", COMPACTION_PHASE_TWO: "phase two"}
_log = logging.getLogger(__name__)


class Work(ABC, Generic[Result]):
    """A group of jobs. One thread calls `execute`; others may call the rest meanwhile."""

    def __init__(self, group: str, engine: Engine) -> None:
        self._group, self._engine = group, engine
        self._is_cancelled = threading.Event()
        # The reason of its end, if it was not a cancellation.
        self._why = ""

    @abstractmethod
    def execute(self) -> Result:
        """Does the work, once."""

    @abstractmethod
    def _cancelled(self) -> LedgerfoldError:
        """Returns the error of work that was cancelled."""

    def cancel(self, why: str = "") -> None:
        """Asks the engine to stop the work. Repeat until `execute` has ended: a job may be about to
        start.

        `why`: a run fails with that reason, instead of being cancelled.
        """
        self._why = self._why or why
        self._is_cancelled.set()
        self._engine.cancel(self._group)

    def _check_cancelled(self) -> None:
        if self._is_cancelled.is_set():
            raise self._cancelled()


class EngineRun(Work[Result]):
    """A run."""

    def __init__(self, run_id: str, topic: str, engine: Engine, files: Files) -> None:
        super().__init__(run_id, engine)
        self.run_id, self._topic, self._files = run_id, topic, files
        self._before = engine.progress.value
        self._folders: list[Path] = []

    @property
    @abstractmethod
    def _total(self) -> Parts:
        """The parts of the complete run, as far as known."""

    @property
    def progress(self) -> CompactionProgress:
        """The progress so far."""
        return progress_of(self._engine.progress.value.minus(self._before), self._total)

    @abstractmethod
    def _work(self) -> Result:
        """Does the work, creating folders with `_make`. Raises what its jobs raise."""

    def execute(self) -> Result:
        """Runs to the end. On an error, no files of the run remain.

        Raises CompactionCancelled, CompactionFailed, StorageError, InvalidRequest (a folder exists
        already).
        """
        self._check_cancelled()
        try:
            return self._work()
        except LedgerfoldError:
            self._remove_made()
            raise
        except self._engine.failures as error:
            typed = self._typed(error)
            self._remove_made()
            raise typed from error
        except BaseException:
            self._remove_made()
            raise

    @contextlib.contextmanager
    def _jobs(self) -> Iterator[None]:
        """Runs the jobs started in the block in the run's group, and measures them."""
        self._before = self._engine.progress.value
        memory.reset_peaks()
        crash_points.reach("worker.phase-one")
        with self._engine.job_group(self.run_id, self._topic):
            self._check_cancelled()
            yield
        self._check_cancelled()

    def _make(self, folder: Path) -> None:
        if not self._files.exists(folder.parent):
            raise InvalidRequest(
                f"The ledgers folder {folder.parent} does not exist on this machine."
            )
        if self._files.exists(folder):
            raise InvalidRequest(f"{folder} already exists; a run creates its own folder.")
        self._files.make_dir(folder)
        self._folders.append(folder)
        self._engine.check_folder(folder)

    def _typed(self, error: Exception) -> LedgerfoldError:
        """Returns the error of our own types that explains `error`."""
        why = self._engine.end_causing(error)
        if why is not None:
            return CompactionFailed(self._stage, why, worker_died=True)
        if self._is_cancelled.is_set():
            return self._cancelled()
        _log.error("Run %s failed", self.run_id, exc_info=error)
        return self._failure_of(error)

    def _failure_of(self, error: Exception) -> LedgerfoldError:
        """Returns the failure for an error in a task, if nothing else ended the run."""
        engine = self._engine
        why, process_ended = engine.sentence_of(error), engine.is_end_of_process(error)
        return CompactionFailed(self._stage, why, worker_died=process_ended)

    def _cancelled(self) -> LedgerfoldError:
        if self._why:
            return CompactionFailed(self._stage, self._why, worker_died=True)
        return CompactionCancelled("The compaction was cancelled.")

    @property
    def _stage(self) -> str:
        return _STAGES[self.progress.phase]

    def _settle(self, folder: Path, *, holds_files: bool) -> None:
        """Syncs the folder, or removes it if empty. The caller syncs the parent."""
        if holds_files:
            self._files.sync_dir(folder)
        else:
            self._files.remove_dir(folder)

    def _remove_made(self) -> None:
        deadline = time.monotonic() + _REMOVAL_SECONDS
        for folder in self._folders:
            while True:
                try:
                    self._files.remove_dir(folder)
                    break
                except (DiskFailure, FileNotFoundError) as error:
                    # A task that is being stopped has created or renamed a file meanwhile.
                    if time.monotonic() > deadline:
                        _log.error("Files of run %s remain: %s", self.run_id, error)
                        break

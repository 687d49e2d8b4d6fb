"""An analysis as the worker runs it: a group of Spark jobs that can be cancelled.

It creates no folder and writes no file. It is queued with runs, and a run preempts it: the analysis
ends, and starts again after that run (running.py).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from abc import ABC, abstractmethod

from py4j.protocol import Py4JError

from ledgerfold.compactor.job.session import Session
from ledgerfold.compactor.job.spark_run import sentence_of
from ledgerfold.storage.errors import CompactionCancelled, CompactionFailed
from ledgerfold.v1.what_if_pb2 import TopicWhatIf

STAGE = "what-if"
# The wait for the exit status after a connection broke because the JVM died.
_JVM_END_SECONDS = 2.0
_log = logging.getLogger(__name__)


class SparkAnalysis(ABC):
    """A cancellable analysis. `execute` runs once, on one thread; others may call `cancel`
    meanwhile.
    """

    def __init__(self, session: Session, topic: str) -> None:
        self._session, self._topic = session, topic
        self._group = f"what-if {uuid.uuid4().hex}"
        self._is_cancelled = threading.Event()

    @abstractmethod
    def _execute(self) -> TopicWhatIf:
        """Runs within its job group."""

    def cancel(self) -> None:
        """Asks Spark to stop it. Repeat until `execute` has ended: a job may be about to start."""
        self._is_cancelled.set()
        with contextlib.suppress(Py4JError, OSError):
            self._session.context.cancelJobGroup(self._group)

    def execute(self) -> TopicWhatIf:
        """Runs the analysis. Raises CompactionCancelled, CompactionFailed, StorageError."""
        try:
            with self._session.job_group(self._group, self._topic):
                self._check_cancelled()
                return self._execute()
        except (Py4JError, OSError) as error:
            jvm_end = self._session.jvm_end(_JVM_END_SECONDS)
            if jvm_end is not None:
                raise CompactionFailed(STAGE, f"Spark's JVM ended ({jvm_end})") from error
            self._check_cancelled()
            _log.error("%s failed", self._group, exc_info=error)
            raise CompactionFailed(STAGE, sentence_of(error)) from error

    def _check_cancelled(self) -> None:
        if self._is_cancelled.is_set():
            raise CompactionCancelled("The analysis was cancelled.")

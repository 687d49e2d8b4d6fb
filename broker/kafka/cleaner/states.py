"""The states of logs during a cleaning, a deletion or a truncation: a log has one at a time.

    >>> states = States()
    >>> states.begin("t-0"), states.abort_and_pause("t-0")
    (True, False)
    >>> states.end("t-0"), states.of("t-0")
    (False, Paused(holds=1))

A cleaning that must end is *aborted*: the worker is notified and ends it. The log is then paused
until every caller that paused it has resumed it. The caller that aborts waits until the log is
paused; abort_and_pause() returns whether the caller has to wait.

A log whose cleaning failed is marked *uncleanable*: it is skipped until a restart or its deletion.
An unload removes neither the mark nor the pauses. Those of an administrator are stored in the
topic's record, too (broker/topics/kafka_settings.py), and restored after a start. The mark has the
kind of the failure, for programs: the reason of an error, WORKER_DIED, or MARKED, which an
administrator set.

Source: LogCleanerManager, LogCleaningState of Kafka 4.1, whose IllegalStateException is a
RuntimeError here: only the broker's own code can cause it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple


class InProgress(NamedTuple):
    """A cleaning or a deletion of segments is in progress."""

    def __str__(self) -> str:
        return "LogCleaningInProgress"


class Aborted(NamedTuple):
    """A cleaning was asked to stop and has not stopped yet."""

    def __str__(self) -> str:
        return "LogCleaningAborted"


class Paused(NamedTuple):
    """No cleaning may begin. `holds`: the number of resumes that end the pause."""

    holds: int

    def __str__(self) -> str:
        return f"LogCleaningPaused{{pausedCount={self.holds}}}"


class Uncleanable(NamedTuple):
    """The reason why a log is skipped: the kind of the failure, and its text."""

    kind: str
    why: str


MARKED, WORKER_DIED = "MARKED", "WORKER_DIED"
State = InProgress | Aborted | Paused


class States:
    """The states of a broker's logs. Bounded by their number: a log without a state has no
    entry.
    """

    def __init__(self) -> None:
        self._of: dict[str, State] = {}
        self._uncleanable: dict[str, Uncleanable] = {}

    def of(self, log: str) -> State | None:
        return self._of.get(log)

    def is_free(self, log: str) -> bool:
        return log not in self._of

    def begin(self, log: str) -> bool:
        """Begins a cleaning or a deletion. Returns False if the log is already in a state, and is
        skipped.
        """
        if log in self._of:
            return False
        self._of[log] = InProgress()
        return True

    def abort_and_pause(self, log: str) -> bool:
        """Pauses a log. Returns False if a cleaning was asked to stop and must be awaited."""
        match self._of.get(log):
            case None:
                self._of[log] = Paused(1)
            case Paused(holds):
                self._of[log] = Paused(holds + 1)
            case InProgress():
                self._of[log] = Aborted()
                return False
            case Aborted() as state:
                raise RuntimeError(
                    f"Compaction for partition {log} cannot be aborted and paused since it is in "
                    f"{state} state."
                )
        return True

    def restore(self, log: str, holds: int) -> None:
        """Adds the pauses that were stored when the log is loaded: no cleaning is in progress."""
        state = self._of.get(log)
        assert state is None or isinstance(state, Paused)
        if holds:
            self._of[log] = Paused(holds + (state.holds if state else 0))

    def resume(self, log: str) -> None:
        match self._of.get(log):
            case None:
                raise RuntimeError(
                    f"Compaction for partition {log} cannot be resumed since it is not paused."
                )
            case Paused(1):
                del self._of[log]
            case Paused(holds):
                self._of[log] = Paused(holds - 1)
            case state:
                raise RuntimeError(
                    f"Compaction for partition {log} cannot be resumed since it is in {state} "
                    "state."
                )

    def end_pause(self, log: str) -> None:
        """Ends the caller's pause, unless the log was deleted meanwhile and the pause with it."""
        if isinstance(self._of.get(log), Paused):
            self.resume(log)

    def pause_free(self, logs: Iterable[str]) -> list[str]:
        """Pauses the logs that have no state, for the retention thread. Returns them."""
        free = [log for log in logs if log not in self._of]
        for log in free:
            self._of[log] = Paused(1)
        return free

    def is_aborted(self, log: str) -> bool:
        """Returns whether a cleaning is to stop. Checked before each buffer is read."""
        return isinstance(self._of.get(log), Aborted)

    def mark_uncleanable(self, log: str, kind: str, why: str) -> None:
        self._uncleanable[log] = Uncleanable(kind, why)

    def is_uncleanable(self, log: str) -> bool:
        return log in self._uncleanable

    @property
    def uncleanable(self) -> Mapping[str, Uncleanable]:
        """The uncleanable logs by name."""
        return MappingProxyType(self._uncleanable)

    def forget(self, log: str) -> None:
        """Drops the pauses and the mark of a deleted log."""
        self._uncleanable.pop(log, None)
        if isinstance(self._of.get(log), Paused):
            del self._of[log]

    def end(self, log: str) -> bool:
        """Ends a cleaning or a deletion. Returns False if it was aborted, and pauses the log."""
        match self._of.get(log):
            case None:
                raise RuntimeError(f"State for partition {log} should exist.")
            case InProgress():
                del self._of[log]
                return True
            case Aborted():
                self._of[log] = Paused(1)
                return False
            case state:
                raise RuntimeError(f"In-progress partition {log} cannot be in {state} state.")

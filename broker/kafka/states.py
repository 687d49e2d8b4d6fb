"""What a log is in while the cleaner, a deletion or a truncation has it: one at a time.

    >>> states = States()
    >>> states.begin("t-0"), states.abort_and_pause("t-0")
    (True, False)
    >>> states.end_cleaning("t-0"), states.of("t-0")
    (False, Paused(holds=1))

A round that somebody else's work is in the way of is *aborted*: the worker hears of it, and ends;
then the log is paused until everybody who paused it has resumed it. Whoever aborts waits until the
log is paused, and learns here whether there is something to wait for.

Marked *uncleanable* is a log whose round failed: it is left out until a restart, or its deletion.
An unload takes neither the mark nor the pauses. The mark says which failure it was, for programs:
the reason of an error, WORKER_DIED, or MARKED, which an administrator did.

Source: LogCleanerManager, LogCleaningState of Kafka 4.1, whose IllegalStateException is a
RuntimeError here: only the broker's own code can cause it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple


class InProgress(NamedTuple):
    """A round, or a deletion of segments, is under way."""

    def __str__(self) -> str:
        return "LogCleaningInProgress"


class Aborted(NamedTuple):
    """It is to stop, and has not yet."""

    def __str__(self) -> str:
        return "LogCleaningAborted"


class Paused(NamedTuple):
    """`holds`: how often it has to be resumed."""

    holds: int

    def __str__(self) -> str:
        return f"LogCleaningPaused{{pausedCount={self.holds}}}"


class Uncleanable(NamedTuple):
    """Why a log is left alone: which failure, and in words."""

    kind: str
    why: str


MARKED, WORKER_DIED = "MARKED", "WORKER_DIED"
State = InProgress | Aborted | Paused


class States:
    """Of all logs of a broker. Bounded by their number: a log in no state has no entry."""

    def __init__(self) -> None:
        self._of: dict[str, State] = {}
        # By name.
        self._uncleanable: dict[str, Uncleanable] = {}

    def of(self, log: str) -> State | None:
        return self._of.get(log)

    def is_free(self, log: str) -> bool:
        return log not in self._of

    def begin(self, log: str) -> bool:
        """A round, or a deletion. False: the log is in some state already, and is skipped."""
        if log in self._of:
            return False
        self._of[log] = InProgress()
        return True

    def abort_and_pause(self, log: str) -> bool:
        """Whether it is paused. If not, its round was told to stop, and is to be waited for."""
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
        """Of one's own. The log may have been deleted meanwhile, and it with it."""
        if isinstance(self._of.get(log), Paused):
            self.resume(log)

    def pause_free(self, logs: Iterable[str]) -> list[str]:
        """Those that were in no state, which are paused now: the retention thread's."""
        free = [log for log in logs if log not in self._of]
        for log in free:
            self._of[log] = Paused(1)
        return free

    def is_aborted(self, log: str) -> bool:
        """What a round asks before each buffer that it reads."""
        return isinstance(self._of.get(log), Aborted)

    def end_cleaning(self, log: str) -> bool:
        """Whether the checkpoint is to be written: not that of an aborted round."""
        return self._end(log)

    def end_deleting(self, log: str) -> None:
        self._end(log)

    def mark_uncleanable(self, log: str, kind: str, why: str) -> None:
        self._uncleanable[log] = Uncleanable(kind, why)

    def is_uncleanable(self, log: str) -> bool:
        return log in self._uncleanable

    @property
    def uncleanable(self) -> Mapping[str, Uncleanable]:
        """Those that are left alone, by name."""
        return MappingProxyType(self._uncleanable)

    def forget(self, log: str) -> None:
        """It is gone for good, however often it was paused, and whatever it was marked for."""
        self._uncleanable.pop(log, None)
        if isinstance(self._of.get(log), Paused):
            del self._of[log]

    def _end(self, log: str) -> bool:
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

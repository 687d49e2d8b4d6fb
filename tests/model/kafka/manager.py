"""States, checkpoints, the choice of a log, and one pass of a cleaner thread.

>>> states = States()
>>> states.pause("t-0"), states.pause("t-0"), states.of("t-0")
(None, None, 'paused 2')
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.model.kafka.cleanable import Range, range_of
from tests.model.kafka.cleaner import Round, Stats
from tests.model.kafka.log import Log
from tests.model.kafka.producers import Refused

IN_PROGRESS, ABORTED = "in-progress", "aborted"


class States:
    """By log: in progress, aborted, or paused with a count."""

    def __init__(self) -> None:
        self.by_log: dict[str, str] = {}

    def of(self, name: str) -> str:
        return self.by_log.get(name, "none")

    def _paused(self, name: str) -> int:
        state = self.of(name)
        return int(state.removeprefix("paused ")) if state.startswith("paused") else 0

    def _pause(self, name: str, times: int) -> None:
        if times:
            self.by_log[name] = f"paused {times}"
        else:
            self.by_log.pop(name, None)

    def pause(self, name: str) -> None:
        """Requests a pause; a cleaning pauses once it has noticed."""
        state = self.of(name)
        if state == ABORTED:
            raise Refused("IllegalStateException")
        if state == IN_PROGRESS:
            self.by_log[name] = ABORTED
        else:
            self._pause(name, self._paused(name) + 1)

    def resume(self, name: str) -> None:
        if not self._paused(name):
            raise Refused("IllegalStateException")
        self._pause(name, self._paused(name) - 1)

    def done(self, name: str) -> bool:
        """Returns whether the cleaning succeeded, and its checkpoint may be written."""
        state = self.of(name)
        if state == IN_PROGRESS:
            del self.by_log[name]
            return True
        if state == ABORTED:
            self._pause(name, 1)
            return False
        raise Refused("IllegalStateException")


class RoundAborted(Exception):
    """Another caller needs exclusive access to the log."""


@dataclass
class Turn:
    """The choice and result of a pass; `log` is None if nothing was eligible."""

    log: str | None = None
    chosen: Range | None = None
    end_offset: int = 0
    stats: Stats | None = None
    failure: str = ""
    aborted: bool = False


@dataclass
class Manager:
    logs: dict[str, Log]
    limit: int
    profile: str
    states: States = field(default_factory=States)
    checkpoints: dict[str, int] = field(default_factory=dict)
    uncleanable: set[str] = field(default_factory=set)

    def turn(
        self, preferred: str | None = None, during: Callable[[str], None] = lambda phase: None
    ) -> Turn:
        """`preferred` decides between equally dirty logs.

        `during` may perform another thread's actions at that phase.
        """
        turn = self._clean(preferred, during)
        if not turn.failure:
            self._delete()
        self.uncleanable &= set(self.logs)
        return turn

    def _clean(self, preferred: str | None, during: Callable[[str], None]) -> Turn:
        name, chosen = self._choose(preferred)
        if name is None or chosen is None:
            return Turn()
        self.states.by_log[name] = IN_PROGRESS

        def poll(phase: str) -> None:
            during(phase)
            if self.states.of(name) == ABORTED:
                raise RoundAborted

        dirty, bound = chosen.first_dirty, chosen.bound
        work = Round(self.logs[name], dirty, bound, self.limit, self.profile, poll)
        turn = Turn(name, chosen, chosen.first_dirty)
        try:
            turn.end_offset = work.clean()
            turn.stats = work.stats
        except RoundAborted:
            turn.aborted = True
        except Refused as failure:
            turn.failure = failure.kind
            self.uncleanable.add(name)
        if self.states.done(name):
            self.write_checkpoint(name, turn.end_offset)
        return turn

    def _candidates(self) -> list[str]:
        return [
            name
            for name, log in self.logs.items()
            if log.settings.compact
            and self.states.of(name) == "none"
            and name not in self.uncleanable
        ]

    def _choose(self, preferred: str | None) -> tuple[str | None, Range | None]:
        eligible = []
        for name in self._candidates():
            found = self.plan(name)
            if found.repair:
                self.write_checkpoint(name, found.first_dirty)
            ratio = found.ratio
            if ratio is None:
                continue
            is_due = found.is_overdue and found.cleanable_bytes > 0
            if is_due or ratio > self.logs[name].settings.dirty_ratio:
                eligible.append((ratio, name == preferred, name, found))
        if not eligible:
            return None, None
        _, _, name, chosen = max(eligible, key=lambda each: each[:2])
        return name, chosen

    def plan(self, name: str, checkpoint: int | None = None) -> Range:
        log = self.logs[name]
        mark = self.checkpoints.get(name) if checkpoint is None else checkpoint
        return range_of(log, mark, log.clock.now_ms)

    def _delete(self) -> None:
        for name in self._candidates():
            self.logs[name].delete_old()

    def retention(self) -> dict[str, int]:
        """The retention thread's pass: logs that are not compacted and not busy."""
        return {
            name: log.delete_old()
            for name, log in self.logs.items()
            if not log.settings.compact and self.states.of(name) == "none"
        }

    # Checkpoints

    def write_checkpoint(self, name: str, offset: int) -> None:
        self.forget_unknown()
        self.checkpoints[name] = offset

    def forget_unknown(self) -> None:
        self.checkpoints = {n: o for n, o in self.checkpoints.items() if n in self.logs}

    def truncate_checkpoint(self, name: str, offset: int) -> None:
        if self.logs[name].settings.compact and self.checkpoints.get(name, 0) > offset:
            self.checkpoints[name] = offset

    def text(self) -> str:
        """Returns the text of the checkpoint file."""
        lines = [
            f"{name.rpartition('-')[0]} {name.rpartition('-')[2]} {offset}"
            for name, offset in self.checkpoints.items()
        ]
        return "\n".join(["0", str(len(lines)), *lines, ""])

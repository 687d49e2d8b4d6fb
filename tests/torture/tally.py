"""The counts of a round of torture, and which of them must be zero.

>>> tally = Tally()
>>> tally.kills["broker"] += 1
>>> tally.wrong(), tally.line("lost 0")
([], 'kills 1, disk filled 0, starts 0 (failed 0), runs 0 (0 succeeded), lost 0')
"""

from __future__ import annotations

import datetime
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

# How a run may end when its broker, its worker or its disk was taken away.
_FAULTS = frozenset(
    {
        "SUCCESS",
        "BROKER_RESTARTED",
        "COMPACTION_FAILED",
        "COMPACTION_FENCED",
        "COMPACTOR_UNAVAILABLE",
        "DISK_FAILURE",
    }
)
# Texts kept of each kind of failure.
_TEXTS_MAX = 20


@dataclass
class Tally:
    """Counts of one round. `texts`: why, of the first failures; `log` gets every event."""

    log: Path | None = None
    kills: Counter[str] = field(default_factory=Counter)
    fillings: int = 0
    starts: int = 0
    # Refused for lack of space, as documented.
    starts_without_room: int = 0
    starts_failed: int = 0
    # Kills after which `verify` found damage.
    damaged: int = 0
    # How often the Kafka topic's checkpoint was seen to have moved.
    cleanings: int = 0
    # By the state or the reason that they ended with.
    runs: Counter[str] = field(default_factory=Counter)
    runs_never_ended: int = 0
    workers_never_ready: int = 0
    left_behind: int = 0
    passes: int = 0
    not_converged: list[str] = field(default_factory=list)
    hanging: set[str] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)

    def tell(self, text: str) -> None:
        """A failure, in words."""
        now = self.note(text)
        if len(self.texts) < _TEXTS_MAX:
            self.texts.append(f"{now} {text}")

    def note(self, text: str) -> str:
        """An event, for the log; the time of it."""
        now = datetime.datetime.now(datetime.UTC).strftime("%H:%M:%S.%f")[:-3]
        if self.log is not None:
            with self.log.open("a") as log:
                print(now, text, file=log)
        return now

    @property
    def runs_ended_wrongly(self) -> dict[str, int]:
        return {reason: count for reason, count in self.runs.items() if reason not in _FAULTS}

    def wrong(self) -> list[str]:
        """Describes the counts that should be zero and are not."""
        found = {
            "restarts that failed": self.starts_failed,
            "kills that left damage": self.damaged,
            "runs that never ended": self.runs_never_ended,
            "compactors that hung": self.workers_never_ready,
            "runs that ended as no fault explains": sum(self.runs_ended_wrongly.values()),
            "clients that hung": len(self.hanging),
            "processes left behind": self.left_behind,
            "checks at the end that failed": len(self.not_converged),
        }
        return [f"{count} {what}" for what, count in found.items() if count]

    def line(self, books: str) -> str:
        """One line for while it runs."""
        return (
            f"kills {self.kills.total()}, disk filled {self.fillings}, "
            f"starts {self.starts} (failed {self.starts_failed}), "
            f"runs {self.runs.total()} ({self.runs['SUCCESS']} succeeded), {books}"
        )

"""What became of a turn of the cleaner.

>>> nothing = Choice(None, {}, 0.0, 0)
>>> str(Turn("orders", nothing, deleted_segments=2))
'1970-01-01T00:00:00.000Z orders; 2 segments deleted'
"""

from __future__ import annotations

from dataclasses import dataclass

from ledgerfold.broker.ground.traffic import iso_time
from ledgerfold.broker.kafka.choice import Choice
from ledgerfold.broker.kafka.round import RoundOutcome
from ledgerfold.broker.kafka.states import WORKER_DIED
from ledgerfold.kafka.cleanable import Plan
from ledgerfold.storage.errors import CompactionFailed, LedgerfoldError
from ledgerfold.storage.words import counted


def kind_of(error: LedgerfoldError) -> str:
    """Which failure it was, for programs.

    >>> kind_of(CompactionFailed("copy", "the worker is gone", worker_died=True))
    'WORKER_DIED'
    """
    is_death = isinstance(error, CompactionFailed) and error.worker_died
    return WORKER_DIED if is_death else error.reason


@dataclass(frozen=True)
class Turn:
    """What became of one. `topic` None: there was nothing to clean."""

    topic: str | None
    choice: Choice
    plan: Plan | None = None
    outcome: RoundOutcome | None = None
    was_aborted: bool = False
    failure: LedgerfoldError | None = None
    deleted_segments: int = 0
    elapsed_ms: int = 0
    began_ms: int = 0

    def __str__(self) -> str:
        """For people."""
        said = [f"{iso_time(self.began_ms)} {self.topic or 'nothing to clean'}"]
        if self.outcome is not None:
            stats = self.outcome.manifest.stats
            said.append(
                f"{stats.messages_read} -> {stats.messages_written} messages, "
                f"{stats.bytes_read} -> {stats.bytes_written} bytes, "
                f"clean up to {self.outcome.checkpoint}"
            )
        if self.was_aborted:
            said.append("aborted")
        if self.failure is not None:
            said.append(f"failed: {self.failure}")
        if self.deleted_segments:
            said.append(f"{counted(self.deleted_segments, 'segment')} deleted")
        return "; ".join(said)

"""Chooses the log to clean next.

The eligible log with the largest dirty ratio is chosen, of those that met a full disk least often.
Exceeding `max.compaction.lag.ms` makes a log eligible but gives it no preference. Ties are broken
by name; Kafka leaves them to chance.

    >>> from ledgerfold.kafka.cleanable import Limit
    >>> plans = {"a-0": Plan(0, 9, 9, 60, 40, 0, False, Limit.ACTIVE_SEGMENT),
    ...          "b-0": Plan(0, 9, 9, 40, 60, 0, False, Limit.ACTIVE_SEGMENT)}
    >>> made = choose({name: Candidate(plan, min_ratio=0.5) for name, plan in plans.items()})
    >>> made.log, made.verdicts["a-0"].value, made.max_dirty_percent
    ('b-0', 'not dirtier than min.cleanable.dirty.ratio', 60)

Source: LogCleanerManager.grabFilthiestCompactedLog of Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from ledgerfold.kafka.cleanable import Plan


class Verdict(Enum):
    """The eligibility of a candidate log, with its reason."""

    DIRTY = "dirtier than min.cleanable.dirty.ratio"
    OVERDUE = "beyond max.compaction.lag.ms"
    EMPTY = "no record is clean or can be cleaned: `topics roll` ends the active segment"
    NOTHING_CLEANABLE = "beyond max.compaction.lag.ms, but nothing can be cleaned"
    CLEAN_ENOUGH = "not dirtier than min.cleanable.dirty.ratio"

    @property
    def is_eligible(self) -> bool:
        return self in (Verdict.DIRTY, Verdict.OVERDUE)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A compacted log that is in no cleaning state and not marked uncleanable."""

    plan: Plan
    min_ratio: float

    @property
    def verdict(self) -> Verdict:
        ratio = self.plan.ratio
        if ratio is None:
            return Verdict.EMPTY
        if ratio > self.min_ratio:
            return Verdict.DIRTY
        if not self.plan.is_overdue:
            return Verdict.CLEAN_ENOUGH
        return Verdict.OVERDUE if self.plan.cleanable_bytes else Verdict.NOTHING_CLEANABLE


@dataclass(frozen=True, slots=True)
class Choice:
    """The result of one choice. `log` is None when no candidate is eligible."""

    log: str | None
    verdicts: Mapping[str, Verdict]
    # Over all candidates, eligible or not.
    max_dirty_ratio: float
    # The largest delay. Its gauge is set only when a log was chosen.
    max_delay_ms: int

    @property
    def max_dirty_percent(self) -> int:
        return int(100 * self.max_dirty_ratio)


def choose(
    candidates: Mapping[str, Candidate], full_disks: Mapping[str, int] = MappingProxyType({})
) -> Choice:
    """Chooses a log. `full_disks`: how often the cleaning of a log has met a full disk.

    NOTE: else a log for which there is no room would keep all others from being cleaned.
    """
    verdicts = {name: each.verdict for name, each in candidates.items()}
    ratios = {name: each.plan.ratio or 0.0 for name, each in candidates.items()}
    eligible = sorted(name for name, verdict in verdicts.items() if verdict.is_eligible)
    return Choice(
        max(eligible, key=lambda name: (-full_disks.get(name, 0), ratios[name]), default=None),
        verdicts,
        max(ratios.values(), default=0.0),
        max((each.plan.delay_ms for each in candidates.values()), default=0),
    )

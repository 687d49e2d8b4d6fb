"""Counts combinations of events over the seeds of a run (`--coverage`).

* Pairs of a moment and the operation that began at it (moments.py).
* Pairs of consecutive operations.
* Deaths of the broker, by the last moment before them, and by whether the power failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from tests.simulation.moments import KAFKA_PAIRS, PAIRS, Moments

_RAREST = 10


@dataclass
class Coverage:
    """The counts of one simulation, or of many."""

    at_moments: Counter[tuple[str, str]] = field(default_factory=Counter)
    in_a_row: Counter[tuple[str, str]] = field(default_factory=Counter)
    deaths: Counter[tuple[str, str]] = field(default_factory=Counter)
    seeds: int = 0

    def died(self, moments: Moments, *, power: bool) -> None:
        self.deaths[moments.last or "a start", "power" if power else "kill -9"] += 1

    def ended(self, operations: Iterable[str], moments: Moments) -> None:
        """`operations`: those of one scenario, in order."""
        self.in_a_row.update(pairwise(operations))
        self.at_moments.update(moments.fired)
        self.seeds += 1

    def add(self, other: Coverage) -> None:
        self.at_moments.update(other.at_moments)
        self.in_a_row.update(other.in_a_row)
        self.deaths.update(other.deaths)
        self.seeds += other.seeds

    def told(self, kind: str) -> str:
        """Formats the counts for people, with rare combinations."""
        is_kafka = kind in ("kafka", "truncation")
        wanted: set[tuple[str, str]] = {*(KAFKA_PAIRS if is_kafka else PAIRS)}
        return "\n".join(
            [
                f"{self.seeds} seeds",
                *_lines("an operation at a moment", self.at_moments, wanted),
                *_lines("one operation behind another", self.in_a_row, set(self.in_a_row)),
                *_lines("a death behind a moment", self.deaths, set(self.deaths)),
            ]
        )


def _lines(what: str, counts: Counter[tuple[str, str]], wanted: set[tuple[str, str]]) -> list[str]:
    seen = sorted((counts[each], each) for each in wanted)
    missing = sum(not count for count, _ in seen)
    lines = [f"{what}: {len(seen) - missing} of {len(seen)} pairs, {sum(counts.values())} times"]
    shown = [*seen[:_RAREST], None, *seen[-_RAREST:]] if len(seen) > 2 * _RAREST else seen
    told = (
        "       ..." if each is None else f"{each[0]:8d}  {' / '.join(each[1])}" for each in shown
    )
    return [*lines, *told]

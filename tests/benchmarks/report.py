"""The results of a benchmark: rows of figures, as a table for people or as JSON for programs.

    >>> report = Report("serve", "Start of the broker")
    >>> report.add("health SERVING after", 0.31, "s", against="Pulsar 8 s")
    >>> "0.31 s" in report.text()
    True

Figures are shown, never asserted: what they are compared with stands beside them.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Figure(NamedTuple):
    """One row. `against`: the baseline or peer, its figure, the ratio."""

    name: str
    value: float
    unit: str
    against: str = ""


@dataclass
class Report:
    """The figures of one benchmark."""

    benchmark: str
    title: str
    figures: list[Figure] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, value: float, unit: str, against: str = "") -> None:
        self.figures.append(Figure(name, value, unit, against))

    def text(self) -> str:
        rows = [("figure", "value", "", "against")] + [
            (figure.name, number(figure.value), figure.unit, figure.against)
            for figure in self.figures
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        sizes = ", ".join(f"{name} {number(size)}" for name, size in self.sizes.items())
        lines = [f"{self.benchmark}: {self.title}" + (f" ({sizes})" if sizes else "")]
        for name, value, unit, against in rows:
            line = f"  {name:<{widths[0]}}  {value:>{widths[1]}} {unit:<{widths[2]}}  {against}"
            lines.append(line.rstrip())
        return "\n".join(lines)

    def json(self) -> str:
        return json.dumps(
            {
                "benchmark": self.benchmark,
                "title": self.title,
                "sizes": self.sizes,
                "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
                "figures": [figure._asdict() for figure in self.figures],
            }
        )


def number(value: float) -> str:
    """Three digits that mean something, thousands apart."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def spread(values: Sequence[float]) -> str:
    """The middle of several runs and how far they lie apart."""
    return (
        f"median of {len(values)}, {number(min(values))} to {number(max(values))}"
        if len(values) > 1
        else "one run"
    )


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def seconds_of(work: Callable[[], object]) -> float:
    """Returns the seconds that the work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def percentile(values: Sequence[float], percent: int) -> float:
    """Returns the value that `percent` of all are at most.

    >>> percentile(range(1, 201), 99)
    198
    """
    ordered = sorted(values)
    return ordered[max(-(-len(ordered) * percent // 100) - 1, 0)]

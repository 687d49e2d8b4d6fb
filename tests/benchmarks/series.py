"""First runs over topics of growing sizes: their cost beside an expected one, and a plot.

A new topic for each size, which is deleted afterwards, on one worker that has compacted a topic of
the smallest size before. Time is that of the run. A core's seconds are the processor time of all
processes of the worker, regardless of other load; memory is their peak proportional set size.
`growth` divides a core's seconds by the expected ones, relative to the first size: at most 1 if the
cost grows as expected, or more slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ledgerfold.broker.client.administration.admin import Admin
from tests.benchmarks.compaction import compact
from tests.benchmarks.options import Options
from tests.benchmarks.peak_memory import MB, PeakMemory
from tests.benchmarks.plot import Line, plot
from tests.benchmarks.report import Report
from tests.support import processes
from tests.support.broker_process import BrokerProcess

# Publishes so many messages to a topic of the broker at this URL.
Publish = Callable[[str, str, int], None]


class Point(NamedTuple):
    """The cost of a run over `messages`."""

    messages: int
    seconds: float
    of_a_core: float
    peak_bytes: int
    spilled_bytes: int


@dataclass(frozen=True)
class Series:
    """Runs over topics that `publish` fills. `expected`: the cost of n messages, up to a factor."""

    name: str
    title: str
    publish: Publish
    expected: Callable[[int], float]
    expected_name: str
    # The label of the plot's x axis, and how many messages one unit of it is.
    x_name: str
    x_unit: float

    def run(self, options: Options, sizes: Sequence[int], label: Callable[[int], str]) -> Report:
        """Runs all sizes. `label`: the name of a size in the report."""
        report = Report(self.name, f"{self.title}, warm worker")
        points: list[Point] = []
        with options.broker(compactor="local") as broker, Admin(broker.url) as admin:
            self.publish(broker.url, "warm-up", max(sizes[0], 1))
            compact(admin, "warm-up")
            for messages in sizes:
                points.append(self._measure(broker, admin, max(messages, 1)))
                self._add(report, label(messages), points[-1], points[0])
        if options.plot is not None:
            path = options.plot / f"{self.name}.svg"
            path.write_text(self._plotted(points), encoding="utf-8")
        return report

    def _measure(self, broker: BrokerProcess, admin: Admin, messages: int) -> Point:
        topic = f"{self.name}-{messages}"
        self.publish(broker.url, topic, messages)
        before = _spilled_bytes(broker.data_dir)
        used = processes.processor_seconds(broker.started())
        with PeakMemory(broker.started) as memory:
            timed = compact(admin, topic)
        of_a_core = processes.processor_seconds(broker.started()) - used
        spilled = _spilled_bytes(broker.data_dir) - before
        admin.delete_topic(topic, force=True)
        return Point(messages, timed.seconds, of_a_core, memory.proportional, spilled)

    def _add(self, report: Report, name: str, point: Point, first: Point) -> None:
        growth = self._by_expected(point) / self._by_expected(first)
        report.add(f"{name}: time", point.seconds, "s")
        report.add(f"{name}: of a core", point.of_a_core, "s", f"growth {growth:.2f}, goal 1")
        report.add(f"{name}: worker's peak", point.peak_bytes / MB, "MB", "proportional set size")
        report.add(f"{name}: spilled", point.spilled_bytes / MB, "MB", "shuffles, on disk")

    def _by_expected(self, point: Point) -> float:
        return max(point.of_a_core, 0.01) / self.expected(point.messages)

    def _plotted(self, points: list[Point]) -> str:
        """Draws the seconds, and the expected ones through the first of them."""
        sizes = [point.messages / self.x_unit for point in points]
        scale = self._by_expected(points[0])
        expected = [scale * self.expected(point.messages) for point in points]
        lines = [
            Line("time", sizes, [point.seconds for point in points]),
            Line("of a core", sizes, [point.of_a_core for point in points]),
            Line(self.expected_name, sizes, expected),
        ]
        return plot(f"{self.title[0].upper()}{self.title[1:]}", self.x_name, "seconds", lines)


def _spilled_bytes(data_dir: Path) -> int:
    """Returns the size of all shuffle files in Spark's folders, which are below the data's."""
    total = 0
    for path in data_dir.rglob("shuffle_*.data"):
        try:
            total += path.stat().st_size
        except OSError:
            continue  # Spark has removed it.
    return total

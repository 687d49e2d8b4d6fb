"""A first run over a topic of unique keys, at growing sizes: time, memory, spilled bytes.

Each message has a unique key, as in an index of users or devices, and a value of 16 B; 1, 2.5, 5,
10, 25 and 50 million of them (`--messages` is the last), in a new topic each, on one warm worker.
Time is that of the run. A core's seconds are the processor time of all processes of the worker,
regardless of other load; memory is their peak proportional set size. Spilled bytes are those that
shuffles write to Spark's folder, on the disk. `growth` divides a core's seconds by n log n,
relative to the first size: at most 1 if the cost grows as n log n, or more slowly. A plot of the
seconds is written to the folder of `--plot`.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.wire.frames import encode_entries
from tests.benchmarks import wire
from tests.benchmarks.compaction import compact
from tests.benchmarks.cost import Numbered
from tests.benchmarks.options import Options
from tests.benchmarks.peak_memory import MB, PeakMemory
from tests.benchmarks.plot import Line, plot
from tests.benchmarks.report import Report, number
from tests.support import processes
from tests.support.broker_process import BrokerProcess

MESSAGES = 50_000_000
VALUE_BYTES = 16
# Fractions of the largest size.
PARTS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
PLOT = "many-keys.svg"


class Point(NamedTuple):
    """The cost of a run over `messages`."""

    messages: int
    seconds: float
    of_a_core: float
    peak_bytes: int
    spilled_bytes: int


def run(options: Options) -> Report:
    count = options.messages_or(MESSAGES)
    report = Report("many-keys", f"first runs over unique keys, {VALUE_BYTES} B each, warm worker")
    points: list[Point] = []
    with options.broker(compactor="local") as broker, Admin(broker.url) as admin:
        _publish(broker.url, "warm-up", 10_000)
        compact(admin, "warm-up")
        for part in PARTS:
            points.append(_measure(broker, admin, max(int(part * count), 1)))
            _add(report, points[-1], points[0])
    if options.plot is not None:
        (options.plot / PLOT).write_text(_plotted(points), encoding="utf-8")
    return report


def _measure(broker: BrokerProcess, admin: Admin, messages: int) -> Point:
    topic = f"many-{messages}"
    _publish(broker.url, topic, messages)
    spilled = functools.partial(_spilled_bytes, broker.data_dir)
    before = spilled()
    used = processes.processor_seconds(broker.started())
    with PeakMemory(broker.started) as memory:
        timed = compact(admin, topic)
    of_a_core = processes.processor_seconds(broker.started()) - used
    point = Point(messages, timed.seconds, of_a_core, memory.proportional, spilled() - before)
    admin.delete_topic(topic, force=True)
    return point


def _add(report: Report, point: Point, first: Point) -> None:
    name = f"{number(point.messages)} keys"
    growth = _by_n_log_n(point) / _by_n_log_n(first)
    report.add(f"{name}: time", point.seconds, "s")
    report.add(f"{name}: of a core", point.of_a_core, "s", f"growth {growth:.2f}, goal 1")
    report.add(f"{name}: worker's peak", point.peak_bytes / MB, "MB", "proportional set size")
    report.add(f"{name}: spilled", point.spilled_bytes / MB, "MB", "shuffles, on disk")


def _by_n_log_n(point: Point) -> float:
    return max(point.of_a_core, 0.01) / n_log_n(point.messages)


def n_log_n(count: int) -> float:
    return count * math.log(max(count, 2))


def _plotted(points: list[Point]) -> str:
    """Draws the seconds, and n log n through the first of them."""
    sizes = [point.messages / 1e6 for point in points]
    scale = points[0].of_a_core / n_log_n(points[0].messages)
    lines = [
        Line("time", sizes, [point.seconds for point in points]),
        Line("of a core", sizes, [point.of_a_core for point in points]),
        Line("n log n", sizes, [scale * n_log_n(point.messages) for point in points]),
    ]
    return plot("A first run over unique keys", "million keys", "seconds", lines)


def _spilled_bytes(data_dir: Path) -> int:
    """Returns the size of all shuffle files in Spark's folders, which are below the data's."""
    return _size_bytes(data_dir.rglob("shuffle_*.data"))


def _size_bytes(paths: Iterable[Path]) -> int:
    total = 0
    for path in paths:
        try:
            total += path.stat().st_size
        except OSError:
            continue  # Spark has removed it.
    return total


def _publish(broker: str, topic: str, count: int) -> None:
    workload = Numbered(count, count, VALUE_BYTES, numbers=range(count))

    async def publish() -> None:
        frames = (encode_entries([entry]) for entry, _ in workload.entries())
        async with wire.connected(broker) as channel:
            await wire.publish(wire.Broker(channel, topic), frames)

    asyncio.run(publish())

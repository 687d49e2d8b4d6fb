"""Compactions without Spark, compared with Spark: the first one, and warm ones of several sizes.

Messages of 100 B, a twentieth of which survive. The first one has 10,000 messages, published as
soon as the broker is ready, and is measured from the call to the commit: it waits for the worker.
The baseline is Spark, in the same run. Spark is ahead from the size at which two concurrent tasks
save more time than scheduling them takes.
"""

from __future__ import annotations

import asyncio

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.wire.frames import encode_entries
from tests.benchmarks import wire
from tests.benchmarks.compaction import compact
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, median, spread
from tests.benchmarks.workload import Workload
from tests.support import processes
from tests.support.broker_process import BrokerProcess

ENGINES = INLINE, SPARK = ("inline", "spark")
COLD_MESSAGES = 10_000
SIZES = (10_000, 100_000, 1_000_000, 4_000_000)
Frames = list[bytes]


def run(options: Options) -> Report:
    report = Report("inline", "from the call to the commit, without Spark and with it")
    sizes = [size // 100 if options.quick else size for size in SIZES]
    inputs = {size: _frames(size) for size in {*sizes, COLD_MESSAGES}}
    cold = {each: _cold(options, each, inputs[COLD_MESSAGES]) for each in ENGINES}
    goal = "goal 0.3 s"
    report.add("the first, inline", cold[INLINE][0], "s", f"{goal}; spark {cold[SPARK][0]:.2f} s")
    report.add(
        "the worker's memory then", cold[INLINE][1] / 1e6, "MB", "of its processes, resident"
    )
    warm = {each: _warm(options, each, sizes, inputs) for each in ENGINES}
    for size in sizes:
        ours, baseline = warm[INLINE][size], warm[SPARK][size]
        ratio = f"{median(ours) / median(baseline) * 100:.0f} % of spark's {median(baseline):.2f} s"
        report.add(f"{size:,} messages", median(ours), "s", f"{spread(ours)}; {ratio}")
    return report


def _frames(messages: int) -> Frames:
    workload = Workload(messages, keys=max(messages // 20, 1), value_bytes=100)
    return [encode_entries([entry]) for entry, _ in workload.entries()]


def _cold(options: Options, engine: str, frames: Frames) -> tuple[float, int]:
    """Returns the seconds of a broker's first compaction, and its worker's memory."""
    with (
        options.fresh_folder() as folder,
        BrokerProcess(folder / "data", arguments=("--compactor", engine)) as broker,
        Admin(broker.url) as admin,
    ):
        asyncio.run(_publish(broker.url, "cold", frames))
        seconds = compact(admin, "cold").seconds
        workers = [pid for pid in broker.processes() if pid != broker.pid]
        return seconds, processes.memory_bytes(workers)


def _warm(
    options: Options, engine: str, sizes: list[int], inputs: dict[int, Frames]
) -> dict[int, list[float]]:
    """Returns the seconds of each round, by size."""
    found: dict[int, list[float]] = {size: [] for size in sizes}
    with options.broker(compactor=engine) as broker, Admin(broker.url) as admin:
        for turn in range(options.rounds_or(3) + 1):
            for size in sizes:
                topic = f"{size}-{turn}"
                asyncio.run(_publish(broker.url, topic, inputs[size]))
                seconds = compact(admin, topic).seconds
                if turn or options.quick:
                    found[size].append(seconds)
    return found


async def _publish(broker: str, topic: str, frames: Frames) -> None:
    async with wire.connected(broker) as channel:
        await wire.publish(wire.Broker(channel, topic), frames)

"""The time from the start of the broker to the end of a compaction, when nothing is warm.

10,000 messages of 100 B over 500 keys are published as soon as the broker is ready, and compaction
is triggered at once. The first start has an empty cache folder, as on a new machine; later starts
find the class-data archive that the first one left. Against: Spark's own time from `SparkContext`
to the end of a job of one empty task, in a separate process.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.wire.frames import encode_entries
from tests.benchmarks import wire
from tests.benchmarks.compaction import compact
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, median, spread
from tests.benchmarks.workload import Workload
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until

TOPIC = "cold"
_BARE_SPARK = """
from pyspark import SparkContext
context = SparkContext("local[2]", "bare")
context.parallelize([0], 1).count()
context.stop()
"""


def run(options: Options) -> Report:
    workload = Workload(options.messages_or(10_000), keys=500, value_bytes=100)
    frames = [encode_entries([entry]) for entry, _ in workload.entries()]
    report = Report("cold", "from the start of the broker to the end of its first compaction")
    with options.fresh_folder() as folder:
        bare_s = _bare_spark()
        first = _start(folder, 0, frames, archives=1)
        later = [_start(folder, each, frames) for each in range(1, 1 + options.rounds_or(3))]
    against = f"bare Spark {bare_s:.2f} s"
    report.add("first start of a machine", first, "s", f"goal 6 s; {against}")
    report.add("later starts", median(later), "s", f"{spread(later)}; goal 3.5 s; {against}")
    return report


def _start(folder: Path, number: int, frames: list[bytes], archives: int = 0) -> float:
    """Returns the seconds to the end of the compaction. `archives`: the archives to wait for
    afterwards.
    """
    cache = folder / "cache"
    environment = {"XDG_CACHE_HOME": str(cache)}
    began = time.perf_counter()
    with (
        BrokerProcess(folder / f"data-{number}", environment=environment) as broker,
        Admin(broker.url) as admin,
    ):
        asyncio.run(_publish(broker.url, frames))
        compact(admin, TOPIC)
        seconds = time.perf_counter() - began
        if archives:
            wait_until(lambda: any(cache.rglob("*.jsa")), "the class-data archive")
    return seconds


async def _publish(broker: str, frames: list[bytes]) -> None:
    async with wire.connected(broker) as channel:
        await wire.publish(wire.Broker(channel, TOPIC), frames)


def _bare_spark() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", _BARE_SPARK], check=True, capture_output=True)
    return time.perf_counter() - began

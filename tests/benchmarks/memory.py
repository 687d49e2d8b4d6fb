"""Measures the broker's memory while a gigabyte is written and read again.

10,000,000 messages of 100 B in entries of 128 KiB are published as fast as the broker accepts them,
then read from the start, raw, as fast as the client accepts them. The figure is the broker
process's highest resident size so far (VmHWM), after each step. Needs /proc. The goal is 200 MB.
"""

from __future__ import annotations

import asyncio

from ledgerfold.broker.wire.frames import encode_entries
from tests.benchmarks import wire
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report
from tests.benchmarks.workload import Workload
from tests.support.processes import memory_bytes

MB = 1e6
TOPIC = "memory"


def run(options: Options) -> Report:
    workload = Workload(options.messages_or(10_000_000), keys=1_000_000, value_bytes=100)
    report = Report("memory", "the broker's peak while 1 GB is published and read")
    report.sizes = {"messages": workload.messages}

    with options.broker() as broker:

        def add_peak(after: str) -> None:
            peak = memory_bytes([broker.pid], "VmHWM")
            report.add(f"peak after {after}", peak / MB, "MB", "goal 200 MB")

        add_peak("start")
        published = asyncio.run(_publish(broker.url, workload))
        add_peak("publishing")
        taken, size = asyncio.run(_read(broker.url))
        add_peak("reading")
        report.add("resident at the end", memory_bytes([broker.pid]) / MB, "MB")
    report.add("published in", published, "s", "making the messages included")
    report.add("read in", taken, "s", f"{size / MB:,.0f} MB")
    return report


async def _publish(broker: str, workload: Workload) -> float:
    async with wire.connected(broker) as channel:
        frames = (encode_entries([entry]) for entry, _ in workload.entries())
        return await wire.publish(wire.Broker(channel, TOPIC), frames)


async def _read(broker: str) -> tuple[float, int]:
    async with wire.connected(broker) as channel:
        taken, _, size = await wire.read(wire.Broker(channel, TOPIC))
        return taken, size

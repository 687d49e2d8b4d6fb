"""What the broker takes in, fsync mode, next to a bare grpc.aio stream with group fdatasync.

One producer, 100 B messages in entries of 128 KiB, one entry a frame, built beforehand, up to 128
frames without an answer. The baseline (baseline.py) appends the same frames to a file and does
nothing else. Both servers are processes of their own, in the same run, turn by turn; the first turn
of each warms up and does not count. The goal is a ratio of 60 %.
"""

from __future__ import annotations

import asyncio

from ledgerfold.broker.wire.frames import encode_publish
from tests.benchmarks import wire
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, median, spread
from tests.benchmarks.workload import Workload

MB = 1e6


def run(options: Options) -> Report:
    workload = Workload(options.messages_or(2_000_000), keys=100_000, value_bytes=100)
    frames = [encode_publish([entry]) for entry, _ in workload.entries()]
    report = Report("publish", "one producer, 100 B messages in 128 KiB entries, fsync")
    report.sizes = {"messages": workload.messages, "entries": len(frames)}
    with options.broker() as broker, options.bare_server() as bare:
        ours, theirs = asyncio.run(_turns(broker.url, bare, frames, options.rounds_or(5)))
    size = sum(map(len, frames))
    ratio = median(theirs) / median(ours)
    for name, seconds in (("bare grpc.aio", theirs), ("broker", ours)):
        rates = [size / taken / MB for taken in seconds]
        report.add(name, median(rates), "MB/s", spread(rates))
        report.add(f"{name}, messages", workload.messages / median(seconds), "messages/s")
    report.add("broker / bare", ratio * 100, "%", "goal 60 %")
    return report


async def _turns(
    broker: str, bare: str, frames: list[bytes], rounds: int
) -> tuple[list[float], list[float]]:
    ours, theirs = [], []
    async with wire.connected(broker) as broker_channel, wire.connected(bare) as bare_channel:
        for turn in range(rounds + 1):
            theirs.append(await wire.publish(wire.Bare(bare_channel, f"file-{turn}"), frames))
            ours.append(await wire.publish(wire.Broker(broker_channel, f"publish-{turn}"), frames))
    return ours[1:], theirs[1:]

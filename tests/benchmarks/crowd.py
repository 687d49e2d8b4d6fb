"""A hundred producers and readers at once, compared with one of each.

100 B messages in entries of 128 KiB, built in advance: one producer publishes all of them to a
topic; then a hundred publish as many in all, at once, each to its own topic. Then one reader reads
the topic from its start, and a hundred read theirs, at once. The baseline (baseline.py) streams as
many bytes in the broker's frames of 1 MiB, by one stream and by a hundred. One and a hundred take
turns, in new topics; the first turn is a warm-up and does not count. The goal is that a hundred
together keep 80 % of one's rate.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from ledgerfold.broker.wire.frames import encode_entries
from tests.benchmarks import wire
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, median, spread
from tests.benchmarks.workload import Workload

CROWD = 100
MB = 1e6
# About 1 MiB.
_ENTRIES_PER_FRAME = 8
_WINDOW_MIN = 8
PUBLISHED, READ, BARE = STEPS = ("published", "read", "bare grpc.aio, read")
_GOALS = {PUBLISHED: "goal 80 %", READ: "goal 80 %", BARE: ""}


def run(options: Options) -> Report:
    workload = Workload(options.messages_or(8_000_000), keys=100_000, value_bytes=100)
    frames = [encode_entries([entry]) for entry, _ in workload.entries()]
    report = Report("crowd", f"{CROWD} producers, then {CROWD} readers, beside one of each")
    report.sizes = {"messages": workload.messages, "entries": len(frames)}
    taken: dict[tuple[str, int], list[float]] = {}
    with options.broker() as broker, options.bare_server() as bare:
        for turn in range(options.rounds_or(3) + 1):
            for count in (1, CROWD):
                names = [f"crowd-{turn}-{count}-{number}" for number in range(count)]
                seconds = asyncio.run(_turn(broker.url, bare, names, frames))
                if turn or options.quick:
                    for step, each in zip(STEPS, seconds, strict=True):
                        taken.setdefault((step, count), []).append(each)
    size = sum(map(len, frames))
    for step in STEPS:
        for count in (1, CROWD):
            rates = [size / MB / each for each in taken[step, count]]
            report.add(f"{step}, {count} at once", median(rates), "MB/s", spread(rates))
        ratio = median(taken[step, 1]) / median(taken[step, CROWD]) * 100
        report.add(f"{step}, {CROWD} at once / one", ratio, "%", _GOALS[step])
    return report


async def _turn(
    broker: str, bare: str, names: Sequence[str], frames: Sequence[bytes]
) -> tuple[float, float, float]:
    """Returns the seconds of each step."""
    count = len(names)
    window = max(_WINDOW_MIN, wire.WINDOW // count)
    async with wire.connected(broker) as channel, wire.connected(bare) as bare_channel:
        topics = [wire.Broker(channel, name) for name in names]
        published = await _together(
            wire.publish(topic, frames[number::count], window)
            for number, topic in enumerate(topics)
        )
        read = await _together(map(wire.read, topics))
        files = [wire.Bare(bare_channel, name) for name in names]
        for number, file in enumerate(files):
            await wire.publish(file, _joined(frames[number::count]))
        return published, read, await _together(map(wire.read, files))


def _joined(frames: Sequence[bytes]) -> list[bytes]:
    """Returns the frames as the broker sends them: several entries in each."""
    starts = range(0, len(frames), _ENTRIES_PER_FRAME)
    return [b"".join(frames[start : start + _ENTRIES_PER_FRAME]) for start in starts]


async def _together(works: Iterable[Coroutine[Any, Any, Any]]) -> float:
    """Returns the seconds until all have ended."""
    began = time.perf_counter()
    await asyncio.gather(*works)
    return time.perf_counter() - began

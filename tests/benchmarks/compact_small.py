"""A small compaction on a warm worker, from the call to the commit.

10,000 messages of 100 B over 500 keys, a new topic each time; the call is TriggerCompaction, and
WatchCompaction shows the commit. Two runs before the counted ones warm the worker up; the first run
is shown, too. The goal is 1 s. Against: real Pulsar 4.0.7, 0.2-0.3 s.
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

WARM_UP_RUNS = 2


def run(options: Options) -> Report:
    workload = Workload(options.messages_or(10_000), keys=500, value_bytes=100)
    frames = [encode_entries([entry]) for entry, _ in workload.entries()]
    report = Report("compact-small", "from the call to the commit, warm worker")
    report.sizes = {"messages": workload.messages, "keys": workload.keys}
    with options.broker(compactor="local") as broker, Admin(broker.url) as admin:
        runs = []
        for number in range(WARM_UP_RUNS + options.rounds_or(10)):
            topic = f"small-{number}"
            asyncio.run(_publish(broker.url, topic, frames))
            runs.append(compact(admin, topic))
    seconds = [timed.seconds for timed in runs]
    counted = seconds[WARM_UP_RUNS:]
    report.add("call to commit", median(counted), "s", f"{spread(counted)}; goal 1 s")
    report.add("the first run of the worker", seconds[0], "s")
    for phase in ("phase_one_ms", "phase_two_ms"):
        spent = [getattr(timed.run.counts, phase) / 1000 for timed in runs[WARM_UP_RUNS:]]
        report.add(phase.removesuffix("_ms").replace("_", " "), median(spent), "s", spread(spent))
    report.add("survivors", runs[-1].run.counts.messages_out, "messages")
    return report


async def _publish(broker: str, topic: str, frames: list[bytes]) -> None:
    async with wire.connected(broker) as channel:
        await wire.publish(wire.Broker(channel, topic), frames)

"""What-if with four strategies, against phase one of one compaction of the same topic.

The two workloads of compact-large (Zipf 1.1): 1,000,000 messages of 1,000 B over 100,000 keys, and
10,000,000 messages of 100 B over 1,000,000 keys. On one warm worker the topic is analysed under one
strategy and under four, from the call to the answer, and then compacted; phase one is that of the
run's record. The goal is four strategies in 1.5x a phase one.
"""

from __future__ import annotations

import asyncio
import time

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.wire.frames import encode_entries
from ledgerfold.v1.records_pb2 import CompactionStrategy
from tests.benchmarks import wire
from tests.benchmarks.compact_large import CASES
from tests.benchmarks.compaction import compact
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, median, spread
from tests.benchmarks.workload import Workload

STRATEGIES = (
    CompactionStrategy(name="publishing-order"),
    CompactionStrategy(name="event-time"),
    CompactionStrategy(name="keep-n", settings={"n": "3"}),
    CompactionStrategy(name="event-time-window", settings={"lag_ms": "3600000"}),
)


def run(options: Options) -> Report:
    report = Report("what-if", "four strategies against one phase one, warm worker")
    with options.broker(compactor="local") as broker, Admin(broker.url) as admin:
        _publish(broker.url, "warm-up", Workload(10_000, keys=500, value_bytes=100))
        _ask(admin, "warm-up", len(STRATEGIES))
        compact(admin, "warm-up")
        for name, messages, keys, value_bytes, _ in CASES:
            size = options.messages_or(messages)
            topic = f"what-if-{value_bytes}"
            _publish(
                broker.url, topic, Workload(size, max(size * keys // messages, 1), value_bytes)
            )
            rounds = range(options.rounds_or(3))
            one = [_ask(admin, topic, 1) for _ in rounds]
            four = [_ask(admin, topic, len(STRATEGIES)) for _ in rounds]
            phase_one = compact(admin, topic).run.counts.phase_one_ms / 1000
            report.add(f"{name}: one strategy", median(one), "s", spread(one))
            report.add(f"{name}: four strategies", median(four), "s", spread(four))
            report.add(f"{name}: phase one of a run", phase_one, "s", "as the worker says")
            ratio = median(four) / max(phase_one, 0.001)
            report.add(f"{name}: four, by phase one", ratio, "x", "goal 1.5")
            admin.delete_topic(topic, force=True)
    return report


def _ask(admin: Admin, topic: str, strategies: int) -> float:
    """Returns the seconds."""
    began = time.perf_counter()
    admin.what_if(topic, STRATEGIES[:strategies])
    return time.perf_counter() - began


def _publish(broker: str, topic: str, workload: Workload) -> None:
    async def publish() -> None:
        frames = (encode_entries([entry]) for entry, _ in workload.entries())
        async with wire.connected(broker) as channel:
            await wire.publish(wire.Broker(channel, topic), frames)

    asyncio.run(publish())

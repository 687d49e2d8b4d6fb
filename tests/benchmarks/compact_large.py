"""Compaction of a gigabyte: time, throughput, the split over phases, the worker's peak memory.

Two workloads (workload.py, Zipf 1.1): 1,000,000 messages of 1,000 B over 100,000 keys, and
10,000,000 messages of 100 B over 1,000,000 keys, both in entries of 128 KiB; a new topic each, on
one worker that has compacted a small topic before. Time is from the call to the commit. Memory is
the peak of all processes of the worker together (Python, JVM, Spark's Python workers): their
proportional set sizes, in which a page that several share counts once, and the anonymous part of
it, which excludes files that are mapped or cached. Against: real Pulsar 4.0.7 (14.2 s, 27.4 s) and
real Kafka 4.1.0 (1.5 s, 8.8 s) on the same workloads.

Then the same workloads by event time, with event times, compared with the preceding run by
publishing order: the goal is 1.3 times as long.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.wire.frames import encode_entries
from ledgerfold.v1.records_pb2 import CompactionStrategy, Policies
from tests.benchmarks import wire
from tests.benchmarks.compaction import Timed, compact
from tests.benchmarks.options import Options
from tests.benchmarks.peak_memory import MB, PeakMemory
from tests.benchmarks.report import Report
from tests.benchmarks.workload import Workload
from tests.support.broker_process import BrokerProcess

GB = 1_000_000_000
# The workload, and the peers' times.
CASES = (
    ("1 kB", 1_000_000, 100_000, 1000, "Pulsar 14.2 s, Kafka 1.5 s"),
    ("100 B", 10_000_000, 1_000_000, 100, "Pulsar 27.4 s, Kafka 8.8 s"),
)
_BY_TIME = Policies(compaction_strategy=CompactionStrategy(name="event-time"))


def run(options: Options) -> Report:
    report = Report("compact-large", "1 GB, from the call to the commit, warm worker")
    with options.broker(compactor="local") as broker, Admin(broker.url) as admin:
        publish(broker.url, "warm-up", Workload(10_000, keys=500, value_bytes=100))
        compact(admin, "warm-up")
        for name, messages, keys, value_bytes, peers in CASES:
            # The same number of messages per key, regardless of the size.
            size = options.messages_or(messages)
            workload = Workload(size, max(size * keys // messages, 1), value_bytes)
            for turn in range(options.rounds_or(1)):
                topic = f"large-{value_bytes}-{turn}"
                timed, memory = _compact(broker, admin, topic, workload)
                _add(report, name, workload, timed, memory, peers)
                by_time = replace(workload, has_event_times=True)
                timed_2, memory = _compact(broker, admin, topic, by_time, _BY_TIME)
                ratio = f"{timed_2.seconds / timed.seconds:.2f} times publishing-order's"
                _add(report, f"{name}, event-time", by_time, timed_2, memory, ratio)
    return report


def _compact(
    broker: BrokerProcess,
    admin: Admin,
    topic: str,
    workload: Workload,
    policies: Policies | None = None,
) -> tuple[Timed, PeakMemory]:
    """Measures a compaction of a topic that is deleted afterwards."""
    publish(broker.url, topic, workload)
    if policies is not None:
        admin.update_policies(topic=topic, values=policies)
    with PeakMemory(broker.started) as memory:
        timed = compact(admin, topic)
    admin.delete_topic(topic, force=True)
    return timed, memory


def _add(
    report: Report, name: str, workload: Workload, timed: Timed, memory: PeakMemory, peers: str
) -> None:
    seconds, counts = timed.seconds, timed.run.counts
    report.add(f"{name}: time", seconds, "s", peers)
    report.add(f"{name}: messages", workload.messages / seconds, "messages/s")
    report.add(f"{name}: values", workload.size_bytes / seconds / MB, "MB/s")
    report.add(f"{name}: phase one", counts.phase_one_ms / 1000, "s", "as the worker says")
    report.add(f"{name}: phase two", counts.phase_two_ms / 1000, "s", "as the worker says")
    for phase, spent in timed.phases.items():
        report.add(f"{name}: {phase}, on show", spent, "s")
    report.add(f"{name}: survivors", counts.messages_out, "messages")
    report.add(f"{name}: worker's peak", memory.proportional / MB, "MB", "proportional set size")
    report.add(f"{name}: anonymous part", memory.anonymous / MB, "MB")
    report.add(f"{name}: peak, as the worker says", counts.worker_peak_bytes / MB, "MB")


def publish(broker: str, topic: str, workload: Workload) -> None:
    """Publishes the workload as raw frames."""

    async def publish_all() -> None:
        frames = (encode_entries([entry]) for entry, _ in workload.entries())
        async with wire.connected(broker) as channel:
            await wire.publish(wire.Broker(channel, topic), frames)

    asyncio.run(publish_all())

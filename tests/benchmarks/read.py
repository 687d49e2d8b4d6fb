"""Measures reading from the broker, compared with a bare grpc.aio stream of the same frames.

A whole topic of 100 B messages in entries of 128 KiB is read from the start, raw; then it is
compacted, and the compacted view is read from the start. The baseline (baseline.py) streams the
same data from a file, twice: entry by entry, as published, and in the frames that the broker sends,
of several entries each, which is faster. The client receives frames and decodes nothing. Both
servers are separate processes, in the same run, and alternate; the first turn of each warms up and
does not count. The goal is a ratio of 50 % for both views.

`--kafka`: instead, a Kafka topic and a Pulsar topic (kinds.py), of 100 B and of 1 kB.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.wire.frames import encode_entries
from tests.benchmarks import kinds, wire
from tests.benchmarks.compaction import compact
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, median, spread
from tests.benchmarks.workload import Workload

TOPIC = "read"
MB = 1e6
ENTRIES, FRAMES, BROKER = "bare grpc.aio by entry", "bare grpc.aio by frame", "broker"


def run(options: Options) -> Report:
    return _kinds(options) if options.kafka else _bare(options)


def _kinds(options: Options) -> Report:
    report = Report("read", "128 KiB entries, from the start: a Kafka and a Pulsar topic")
    messages = options.messages_or(4_000_000)
    report.sizes = {"messages": messages}
    with options.broker() as broker, Admin(broker.url) as admin:
        for value_bytes, count in ((100, messages), (1000, messages // 5)):
            workload = Workload(max(count, 1), keys=100_000, value_bytes=value_bytes)
            topics = {
                kind: kinds.create(admin, kind, f"{kind}-{value_bytes}") for kind in kinds.KINDS
            }
            asyncio.run(_publish(broker.url, topics[kinds.NATIVE], workload.entries()))
            asyncio.run(_publish(broker.url, topics[kinds.KAFKA], workload.record_batches()))

            def read(kind: str, turn: int, topics: dict[str, str] = topics) -> float:
                return asyncio.run(_read(broker.url, topics[kind]))

            taken = kinds.turns(read, options.rounds_or(5), broker.pid)
            kinds.compare(report, f"{value_bytes} B", workload.messages, "messages", taken)
    return report


async def _read(broker: str, topic: str) -> float:
    async with wire.connected(broker) as channel:
        seconds, _, _ = await wire.read(wire.Broker(channel, topic))
        return seconds


def _bare(options: Options) -> Report:
    # As many keys as messages, so that there are enough survivors to measure.
    messages = options.messages_or(4_000_000)
    workload = Workload(messages, keys=messages, value_bytes=100)
    report = Report("read", "100 B messages in 128 KiB entries, from the start")
    report.sizes = {"messages": messages}
    rounds = options.rounds_or(5)
    with options.broker(compactor="local") as broker, options.bare_server() as bare:
        asyncio.run(_publish(broker.url, TOPIC, workload.entries()))
        _compare(report, "raw", broker.url, bare, rounds)
        with Admin(broker.url) as admin:
            compact(admin, TOPIC)
        _compare(report, "compacted", broker.url, bare, rounds)
    return report


async def _publish(broker: str, topic: str, entries: Iterable[tuple[bytes, int]]) -> None:
    async with wire.connected(broker) as channel:
        frames = (encode_entries([entry]) for entry, _ in entries)
        await wire.publish(wire.Broker(channel, topic), frames)


def _compare(report: Report, view: str, broker: str, bare: str, rounds: int) -> None:
    taken, size = asyncio.run(_turns(view, broker, bare, rounds))
    for name, seconds in taken.items():
        rates = [size / each / MB for each in seconds]
        report.add(f"{view}, {name}", median(rates), "MB/s", spread(rates))
    for name in (ENTRIES, FRAMES):
        ratio = median(taken[name]) / median(taken[BROKER])
        report.add(f"{view}, broker / {name}", ratio * 100, "%", f"goal 50 %; {size / MB:,.0f} MB")


async def _turns(
    view: str, broker: str, bare: str, rounds: int
) -> tuple[dict[str, list[float]], int]:
    """Seconds of each turn by what was read, and the bytes of one turn."""
    async with wire.connected(broker) as broker_channel, wire.connected(bare) as bare_channel:
        topic = wire.Broker(broker_channel, TOPIC, read_compacted=view == "compacted")
        frames = [frame async for frame in topic.read()]
        entries = [encode_entries([entry]) for frame in frames for entry in wire.entries_of(frame)]
        targets: dict[str, wire.Target] = {
            ENTRIES: wire.Bare(bare_channel, f"{view}-entries"),
            FRAMES: wire.Bare(bare_channel, f"{view}-frames"),
            BROKER: topic,
        }
        await wire.publish(targets[ENTRIES], entries)
        await wire.publish(targets[FRAMES], frames)
        taken: dict[str, list[float]] = {name: [] for name in targets}
        for turn in range(rounds + 1):
            for name, target in targets.items():
                seconds, _, _ = await wire.read(target)
                if turn:
                    taken[name].append(seconds)
    return taken, sum(map(len, frames))

"""Measures publishing in fsync mode, compared with a bare grpc.aio stream with group fdatasync.

One producer, 100 B messages in entries of 128 KiB, one entry per frame, built in advance, up to 128
frames without an answer. The baseline (baseline.py) appends the same frames to a file and does
nothing else. Both servers are separate processes, in the same run, and alternate; the first turn of
each warms up and does not count. The goal is a ratio of 60 %.

`--kafka`: instead, into a Kafka topic and a Pulsar topic (kinds.py), of 100 B and of 1 kB.
"""

from __future__ import annotations

import asyncio

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.wire.frames import encode_entries
from tests.benchmarks import kinds, wire
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, median, spread
from tests.benchmarks.workload import Workload
from tests.support.broker_process import BrokerProcess

MB = 1e6


def run(options: Options) -> Report:
    return _kinds(options) if options.kafka else _bare(options)


def _kinds(options: Options) -> Report:
    report = Report("publish", "one producer, 128 KiB entries, fsync: a Kafka and a Pulsar topic")
    messages = options.messages_or(2_000_000)
    report.sizes = {"messages": messages}
    with options.broker() as broker:
        for value_bytes, count in ((100, messages), (1000, messages // 5)):
            workload = Workload(max(count, 1), keys=100_000, value_bytes=value_bytes)
            _compare(report, broker, workload, options.rounds_or(5))
    return report


def _compare(report: Report, broker: BrokerProcess, workload: Workload, rounds: int) -> None:
    frames = {
        kinds.NATIVE: [encode_entries([entry]) for entry, _ in workload.entries()],
        kinds.KAFKA: [encode_entries([entry]) for entry, _ in workload.record_batches()],
    }
    with Admin(broker.url) as admin:

        def publish(kind: str, turn: int) -> float:
            topic = kinds.create(admin, kind, f"{kind}-{workload.value_bytes}-{turn}")
            return asyncio.run(_publish(broker.url, topic, frames[kind]))

        taken = kinds.turns(publish, rounds, broker.pid)
    name = f"{workload.value_bytes} B"
    kinds.compare(report, name, workload.messages, "messages", taken)


async def _publish(broker: str, topic: str, frames: list[bytes]) -> float:
    async with wire.connected(broker) as channel:
        return await wire.publish(wire.Broker(channel, topic), frames)


def _bare(options: Options) -> Report:
    workload = Workload(options.messages_or(2_000_000), keys=100_000, value_bytes=100)
    frames = [encode_entries([entry]) for entry, _ in workload.entries()]
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

"""Pulsar's own Python client on this broker, and on others that speak Pulsar's protocol.

`--pulsar NAME=URL` adds a running broker, such as a real Pulsar, which does the same work in the
same run; its ratio is that of this broker's speed to its own. Messages of 100 B and 1 kB:
`send_async` in batches until `flush` returns, a loop of `send` without batches, and a reader from
the first message to the last. Then this broker compacts 1,000,000 messages of 1 kB over 100,000
keys and 10,000,000 of 100 B over 1,000,000 keys, published like this, on a warm worker. Compare:
real Pulsar 4.0.7, 14.2 s and 27.4 s.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from typing import NamedTuple

import pulsar

from ledgerfold.broker.client.administration.admin import Admin
from tests.benchmarks.compaction import compact
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, median, percentile
from tests.benchmarks.workload import Workload
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_MS

OURS = "Ledgerfold"
SIZES = {"100 B": 100, "1 kB": 1000}
CASES = (
    ("1 kB", 1_000_000, 100_000, 1000, "Pulsar 14.2 s"),
    ("100 B", 10_000_000, 1_000_000, 100, "Pulsar 27.4 s"),
)
_BATCH = {"batching_enabled": True, "batching_max_messages": 1000, "block_if_queue_full": True}
# The client's log is not needed.
_SILENT = logging.Logger("pulsar", logging.CRITICAL)


class Figures(NamedTuple):
    """The rates of one broker and one size, in messages/s, and the latency of `send`, in ms."""

    published: float
    read: float
    send_p50: float
    send_p99: float


def run(options: Options) -> Report:
    report = Report("pulsar-door", "Pulsar's Python client")
    with options.broker("--pulsar-listen", "127.0.0.1:0", compactor="local") as broker:
        urls = {OURS: f"pulsar://{broker.ready['pulsar']}", **options.pulsar}
        for size, value_bytes in SIZES.items():
            found = _beside_each_other(urls, value_bytes, options)
            for name, figures in found.items():
                _add(report, f"{size}: {name}", figures, found[OURS] if name != OURS else None)
        with Admin(broker.url) as admin:
            _compact_all(report, broker, admin, options)
    return report


def _beside_each_other(
    urls: dict[str, str], value_bytes: int, options: Options
) -> dict[str, Figures]:
    """Measures all brokers alternately. The first turn warms up."""
    taken: dict[str, list[Figures]] = {name: [] for name in urls}
    for turn in range(options.rounds_or(3) + 1):
        for name, url in urls.items():
            figures = _measure(url, value_bytes, options)
            if turn or options.quick:
                taken[name].append(figures)
    return {
        name: Figures(*(median(column) for column in zip(*figures, strict=True)))
        for name, figures in taken.items()
    }


def _measure(url: str, value_bytes: int, options: Options) -> Figures:
    count, singles = options.messages_or(100_000), options.messages_or(100_000) // 50
    topic, payload = f"persistent://public/default/door-{uuid.uuid4().hex}", bytes(value_bytes)
    client = pulsar.Client(url, logger=_SILENT)
    try:
        producer = client.create_producer(topic, **_BATCH)
        began = time.perf_counter()
        for _ in range(count):
            producer.send_async(payload, None)
        producer.flush()
        published = count / (time.perf_counter() - began)
        producer.close()
        reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=10_000)
        began = time.perf_counter()
        for _ in range(count):
            reader.read_next(WAIT_MS)
        read = count / (time.perf_counter() - began)
        reader.close()
        latencies = [*_sent(client, topic, payload, singles)]
    finally:
        client.close()
    return Figures(published, read, percentile(latencies, 50), percentile(latencies, 99))


def _sent(client: pulsar.Client, topic: str, payload: bytes, count: int) -> Iterator[float]:
    """Yields the time to the acknowledgement of each of `count` messages, in ms."""
    producer = client.create_producer(topic)
    for _ in range(count):
        began = time.perf_counter()
        producer.send(payload)
        yield (time.perf_counter() - began) * 1000
    producer.close()


def _add(report: Report, name: str, figures: Figures, ours: Figures | None) -> None:
    def ratio(own: float, other: float) -> str:
        return f"{OURS}: {own / other:.2f} times" if other else ""

    rows = [
        ("send_async", figures.published, "messages/s"),
        ("reader", figures.read, "messages/s"),
        ("send, p50", figures.send_p50, "ms"),
        ("send, p99", figures.send_p99, "ms"),
    ]
    for (what, value, unit), own in zip(rows, ours or figures, strict=True):
        report.add(f"{name}: {what}", value, unit, ratio(own, value) if ours else "")


def _compact_all(report: Report, broker: BrokerProcess, admin: Admin, options: Options) -> None:
    for name, messages, keys, value_bytes, peers in (("warm-up", 10_000, 500, 100, ""), *CASES):
        size = messages if name == "warm-up" else options.messages_or(messages)
        workload = Workload(size, max(size * keys // messages, 1), value_bytes)
        topic = f"persistent://public/default/compacted-{value_bytes}-{name.replace(' ', '-')}"
        _publish(str(broker.ready["pulsar"]), topic, workload)
        timed = compact(admin, topic)
        if name != "warm-up":
            counts = timed.run.counts
            report.add(f"compaction, {name}", timed.seconds, "s", peers)
            report.add(f"compaction, {name}: phase one", counts.phase_one_ms / 1000, "s")
            report.add(f"compaction, {name}: phase two", counts.phase_two_ms / 1000, "s")
        admin.delete_topic(topic, force=True)


def _publish(address: str, topic: str, workload: Workload) -> None:
    client = pulsar.Client(f"pulsar://{address}", logger=_SILENT)
    try:
        producer = client.create_producer(topic, **_BATCH)
        for key, value in workload.pairs():
            producer.send_async(value, None, partition_key=key.decode())
        producer.flush()
    finally:
        client.close()

"""Messages of 100 B, each an entry, through the client: published, compacted, and read.

As programs with the client's defaults: `send_async` without batching until `flush` returns, a run,
and a reader's iterator over the compacted view, with each message's data read. The number of keys
is a tenth of that of the messages. The baseline is the same with batches of up to 128 KiB, in the
same run, alternately. Goals: 100,000 messages/s published, 1,000,000 compacted in 4 s, and
300,000/s read.
"""

from __future__ import annotations

import time
from itertools import islice

from ledgerfold.broker.client import Client, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.client.messages.configs import BULK_SENDING
from tests.benchmarks.compaction import compact
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, median, spread
from tests.benchmarks.workload import Workload
from tests.support import processes

QUEUE_SIZE = 20_000
SINGLE, BATCHED = KINDS = ("an entry each", "batched")
PUBLISH, COMPACT, READ = STEPS = ("published", "compacted", "read compacted")
_GOALS = {PUBLISH: "goal 100,000", COMPACT: "goal 250,000", READ: "goal 300,000"}
Pairs = list[tuple[str, bytes]]


def run(options: Options) -> Report:
    messages = options.messages_or(1_000_000)
    report = Report("small-entries", "messages of 100 B, an entry each beside batches")
    report.sizes = {"messages": messages}
    workload = Workload(messages, keys=max(messages // 10, 1), value_bytes=100)
    pairs = [(key.decode(), value) for key, value in workload.pairs()]
    taken: dict[tuple[str, str], list[float]] = {}
    with options.broker(compactor="local") as broker, Client(broker.url) as client:
        with Admin(broker.url) as admin:
            for turn in range(options.rounds_or(2) + 1):
                for kind in KINDS:
                    seconds = _turn(client, admin, f"{kind.replace(' ', '-')}-{turn}", kind, pairs)
                    if turn or options.quick:
                        for step, each in zip(STEPS, seconds, strict=True):
                            taken.setdefault((step, kind), []).append(each)
        report.add("broker's memory at the end", processes.memory_bytes([broker.pid]) / 1e6, "MB")
    for step in STEPS:
        for kind in KINDS:
            rates = [messages / each for each in taken[step, kind]]
            goal = f"; {_GOALS[step]}" if kind == SINGLE else ""
            report.add(f"{step}, {kind}", median(rates), "messages/s", spread(rates) + goal)
        ratio = median(taken[step, BATCHED]) / median(taken[step, SINGLE]) * 100
        report.add(f"{step}, {SINGLE} / {BATCHED}", ratio, "%")
    return report


def _turn(
    client: Client, admin: Admin, topic: str, kind: str, pairs: Pairs
) -> tuple[float, float, float]:
    """Returns the seconds of each step."""
    published = _publish(client, topic, kind, pairs)
    compacted = compact(admin, topic)
    return (
        published,
        compacted.seconds,
        _read(client, topic, compacted.run.counts.messages_out, pairs),
    )


def _publish(client: Client, topic: str, kind: str, pairs: Pairs) -> float:
    """Returns the seconds until everything is durable."""
    with client.create_producer(
        topic, batching_enabled=kind == BATCHED, batching_max_messages=10_000, **BULK_SENDING
    ) as producer:
        began = time.perf_counter()
        for key, value in pairs:
            producer.send_async(value, None, partition_key=key)
        producer.flush()
        return time.perf_counter() - began


def _read(client: Client, topic: str, survivors: int, pairs: Pairs) -> float:
    """Returns the seconds for as many messages as there are pairs."""
    with client.create_reader(
        topic, MessageId.earliest, is_read_compacted=True, receiver_queue_size=QUEUE_SIZE
    ) as reader:
        began = time.perf_counter()
        size = sum(len(message.data()) for message in islice(reader, survivors))
        taken = time.perf_counter() - began
    if size != survivors * len(pairs[0][1]):
        raise RuntimeError(f"{size} bytes came back of {survivors} messages.")
    return taken / survivors * len(pairs)

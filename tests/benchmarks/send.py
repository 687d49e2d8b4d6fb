"""Messages a second as a person's code sees them: the client library against a real broker.

`send_async` of 100 B messages with keys, batches of up to 128 KiB, fsync mode, until `flush` comes
back; then a reader's iterator over all of them, each message's data taken. One client process and
one broker process, both of CPython on the same machine. Against: Pulsar's Python client (25,000 and
146,000 messages/s) and confluent-kafka (263,000, without fsync). Goals: 260,000 and 500,000.

Then `send` of one message at a time, in turns with a write and `fdatasync` alone. Against: such a
frame to a bare grpc.aio stream that writes and syncs it (baseline.py). The goal is that the median
of `send` is at most 1.5 times that of `fdatasync`.

`--kafka`: instead, with a Kafka topic and a Pulsar topic (kinds.py), of 100 B and of 1 kB.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import closing
from itertools import islice

from ledgerfold.broker.client import Client, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.client.messages.configs import BULK_SENDING
from ledgerfold.broker.wire.frames import encode_entries
from ledgerfold.storage.files import REAL
from ledgerfold.storage.open_files import AppendFile
from tests.benchmarks import kinds, wire
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, median, number, percentile, seconds_of, spread
from tests.benchmarks.workload import Workload
from tests.support.broker_process import BrokerProcess

QUEUE_SIZE = 20_000
# Of one message at a time, in each turn.
_SENDS, _TURNS = 300, 5
_AGAINST = {
    "send_async": "; Pulsar 25,000, confluent-kafka 263,000; goal 260,000",
    "reader's iterator": "; Pulsar 146,000; goal 500,000",
}
Pairs = list[tuple[str, bytes]]
# Returns the seconds that the work takes with a topic.
Work = Callable[[Client, str, Pairs], float]


def run(options: Options) -> Report:
    report = Report("send", "send_async and a reader's iterator, messages with keys")
    messages = options.messages_or(1_000_000)
    report.sizes = {"messages": messages}
    with options.broker() as broker, Client(broker.url) as client:
        if options.kafka:
            for value_bytes, count in ((100, messages), (1000, messages // 5)):
                pairs = _pairs(max(count, 1), value_bytes)
                _compare(report, broker, client, pairs, options.rounds_or(3))
        else:
            _measure(report, client, _pairs(messages, 100), options.rounds_or(3))
            _one_by_one(report, client, options)
    return report


def _measure(report: Report, client: Client, pairs: Pairs, rounds: int) -> None:
    topics = [f"send-{turn}" for turn in range(rounds)]
    for what, work in _WORK.items():
        rates = [len(pairs) / work(client, topic, pairs) for topic in topics]
        report.add(what, median(rates), "messages/s", spread(rates) + _AGAINST[what])


def _one_by_one(report: Report, client: Client, options: Options) -> None:
    value, count = bytes(100), 1 if options.quick else _SENDS
    sends, syncs = list[float](), list[float]()
    with (
        options.fresh_folder() as folder,
        client.create_producer("one-by-one") as producer,
        closing(REAL.create(folder / "file")) as file,
    ):
        for _ in range(_TURNS):
            sends += [seconds_of(lambda: producer.send(value)) for _ in range(count)]
            syncs += [seconds_of(lambda: _write(file, value)) for _ in range(count)]
    # NOTE: later, because grpc.aio has one event loop in a process, which is the client's.
    client.close()
    with options.bare_server() as address:
        answers = asyncio.run(_answers(address, _TURNS * count))
    send, answer, sync = (percentile(each, 50) for each in (sends, answers, syncs))
    p99 = f"p99 {number(percentile(sends, 99) * 1e3)} ms"
    report.add("send, one at a time: p50", send * 1e3, "ms", p99)
    report.add("bare grpc.aio: p50", answer * 1e3, "ms")
    report.add("a write and fdatasync: p50", sync * 1e3, "ms")
    report.add("send / bare grpc.aio", send / answer, "x")
    report.add("send / fdatasync", send / sync, "x", "goal 1.5")


def _write(file: AppendFile, value: bytes) -> None:
    file.write([value])
    file.sync()


async def _answers(address: str, count: int) -> list[float]:
    """Returns the seconds from each frame to its acknowledgement by the bare server."""
    taken = []
    frame = encode_entries([entry for entry, _ in Workload(1, keys=1, value_bytes=100).entries()])
    async with wire.connected(address) as channel:
        call = await wire.Bare(channel, "one-by-one").open_publish()
        for _ in range(count):
            began = time.perf_counter()
            await call.write(frame)
            await call.read()
            taken.append(time.perf_counter() - began)
        await call.done_writing()
    return taken


def _compare(
    report: Report, broker: BrokerProcess, client: Client, pairs: Pairs, rounds: int
) -> None:
    value_bytes = len(pairs[0][1])
    with Admin(broker.url) as admin:
        for turn in range(rounds + 1):
            for kind in kinds.KINDS:
                kinds.create(admin, kind, f"{kind}-{value_bytes}-{turn}")
    for what, work in _WORK.items():

        def do(kind: str, turn: int, work: Work = work) -> float:
            return work(client, f"{kind}-{value_bytes}-{turn}", pairs)

        taken = kinds.turns(do, rounds, broker.pid)
        kinds.compare(report, f"{value_bytes} B, {what}", len(pairs), "messages", taken)


def _pairs(messages: int, value_bytes: int) -> Pairs:
    workload = Workload(messages, keys=100_000, value_bytes=value_bytes)
    return [(key.decode(), value) for key, value in workload.pairs()]


def _send(client: Client, topic: str, pairs: Pairs) -> float:
    failed: list[object] = []

    def on_receipt(result: object, message_id: object) -> None:
        if message_id is None:
            failed.append(result)

    with client.create_producer(
        topic, batching_enabled=True, batching_max_messages=10_000, **BULK_SENDING
    ) as producer:
        began = time.perf_counter()
        for key, value in pairs:
            producer.send_async(value, on_receipt, partition_key=key)
        producer.flush()
        taken = time.perf_counter() - began
    if failed:
        raise RuntimeError(f"{len(failed)} messages were not stored: {failed[0]}")
    return taken


def _read(client: Client, topic: str, pairs: Pairs) -> float:
    with client.create_reader(topic, MessageId.earliest, receiver_queue_size=QUEUE_SIZE) as reader:
        began = time.perf_counter()
        size = sum(len(message.data()) for message in islice(reader, len(pairs)))
        taken = time.perf_counter() - began
    if size != sum(len(value) for _, value in pairs):
        raise RuntimeError(f"{size} bytes came back.")
    return taken


_WORK: dict[str, Work] = {"send_async": _send, "reader's iterator": _read}

"""Messages a second as a person's code sees them: the client library against a real broker.

`send_async` of 100 B messages with keys, batches of up to 128 KiB, fsync mode, until `flush` comes
back; then a reader's iterator over all of them, each message's data taken. One client process, one
broker process, both of CPython on the same machine. Against: Pulsar's Python client (25,000 and
146,000 messages/s) and confluent-kafka (263,000, without fsync). Goals: 260,000 and 500,000.
"""

from __future__ import annotations

import time
from itertools import islice

from ledgerfold.broker.client import Client, MessageId
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, median, spread
from tests.benchmarks.workload import Workload

QUEUE_SIZE = 20_000


def run(options: Options) -> Report:
    messages = options.messages_or(1_000_000)
    workload = Workload(messages, keys=100_000, value_bytes=100)
    pairs = [(key.decode(), value) for key, value in workload.pairs()]
    report = Report("send", "send_async and a reader's iterator, 100 B messages with keys")
    report.sizes = {"messages": messages}
    sent, read = [], []
    with options.broker() as broker, Client(broker.url) as client:
        for turn in range(options.rounds_or(3)):
            topic = f"send-{turn}"
            sent.append(messages / _send(client, topic, pairs))
            read.append(messages / _read(client, topic, messages))
    report.add(
        "send_async",
        median(sent),
        "messages/s",
        f"{spread(sent)}; Pulsar 25,000, confluent-kafka 263,000; goal 260,000",
    )
    report.add(
        "reader's iterator",
        median(read),
        "messages/s",
        f"{spread(read)}; Pulsar 146,000; goal 500,000",
    )
    return report


def _send(client: Client, topic: str, pairs: list[tuple[str, bytes]]) -> float:
    failed: list[object] = []

    def on_receipt(result: object, message_id: object) -> None:
        if message_id is None:
            failed.append(result)

    with client.create_producer(
        topic, batching_enabled=True, batching_max_messages=10_000
    ) as producer:
        began = time.perf_counter()
        for key, value in pairs:
            producer.send_async(value, on_receipt, partition_key=key)
        producer.flush()
        taken = time.perf_counter() - began
    if failed:
        raise RuntimeError(f"{len(failed)} messages were not stored: {failed[0]}")
    return taken


def _read(client: Client, topic: str, messages: int) -> float:
    with client.create_reader(topic, MessageId.earliest, receiver_queue_size=QUEUE_SIZE) as reader:
        began = time.perf_counter()
        size = sum(len(message.data()) for message in islice(reader, messages))
        taken = time.perf_counter() - began
    if size != messages * 100:
        raise RuntimeError(f"{size} bytes came back.")
    return taken

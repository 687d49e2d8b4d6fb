"""Messages a second as a person's code sees them: the client library against a real broker.

`send_async` of 100 B messages with keys, batches of up to 128 KiB, fsync mode, until `flush` comes
back; then a reader's iterator over all of them, each message's data taken. One client process, one
broker process, both of CPython on the same machine. Against: Pulsar's Python client (25,000 and
146,000 messages/s) and confluent-kafka (263,000, without fsync). Goals: 260,000 and 500,000.

`--kafka`: the same on a Kafka topic, turn by turn with the other one, of 100 B and of 1 kB messages
(a fifth as many). The goal is that it takes at most a tenth longer.
"""

from __future__ import annotations

import time
from itertools import islice

from ledgerfold.broker.client import Client, MessageId
from ledgerfold.broker.client.admin import Admin
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, median, spread
from tests.benchmarks.workload import Workload

QUEUE_SIZE = 20_000
_AGAINST = {
    "send_async": "; Pulsar 25,000, confluent-kafka 263,000; goal 260,000",
    "reader's iterator": "; Pulsar 146,000; goal 500,000",
}
Pairs = list[tuple[str, bytes]]


def run(options: Options) -> Report:
    messages = options.messages_or(1_000_000)
    report = Report("send", "send_async and a reader's iterator, messages with keys")
    report.sizes = {"messages": messages}
    rounds = options.rounds_or(3)
    with (
        options.broker() as broker,
        Client(broker.url) as client,
        Admin(broker.url) as admin,
    ):
        plain = _turns(client, None, _pairs(messages, 100), rounds)["native"]
        for what, rates in plain.items():
            report.add(what, median(rates), "messages/s", spread(rates) + _AGAINST[what])
        if options.kafka:
            for value_bytes, count in ((100, messages), (1000, messages // 5)):
                kinds = _turns(client, admin, _pairs(count, value_bytes), rounds)
                _compare(report, value_bytes, kinds)
    return report


def _compare(report: Report, value_bytes: int, kinds: dict[str, dict[str, list[float]]]) -> None:
    for what, native in kinds["native"].items():
        kafka = kinds["kafka"][what]
        for kind, rates in (("native", native), ("kafka", kafka)):
            name = f"{value_bytes} B, {kind}, {what}"
            report.add(name, median(rates), "messages/s", spread(rates))
        ratio = median(kafka) / median(native) * 100
        report.add(f"{value_bytes} B, kafka / native, {what}", ratio, "%", "goal 90 %")


def _pairs(messages: int, value_bytes: int) -> Pairs:
    workload = Workload(messages, keys=100_000, value_bytes=value_bytes)
    return [(key.decode(), value) for key, value in workload.pairs()]


def _turns(
    client: Client, admin: Admin | None, pairs: Pairs, rounds: int
) -> dict[str, dict[str, list[float]]]:
    """Rates by kind of topic and by what was done. Without an admin: of the one kind."""
    found: dict[str, dict[str, list[float]]] = {}
    for turn in range(rounds):
        for kind in ("native", "kafka") if admin else ("native",):
            topic = f"{kind}-{len(pairs)}-{turn}-{admin is not None}"
            if admin and kind == "kafka":
                admin.create_topic(topic, kafka={"cleanup.policy": "compact"})
            rates = found.setdefault(kind, {"send_async": [], "reader's iterator": []})
            rates["send_async"].append(len(pairs) / _send(client, topic, pairs))
            rates["reader's iterator"].append(len(pairs) / _read(client, topic, pairs))
    return found


def _send(client: Client, topic: str, pairs: Pairs) -> float:
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


def _read(client: Client, topic: str, pairs: Pairs) -> float:
    with client.create_reader(topic, MessageId.earliest, receiver_queue_size=QUEUE_SIZE) as reader:
        began = time.perf_counter()
        size = sum(len(message.data()) for message in islice(reader, len(pairs)))
        taken = time.perf_counter() - began
    if size != sum(len(value) for _, value in pairs):
        raise RuntimeError(f"{size} bytes came back.")
    return taken

"""Messages that one client delays and the other one receives."""

from __future__ import annotations

import time
from datetime import timedelta

import pulsar
import pytest

import ledgerfold
from ledgerfold.broker.client import Client

DELAY = timedelta(milliseconds=600)


@pytest.mark.parametrize("consumer_type", ["Shared", "KeyShared"])
def test_delayed_by_this_client_received_by_pulsars(
    client: pulsar.Client, native: Client, topic: str, consumer_type: str
) -> None:
    """The message sent later arrives first, and the delayed one when it is due."""
    type_ = getattr(pulsar.ConsumerType, consumer_type)
    shared = client.subscribe(topic, "s", type_)
    exclusive = client.subscribe(topic, "exclusive")
    producer = native.create_producer(topic, batching_enabled=True)
    due_s = time.time() + DELAY.total_seconds()
    producer.send(b"later", partition_key="k", deliver_after=DELAY)
    producer.send(b"now", partition_key="k")
    assert [exclusive.receive(10_000).data() for _ in range(2)] == [b"later", b"now"]
    assert shared.receive(10_000).data() == b"now"
    message = shared.receive(10_000)
    assert (message.data(), time.time() >= due_s) == (b"later", True)


def test_delayed_by_pulsars_client_received_by_this_one(
    client: pulsar.Client, native: Client, topic: str
) -> None:
    shared = native.subscribe(topic, "s", ledgerfold.ConsumerType.Shared)
    exclusive = native.subscribe(topic, "exclusive")
    producer = client.create_producer(topic)
    due_s = time.time() + DELAY.total_seconds()
    producer.send(b"later", deliver_at=int(due_s * 1000) + 1)
    producer.send(b"now")
    assert [exclusive.receive(10_000).data() for _ in range(2)] == [b"later", b"now"]
    assert shared.receive(10_000).data() == b"now"
    message = shared.receive(10_000)
    assert (message.data(), time.time() >= due_s) == (b"later", True)


def test_delayed_and_received_by_this_packages_client(native: Client, topic: str) -> None:
    """Readers get all at once, in the order of sending."""
    shared = native.subscribe(topic, "s", ledgerfold.ConsumerType.Shared)
    producer = native.create_producer(topic)
    for number in range(20):
        delay = DELAY if number % 2 else None
        producer.send_async(b"%d" % number, None, partition_key="k", deliver_after=delay)
    producer.flush()
    reader = native.create_reader(topic, ledgerfold.MessageId.earliest)
    assert [int(reader.read_next(10_000).data()) for _ in range(20)] == list(range(20))
    received = [int(shared.receive(10_000).data()) for _ in range(20)]
    assert received == [*range(0, 20, 2), *range(1, 20, 2)]

"""Key_Shared as Pulsar's, and delayed messages, by Pulsar's own client and by bare frames."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pulsar
import pytest

from ledgerfold.broker.client import Client, ConsumerType
from ledgerfold.broker.subscriptions.key_owners import key_slot
from ledgerfold.v1 import pulsar_pb2
from tests.pulsar.recorded import RawClient, subscribe
from tests.pulsar.test_pulsar_producers import read_all
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_MS

KEYS = [f"key-{number}" for number in range(40)]
KEY_SHARED = pulsar.ConsumerType.KeyShared


def receive_all(consumer: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    found = [consumer.receive(WAIT_MS) for _ in range(count)]
    for each in found:
        consumer.acknowledge(each)
    return found


def send_keys(client: pulsar.Client, topic: str, **options: Any) -> None:
    producer = client.create_producer(topic)
    for key in KEYS:
        producer.send(b"v", partition_key=key, **options)
    producer.close()


def sticky(*ranges: tuple[int, int]) -> pulsar.ConsumerKeySharedPolicy:
    return pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, False, list(ranges))


def got(consumer: pulsar.Consumer, count: int) -> list[str]:
    """Returns the keys of the next `count` messages, and of those that follow them at once."""
    found = list[str]()
    while True:
        try:
            message = consumer.receive(WAIT_MS if len(found) < count else 200)
        except pulsar.Timeout:
            return found
        consumer.acknowledge(message)
        found.append(message.partition_key())


def test_keys_have_the_owners_that_pulsar_computes(client: pulsar.Client, topic: str) -> None:
    """The owners are those that Pulsar 4.0.7's own class computes."""
    owners = "babbbaaacbbaacabbaabcaababacbcbbbbbabcaa"
    consumers = {
        name: client.subscribe(topic, "s", KEY_SHARED, consumer_name=name) for name in "abc"
    }
    send_keys(client, topic)
    for name, consumer in consumers.items():
        expected = [key for key, owner in zip(KEYS, owners, strict=True) if owner == name]
        assert got(consumer, len(expected)) == expected
        consumer.close()


def test_sticky_consumers_declare_their_hash_ranges(client: pulsar.Client, topic: str) -> None:
    low = client.subscribe(topic, "s", KEY_SHARED, key_shared_policy=sticky((0, 29999)))
    with pytest.raises(pulsar.ConsumerAssignError):
        client.subscribe(topic, "s", KEY_SHARED, key_shared_policy=sticky((29999, 65535)))
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s", KEY_SHARED)
    high = client.subscribe(topic, "s", KEY_SHARED, key_shared_policy=sticky((30000, 65535)))
    send_keys(client, topic)
    for consumer, is_low in ((low, True), (high, False)):
        expected = [k for k in KEYS if (key_slot(k.encode(), on_ring=False) < 30000) == is_low]
        assert got(consumer, len(expected)) == expected


def test_an_ordering_key_has_priority_over_the_key(client: pulsar.Client, topic: str) -> None:
    consumers = [
        client.subscribe(topic, "s", KEY_SHARED, key_shared_policy=sticky(each))
        for each in ((0, 29999), (30000, 65535))
    ]
    send_keys(client, topic, ordering_key="key-0")
    assert key_slot(b"key-0", on_ring=False) >= 30000
    assert (got(consumers[1], len(KEYS)), got(consumers[0], 0)) == (KEYS, [])


def test_invalid_ranges_of_bare_frames(broker: BrokerProcess, topic: str) -> None:
    with RawClient(str(broker.ready["pulsar"])) as client:
        for ranges in ([], [{"start": 5, "end": 4}], [{"start": 0, "end": 65536}]):
            policy = {"key_shared_mode": 1, "hash_ranges": ranges}
            command = subscribe(topic, key_shared_meta=policy)
            command.subscribe.sub_type = 3
            client.send(command)
            assert client.read().error.error == pulsar_pb2.CONSUMER_ASSIGN_ERROR


def test_delayed_messages(client: pulsar.Client, native: Client, topic: str) -> None:
    """Shared subscriptions wait for them, others do not, over both protocols.

    On a machine that does not do all of that within the delay, a longer one is tried.
    """
    is_in_time = (
        is_delayed_by(delay_s, client, native, f"{topic}-{delay_s}") for delay_s in (2, 10, 30)
    )
    assert any(is_in_time)


def is_delayed_by(delay_s: int, client: pulsar.Client, native: Client, topic: str) -> bool:
    """Returns whether the rest was done before the end of the delay."""
    shared = client.subscribe(topic, "shared", pulsar.ConsumerType.Shared)
    exclusive = client.subscribe(topic, "exclusive")
    ours = native.subscribe(topic, "ours", consumer_type=ConsumerType.Shared)
    producer = client.create_producer(topic, batching_enabled=True)
    began_s = time.time()
    producer.send(b"late", deliver_after=timedelta(seconds=delay_s))
    producer.send(b"now")
    assert [each.data() for each in receive_all(exclusive, 2)] == [b"late", b"now"]
    first = [shared.receive(WAIT_MS), ours.receive(WAIT_MS)]
    assert [each.data() for each in read_all(client, topic)] == [b"late", b"now"]
    if time.time() >= began_s + delay_s:
        return False
    assert [each.data() for each in first] == [b"now", b"now"]
    last = [shared.receive(WAIT_MS), ours.receive(WAIT_MS)]
    assert [each.data() for each in last] == [b"late", b"late"]
    assert time.time() >= began_s + delay_s
    return True

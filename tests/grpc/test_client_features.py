"""Consumers and readers as in Pulsar's Python client, on a real broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

import pytest

from ledgerfold.broker.client import (
    Client,
    Consumer,
    ConsumerBatchReceivePolicy,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
    ConsumerType,
    InitialPosition,
    KeySharedMode,
    MessageId,
)
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import InvalidHashRanges, Timeout
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_MS, wait_until

pytestmark = pytest.mark.process
EARLIEST = InitialPosition.Earliest


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data_dir = tmp_path_factory.mktemp("features") / "data"
    with BrokerProcess(data_dir, arguments=["--compactor", "off"]) as broker:
        yield broker


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    with Client(broker.url, partitions_update_interval_seconds=0.05) as client:
        yield client


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(broker.url) as admin:
        yield admin


def publish(client: Client, topic: str, count: int, **options: bool) -> None:
    with client.create_producer(topic, **options) as producer:  # type: ignore[arg-type]
        for number in range(count):
            producer.send_async(b"%d" % number, None, partition_key=f"k{number}")


def test_a_pattern_consumer_adds_new_topics_and_drops_deleted_ones(
    client: Client, admin: Admin, topic: str
) -> None:
    """Also partitioned topics; the consumer does not recreate a deleted topic."""
    admin.create_partitioned_topic(f"{topic}-parts", 2)
    publish(client, f"{topic}-parts", 6)
    consumer = client.subscribe(
        re.compile(f"persistent://public/default/{topic}-.*"),
        "s",
        initial_position=EARLIEST,
        pattern_auto_discovery_period=1,
    )
    for _ in range(6):
        consumer.acknowledge(consumer.receive(timeout_millis=WAIT_MS))
    publish(client, f"{topic}-late", 2)
    for number in (b"0", b"1"):
        message = consumer.receive(timeout_millis=WAIT_MS)
        assert (message.topic_name(), message.data()) == (
            f"persistent://public/default/{topic}-late",
            number,
        )
        consumer.acknowledge(message.message_id())
    admin.delete_topic(f"{topic}-late", force=True)
    publish(client, f"{topic}-other", 1)
    message = consumer.receive(timeout_millis=WAIT_MS)
    assert message.topic_name().endswith("-other")
    consumer.close()
    backlog = admin.stats(f"{topic}-parts-partition-0")["subscriptions"]["s"]["msgBacklog"]
    assert backlog == 0


def test_a_dead_letter_leaves_the_backlog(client: Client, admin: Admin, topic: str) -> None:
    """With its subscription; the original leaves the backlog."""
    publish(client, topic, 3, batching_enabled=True)
    consumer = client.subscribe(
        topic,
        "s",
        ConsumerType.Shared,
        initial_position=EARLIEST,
        negative_ack_redelivery_delay_ms=20,
        dead_letter_policy=ConsumerDeadLetterPolicy(1, None, "audit"),
    )
    for size in (3, 2):
        for _ in range(size):
            message = consumer.receive(timeout_millis=WAIT_MS)
            if message.data() == b"1":
                consumer.acknowledge(message)
            else:
                consumer.negative_acknowledge(message)
    audit = client.subscribe(f"{topic}-s-DLQ", "audit", initial_position=EARLIEST)
    dead = [audit.receive(timeout_millis=WAIT_MS) for _ in range(2)]
    assert [(each.data(), each.partition_key()) for each in dead] == [(b"0", "k0"), (b"2", "k2")]
    wait_until(lambda: admin.stats(topic)["subscriptions"]["s"]["msgBacklog"] == 0, "the backlog")


def test_consumers_without_a_queue_share_messages_one_by_one(client: Client, topic: str) -> None:
    """Two consumers that prefetch nothing share the messages one by one."""
    publish(client, topic, 4)
    one, other = (
        client.subscribe(
            topic, "s", ConsumerType.Shared, initial_position=EARLIEST, receiver_queue_size=0
        )
        for _ in range(2)
    )
    received = [each.receive() for each in (one, one, one, other)]
    assert [each.data() for each in received] == [b"0", b"1", b"2", b"3"]
    reader = client.create_reader(topic, MessageId.earliest, receiver_queue_size=0)
    assert [each.data() for each in reader] == [b"0", b"1", b"2", b"3"]


def test_batches_and_binary_keys(client: Client, topic: str) -> None:
    with client.create_producer(topic) as producer:
        for number in range(5):
            producer.send_async(b"x", None, partition_key=bytes([0xFF, number]))
    policy = ConsumerBatchReceivePolicy(3, -1, 10_000)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST, batch_receive_policy=policy)
    assert [each.key_bytes() for each in consumer.batch_receive()] == [
        b"\xff\x00",
        b"\xff\x01",
        b"\xff\x02",
    ]


def test_a_reader_has_a_subscription_name(client: Client, admin: Admin, topic: str) -> None:
    with client.create_reader(topic, MessageId.earliest, subscription_role_prefix="team"):
        (name,) = admin.stats(topic)["subscriptions"]
        assert name.startswith("team-reader-")


def test_sticky_consumers_get_the_keys_of_their_ranges(client: Client, topic: str) -> None:
    """Each consumer gets only the keys of its hashes."""

    def subscribed(first: int, last: int) -> Consumer:
        policy = ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=[(first, last)])
        return client.subscribe(topic, "s", ConsumerType.KeyShared, key_shared_policy=policy)

    low, high = subscribed(0, 32_767), subscribed(32_768, 65_535)
    with pytest.raises(InvalidHashRanges):
        subscribed(100, 200)
    producer = client.create_producer(topic)
    for number in range(20):
        producer.send(b"", partition_key=f"k{number}")
    keys = dict[Consumer, set[str]]({low: set(), high: set()})

    def are_received() -> bool:
        for consumer, found in keys.items():
            with suppress(Timeout):
                found.add(consumer.receive(timeout_millis=100).partition_key())
        return sum(map(len, keys.values())) >= 20

    wait_until(are_received, "all messages")
    assert keys[low] | keys[high] == {f"k{number}" for number in range(20)}
    assert keys[low]
    assert keys[high]
    assert not keys[low] & keys[high]

"""Partitioned topics end to end: the client library and the command line on a real broker.

No compactor: tests/conformance/cases covers the compaction of partitions.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledgerfold.broker.client import Client, ConsumerType, InitialPosition, Message, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.client.messages.routing import murmur3_32
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import Ran, ledgerfold
from tests.support.waiting import WAIT_MS, wait_until

PARTITIONS = 3
KEYS = [f"k{number}" for number in range(30)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data_dir = tmp_path_factory.mktemp("partitions") / "data"
    with BrokerProcess(data_dir, arguments=["--compactor", "off"]) as broker:
        yield broker


@pytest.fixture
def admin(broker: BrokerProcess, topic: str) -> Iterator[Admin]:
    """`topic` has three partitions."""
    with Admin(broker.url) as admin:
        admin.create_partitioned_topic(topic, PARTITIONS)
        yield admin


@pytest.fixture
def client(broker: BrokerProcess, admin: Admin) -> Iterator[Client]:
    with Client(broker.url, partitions_update_interval_seconds=0.05) as client:
        yield client


def publish(client: Client, topic: str, keys: list[str]) -> None:
    """The content of each key is the key."""
    with client.create_producer(topic, batching_enabled=True, batching_max_messages=4) as producer:
        for key in keys:
            producer.send_async(key.encode(), None, partition_key=key)


def by_partition(keys: list[str]) -> list[list[str]]:
    return [[key for key in keys if murmur3_32(key) % PARTITIONS == i] for i in range(PARTITIONS)]


def grouped(messages: list[Message]) -> list[list[str]]:
    return [
        [each.data().decode() for each in messages if each.message_id().partition() == i]
        for i in range(PARTITIONS)
    ]


def test_messages_are_read_in_the_order_of_each_partition(client: Client, topic: str) -> None:
    """Ids name the partition, also if it is read by its own name."""
    publish(client, topic, KEYS)
    read = list(client.create_reader(topic, MessageId.earliest))
    assert grouped(read) == by_partition(KEYS)
    alone = list(client.create_reader(f"{topic}-partition-1", MessageId.earliest))
    assert grouped(alone) == [[], by_partition(KEYS)[1], []]
    assert {each.topic_name().rpartition("-")[2] for each in read} == {"0", "1", "2"}


def test_a_consumer_resumes_at_its_acknowledgements(
    client: Client, admin: Admin, topic: str
) -> None:
    """Messages that were acknowledged, individually or cumulatively, are acknowledged on their own
    partition only.
    """
    publish(client, topic, KEYS)
    start = InitialPosition.Earliest
    with client.subscribe(topic, "s", initial_position=start) as consumer:
        received = [consumer.receive(WAIT_MS) for _ in KEYS]
        for message in received:
            if message.message_id().partition() == 0:
                consumer.acknowledge(message)
        in_1 = [each for each in received if each.message_id().partition() == 1]
        consumer.acknowledge_cumulative(in_1[-1])
    with client.subscribe(topic, "s") as consumer:
        left = [consumer.receive(WAIT_MS) for _ in by_partition(KEYS)[2]]
        assert grouped(left) == [[], [], by_partition(KEYS)[2]]
    stats = admin.partitioned_stats(topic, per_partition=True)
    backlogs = [each["subscriptions"]["s"]["msgBacklog"] for each in stats["partitions"].values()]
    assert backlogs[:2] == [0, 0]
    assert stats["subscriptions"]["s"]["msgBacklog"] == sum(backlogs) == backlogs[2] > 0
    assert stats["msgInCounter"] == len(KEYS)


def test_seeking_by_time_moves_every_partition(client: Client, topic: str) -> None:
    publish(client, topic, KEYS)
    reader = client.create_reader(topic, MessageId.earliest)
    last_ms = max(message.publish_timestamp() for message in reader)
    reader.seek(last_ms + 1)
    assert not reader.has_message_available()
    reader.seek(0)
    assert len(list(reader)) == len(KEYS)


def test_a_failover_subscription_spreads_partitions_over_its_consumers(
    broker: BrokerProcess, client: Client, topic: str
) -> None:
    """Each partition has one active consumer; the remaining consumer gets all partitions."""
    a = client.subscribe(topic, "s", ConsumerType.Failover, consumer_name="a")
    with Client(broker.url) as other:
        b = other.subscribe(topic, "s", ConsumerType.Failover, consumer_name="b")
        publish(client, topic, KEYS)
        of_0, of_1, of_2 = by_partition(KEYS)
        received = [a.receive(WAIT_MS) for _ in of_0 + of_2]
        assert grouped(received) == [of_0, [], of_2]
        assert grouped([b.receive(WAIT_MS) for _ in of_1]) == [[], of_1, []]
        for message in received:
            a.acknowledge(message)
    assert grouped([a.receive(WAIT_MS) for _ in of_1]) == [[], of_1, []]


def test_open_clients_notice_new_partitions(client: Client, admin: Admin, topic: str) -> None:
    """A producer, a consumer, a reader and a table view that were opened before."""
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, "s", ConsumerType.Shared)
    reader = client.create_reader(topic, MessageId.latest)
    view = client.create_table_view(topic)
    admin.update_partitioned_topic(topic, 4)
    key = next(key for key in KEYS if murmur3_32(key) % 4 == 3)
    wait_until(lambda: producer.send(b"x", partition_key=key).partition() == 3, "partition 3")

    def partitions(receive: object) -> set[int]:
        assert callable(receive)
        found = set()
        while 3 not in found:
            found.add(receive(WAIT_MS).message_id().partition())
        return found

    assert 3 in partitions(consumer.receive)
    assert 3 in partitions(reader.read_next)
    wait_until(lambda: view.get(key) == b"x", "the key in the view")


def test_lost_streams_of_all_partitions_are_restored(
    client: Client, admin: Admin, topic: str
) -> None:
    """Unloading ends all streams in the middle: nothing is lost, repeated or reordered."""
    producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=2)
    reader = client.create_reader(topic, MessageId.earliest)
    for key in KEYS[:20]:
        producer.send_async(key.encode(), None, partition_key=key)
    read = [reader.read_next(WAIT_MS) for _ in range(5)]
    admin.unload(topic)
    for key in KEYS[20:]:
        producer.send_async(key.encode(), None, partition_key=key)
    producer.flush()
    read += [reader.read_next(WAIT_MS) for _ in range(len(KEYS) - 5)]
    assert grouped(read) == by_partition(KEYS)
    assert not reader.has_message_available()


def test_the_command_line_accepts_partitioned_names(
    broker: BrokerProcess, admin: Admin, topic: str
) -> None:
    """produce, read, consume, by key; ids have four parts, and are accepted as arguments."""

    def run(*arguments: str, stdin: bytes = b"") -> Ran:
        ran = ledgerfold("--url", broker.url, *arguments, stdin=stdin)
        assert ran.code == 0, ran.err
        return ran

    lines = "".join(f"{key}:{key}\n" for key in KEYS).encode()
    printed = run("produce", topic, "-K", ":", "-v", stdin=lines).out.splitlines()
    assert len({text.split(":")[2] for text in printed}) == PARTITIONS
    rows = run("read", topic, "--until-end", "-o", "jsonl").rows
    assert sorted(row["key"] for row in rows) == sorted(KEYS)
    assert sorted(row["id"] for row in rows) == sorted(printed)
    consume = ("consume", topic, "-s", "s", "-p", "Earliest", "-n", "0", "--until-end")
    consumed = run(*consume, "-o", "jsonl").rows
    assert sorted(row["key"] for row in consumed) == sorted(KEYS)
    assert run(*consume, "-o", "jsonl").rows == []
    in_1 = [row for row in rows if row["id"].split(":")[2] == "1"]
    partition = f"{topic}-partition-1"
    for name in (partition, topic):
        # The id contains its partition.
        behind = run("read", name, "--from", in_1[0]["id"], "--until-end", "-o", "jsonl").rows
        assert behind == in_1[1:]
    run("produce", topic, "-k", "k1", "--tombstone")
    assert admin.partitioned_stats(topic)["msgInCounter"] == len(KEYS) + 1

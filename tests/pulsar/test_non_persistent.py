"""Non-persistent topics, with Pulsar's client and this package's."""

from __future__ import annotations

import re
from typing import Any

import pulsar
import pytest

from ledgerfold.broker.client import Client, ConsumerType, MessageId, RegexSubscriptionMode
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import NotAllowed, SubscriptionBusy, TopicNotFound
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_MS, wait_until

EARLIEST = pulsar.MessageId.earliest


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    local = str(request.node.name).replace("[", "-").replace("]", "")
    return f"non-persistent://public/default/{local}"


def values(consumer: Any, count: int) -> list[int]:
    found = []
    for _ in range(count):
        message = consumer.receive(WAIT_MS)
        consumer.acknowledge(message)
        found.append(int(message.data()))
    return found


def stats_of(broker: BrokerProcess, topic: str) -> dict[str, Any]:
    with Admin(broker.url) as admin:
        return admin.stats(topic)


def wait_for_permits(broker: BrokerProcess, topic: str, consumers: int) -> None:
    """Waits until these consumers have asked for messages, which would be dropped before.

    A client asks after it was answered that it is subscribed.
    """

    def have_permits() -> bool:
        try:
            subscriptions = stats_of(broker, topic)["subscriptions"].values()
        except TopicNotFound:
            return False
        permits = [each["availablePermits"] for one in subscriptions for each in one["consumers"]]
        return len(permits) == consumers and min(permits) > 0

    wait_until(have_permits, "all permits")


def test_produce_and_consume(client: pulsar.Client, topic: str) -> None:
    """The scenario of the client's own test suite: messages published earlier do not exist."""
    consumer = client.subscribe(topic, "my-sub", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic)
    assert producer.last_sequence_id() == -1
    sent = producer.send(b"0")
    message = consumer.receive(WAIT_MS)
    assert message.data() == b"0"
    assert str(message.message_id()) == str(sent) == "(0,0,-1,-1)"
    assert producer.last_sequence_id() == 0
    consumer.acknowledge(message)
    with pytest.raises(pulsar.Timeout):
        consumer.receive(100)
    consumer.unsubscribe()
    producer.send(b"1")
    later = client.subscribe(topic, "my-sub", initial_position=pulsar.InitialPosition.Earliest)
    with pytest.raises(pulsar.Timeout):
        later.receive(100)


@pytest.mark.parametrize("type_", ["Exclusive", "Failover", "Shared", "KeyShared"])
def test_subscription_types_and_batches_over_both_protocols(
    client: pulsar.Client, native: Client, broker: BrokerProcess, topic: str, type_: str
) -> None:
    ours = native.subscribe(topic, "ours", consumer_type=getattr(ConsumerType, type_))
    theirs = client.subscribe(topic, "theirs", consumer_type=getattr(pulsar.ConsumerType, type_))
    batched = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=60_000
    )
    wait_for_permits(broker, topic, 2)
    for number in range(20):
        batched.send_async(b"%d" % number, None, partition_key="k")
    batched.flush()
    alone = native.create_producer(topic, batching_enabled=False)
    for number in range(20, 30):
        alone.send(b"%d" % number, partition_key="k")
    assert values(theirs, 30) == list(range(30))
    assert values(ours, 30) == list(range(30))


def test_a_reader_gets_only_new_messages(
    client: pulsar.Client, native: Client, broker: BrokerProcess, topic: str
) -> None:
    producer = client.create_producer(topic)
    producer.send(b"before")
    theirs = client.create_reader(topic, EARLIEST)
    ours = native.create_reader(topic, MessageId.earliest)
    wait_for_permits(broker, topic, 2)
    producer.send(b"after")
    assert theirs.read_next(WAIT_MS).data() == b"after"
    assert ours.read_next(WAIT_MS).data() == b"after"
    assert not ours.has_message_available()
    with pytest.raises(pulsar.PulsarException):
        theirs.has_message_available()
    # As in Pulsar, where a seek of such a consumer has no effect.
    theirs.seek(EARLIEST)
    with pytest.raises(NotAllowed):
        ours.seek(MessageId.earliest)
    producer.send(b"later")
    assert theirs.read_next(WAIT_MS).data() == b"later"
    assert ours.read_next(WAIT_MS).data() == b"later"


def test_dropped_messages_are_counted(
    client: pulsar.Client, broker: BrokerProcess, topic: str
) -> None:
    slow = client.subscribe(topic, "slow", receiver_queue_size=1)
    fast = client.subscribe(topic, "fast")
    producer = client.create_producer(topic)
    wait_for_permits(broker, topic, 2)
    for number in range(10):
        producer.send(b"%d" % number)
    assert values(fast, 10) == list(range(10))
    assert values(slow, 1) == [0]
    subscriptions = stats_of(broker, topic)["subscriptions"]
    counts = {name: each["msgDropCounter"] for name, each in subscriptions.items()}
    assert counts == {"slow": 9, "fast": 0}
    assert subscriptions["slow"]["msgDropRate"] == 0.0


def test_this_packages_consumer_needs_no_acknowledgements(
    native: Client, broker: BrokerProcess, topic: str
) -> None:
    consumer = native.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
    wait_for_permits(broker, topic, 1)
    producer = native.create_producer(topic, batching_enabled=True)
    for number in range(6):
        producer.send_async(b"%d" % number, None)
        if number % 3 == 2:
            # Two batches with the same ids.
            producer.flush()
    messages = [consumer.receive(WAIT_MS) for _ in range(6)]
    assert [each.data() for each in messages] == [b"%d" % number for number in range(6)]
    assert [str(each.message_id()) for each in messages] == ["0:0:-1:0", "0:0:-1:1", "0:0:-1:2"] * 2
    consumer.acknowledge(messages[0])
    consumer.negative_acknowledge(messages[1])
    with pytest.raises(NotAllowed):
        consumer.seek(MessageId.earliest)
    with pytest.raises(NotAllowed):
        consumer.get_last_message_id()
    consumer.unsubscribe()


def test_clients_do_not_notice_an_unload(
    client: pulsar.Client, native: Client, broker: BrokerProcess, topic: str
) -> None:
    theirs, ours = client.subscribe(topic, "theirs"), native.subscribe(topic, "ours")
    producer = client.create_producer(topic)
    with Admin(broker.url) as admin:
        admin.unload(topic)
    # Both connect again.
    wait_for_permits(broker, topic, 2)
    producer.send(b"7")
    assert values(theirs, 1) == values(ours, 1) == [7]


def test_partitions(client: pulsar.Client, broker: BrokerProcess, topic: str) -> None:
    with Admin(broker.url) as admin:
        admin.create_partitioned_topic(topic, 3)
    assert len(client.get_topic_partitions(topic)) == 3
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(
        topic, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution
    )
    ids = [producer.send(b"%d" % number) for number in range(6)]
    assert {(each.ledger_id(), each.entry_id()) for each in ids} == {(0, 0)}
    assert {each.partition() for each in ids} == {0, 1, 2}
    assert sorted(values(consumer, 6)) == list(range(6))
    with Admin(broker.url) as admin:
        stats = admin.partitioned_stats(topic)
        assert stats["msgInCounter"] == 6
        assert len(admin.list_topics("public/default")) >= 3


def test_patterns(client: pulsar.Client, native: Client, broker: BrokerProcess) -> None:
    names = {
        "persistent": "persistent://public/default/patterned-1",
        "non-persistent": "non-persistent://public/default/patterned-2",
    }
    producers = {domain: client.create_producer(name) for domain, name in names.items()}
    modes = {
        "PersistentOnly": ["persistent"],
        "NonPersistentOnly": ["non-persistent"],
        "AllTopics": ["persistent", "non-persistent"],
    }
    pattern = re.compile("public/default/patterned-.*")
    consumers = []
    for mode in modes:
        theirs = client.subscribe(
            pattern, mode, regex_subscription_mode=getattr(pulsar.RegexSubscriptionMode, mode)
        )
        ours = native.subscribe(
            pattern, f"our-{mode}", regex_subscription_mode=getattr(RegexSubscriptionMode, mode)
        )
        consumers.append((modes[mode], theirs, ours))
    wait_for_permits(broker, names["non-persistent"], 4)
    for domain, producer in producers.items():
        producer.send(domain.encode())
    for domains, *both in consumers:
        for consumer in both:
            found = {consumer.receive(WAIT_MS).data().decode() for _ in domains}
            assert found == set(domains)


def test_access_modes_and_schemas(client: pulsar.Client, topic: str) -> None:
    schema = pulsar.schema.StringSchema()
    producer = client.create_producer(
        topic, schema=schema, access_mode=pulsar.ProducerAccessMode.Exclusive
    )
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer(topic, access_mode=pulsar.ProducerAccessMode.Exclusive)
    consumer = client.subscribe(topic, "s", schema=schema)
    producer.send("text")
    assert consumer.receive(WAIT_MS).value() == "text"


def test_read_compacted_is_refused(client: pulsar.Client, topic: str) -> None:
    with pytest.raises(pulsar.PulsarException):
        client.create_table_view(topic)


def test_an_unknown_namespace_is_refused(client: pulsar.Client) -> None:
    for domain in ("persistent", "non-persistent"):
        with pytest.raises(pulsar.TopicNotFound):
            client.create_producer(f"{domain}://public/nowhere/t")
        with pytest.raises(pulsar.TopicNotFound):
            client.subscribe(f"{domain}://public/nowhere/t", "s")


def test_administrative_calls(client: pulsar.Client, broker: BrokerProcess, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    with Admin(broker.url) as admin:
        assert topic in admin.list_topics("public/default")
        assert admin.list_subscriptions(topic) == ["s"]
        assert admin.internal_stats(topic)["ledgers"] == []
        with pytest.raises(NotAllowed):
            admin.create_subscription(topic, "t")
        with pytest.raises(SubscriptionBusy):
            admin.unsubscribe(topic, "s")
        consumer.close()
        admin.unsubscribe(topic, "s")
        admin.delete_topic(topic)
        assert topic not in admin.list_topics("public/default")

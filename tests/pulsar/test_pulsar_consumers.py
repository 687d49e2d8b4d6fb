"""Consumers and readers of Pulsar's own client."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pulsar
import pulsar.asyncio
import pytest

from ledgerfold.broker.client.administration.admin import Admin
from tests.pulsar.recorded import pass_ms
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_MS, wait_until

EARLIEST = pulsar.InitialPosition.Earliest


def publish(client: pulsar.Client, topic: str, count: int, batching: bool = False) -> list[Any]:
    """Publishes 0, 1, 2 ... in one batch or one by one; returns the ids."""
    producer = client.create_producer(
        topic, batching_enabled=batching, batching_max_publish_delay_ms=60_000
    )
    ids: list[Any] = []
    for number in range(count):
        producer.send_async(
            b"%d" % number, lambda _, each: ids.append(each), partition_key=f"k{number % 5}"
        )
    producer.flush()
    producer.close()
    assert len(ids) == count
    return ids


def receive(consumer: Any, count: int) -> list[pulsar.Message]:
    return [consumer.receive(WAIT_MS) for _ in range(count)]


def numbers(messages: list[pulsar.Message]) -> list[int]:
    return [int(each.data()) for each in messages]


def has_no_more(consumer: Any) -> bool:
    try:
        consumer.receive(300)
    except pulsar.Timeout:
        return True
    return False


@pytest.mark.parametrize("type_", ["Exclusive", "Failover", "Shared", "KeyShared"])
@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
def test_acknowledged_messages_are_not_redelivered(
    client: pulsar.Client, topic: str, type_: str, batching: bool
) -> None:
    publish(client, topic, 20, batching)
    options = {"consumer_type": getattr(pulsar.ConsumerType, type_), "initial_position": EARLIEST}
    consumer = client.subscribe(topic, "s", **options)
    messages = receive(consumer, 20)
    assert numbers(messages) == list(range(20))
    for message in messages if batching else messages[:10]:
        consumer.acknowledge(message)
    consumer.close()
    consumer = client.subscribe(topic, "s", **options)
    if not batching:
        assert numbers(receive(consumer, 10)) == list(range(10, 20))
    assert has_no_more(consumer)
    consumer.unsubscribe()
    consumer = client.subscribe(topic, "s", **options)
    assert numbers(receive(consumer, 20)) == list(range(20))


@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
def test_the_last_message_id(client: pulsar.Client, topic: str, batching: bool) -> None:
    consumer = client.subscribe(topic, "s")
    assert str(consumer.get_last_message_id()) == "(-1,-1,-1,-1)"
    ids = publish(client, topic, 3, batching)
    assert str(consumer.get_last_message_id()) == str(ids[-1])


def test_cumulative_acknowledgement(client: pulsar.Client, topic: str) -> None:
    publish(client, topic, 20)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    consumer.acknowledge_cumulative(receive(consumer, 10)[-1])
    consumer.close()
    consumer = client.subscribe(topic, "s")
    assert numbers(receive(consumer, 10)) == list(range(10, 20))


def test_cumulative_acknowledgement_within_a_batch(client: pulsar.Client, topic: str) -> None:
    """Without batch index acknowledgements the whole batch is redelivered."""
    publish(client, topic, 5)
    publish(client, topic, 10, batching=True)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    consumer.acknowledge_cumulative(receive(consumer, 8)[-1])
    consumer.close()
    consumer = client.subscribe(topic, "s")
    assert numbers(receive(consumer, 10)) == list(range(10))


@pytest.mark.parametrize("type_", ["Exclusive", "Shared"])
def test_acknowledgements_within_a_batch(client: pulsar.Client, topic: str, type_: str) -> None:
    publish(client, topic, 70, batching=True)
    options = {"consumer_type": getattr(pulsar.ConsumerType, type_), "initial_position": EARLIEST}
    consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True, **options)
    messages = receive(consumer, 70)
    for index in (0, 1, 65, 69):
        consumer.acknowledge(messages[index])
    consumer.close()
    consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True, **options)
    left = [each for each in range(70) if each not in (0, 1, 65, 69)]
    messages = receive(consumer, 66)
    assert numbers(messages) == left
    if type_ == "Exclusive":
        consumer.acknowledge_cumulative(messages[7])
        left = left[8:]
        consumer.close()
        consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True, **options)
        messages = receive(consumer, len(left))
        assert numbers(messages) == left
    for message in messages:
        consumer.acknowledge(message)
    consumer.close()
    consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True, **options)
    assert has_no_more(consumer)


@pytest.mark.parametrize(("type_", "is_counted"), [("Exclusive", 0), ("Shared", 1)])
def test_redelivery(client: pulsar.Client, topic: str, type_: str, is_counted: int) -> None:
    """Only the shared types count redeliveries."""
    publish(client, topic, 3)
    consumer = client.subscribe(
        topic,
        "s",
        consumer_type=getattr(pulsar.ConsumerType, type_),
        initial_position=EARLIEST,
        negative_ack_redelivery_delay_ms=100,
    )
    first, second, third = receive(consumer, 3)
    assert first.redelivery_count() == 0
    consumer.acknowledge(first)
    consumer.acknowledge(third)
    consumer.negative_acknowledge(second)
    again = consumer.receive(WAIT_MS)
    assert (again.data(), again.redelivery_count()) == (b"1", is_counted)
    consumer.redeliver_unacknowledged_messages()
    again = consumer.receive(WAIT_MS)
    assert (again.data(), again.redelivery_count()) == (b"1", 2 * is_counted)
    consumer.acknowledge(again)
    assert has_no_more(consumer)


def test_dead_letters(client: pulsar.Client, topic: str) -> None:
    publish(client, topic, 1)
    consumer = client.subscribe(
        topic,
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=EARLIEST,
        negative_ack_redelivery_delay_ms=50,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(2, f"{topic}-dead", "init"),
    )
    dead = client.subscribe(f"{topic}-dead", "init")
    counts = []
    for _ in range(3):
        message = consumer.receive(WAIT_MS)
        counts.append(message.redelivery_count())
        consumer.negative_acknowledge(message)
    assert counts == [0, 1, 2]
    assert dead.receive(WAIT_MS).data() == b"0"
    assert has_no_more(consumer)


@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
def test_seeks(client: pulsar.Client, topic: str, batching: bool) -> None:
    ids = publish(client, topic, 10, batching)
    pass_ms(20)
    between_ms = int(time.time() * 1000)
    pass_ms(20)
    publish(client, topic, 10, batching)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    assert numbers(receive(consumer, 20)) == [*range(10), *range(10)]
    consumer.seek(ids[4])
    assert numbers(receive(consumer, 15)) == [*range(5, 10), *range(10)]
    consumer.seek(between_ms)
    assert numbers(receive(consumer, 10)) == [*range(10)]
    consumer.seek(pulsar.MessageId.latest)
    assert has_no_more(consumer)
    consumer.seek(pulsar.MessageId.earliest)
    assert numbers(receive(consumer, 20)) == [*range(10), *range(10)]


@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
@pytest.mark.parametrize("inclusive", [False, True], ids=["after", "at"])
def test_readers(client: pulsar.Client, topic: str, batching: bool, inclusive: bool) -> None:
    ids = publish(client, topic, 10, batching)
    between_ms = int(time.time() * 1000) + 1
    pass_ms(20)
    reader = client.create_reader(topic, ids[3], start_message_id_inclusive=inclusive)
    first = 3 if inclusive else 4
    found = []
    while reader.has_message_available():
        found.append(int(reader.read_next(WAIT_MS).data()))
    assert found == list(range(first, 10))
    publish(client, topic, 2)
    assert numbers([reader.read_next(WAIT_MS) for _ in range(2)]) == [0, 1]
    reader.seek(between_ms)
    assert reader.has_message_available()
    assert numbers([reader.read_next(WAIT_MS) for _ in range(2)]) == [0, 1]
    assert not reader.has_message_available()
    reader.seek(ids[7])
    count = 4 if not inclusive else 5
    assert numbers([reader.read_next(WAIT_MS) for _ in range(count)])[-3:] == [9, 0, 1]


def test_a_reader_at_the_end(client: pulsar.Client, topic: str) -> None:
    publish(client, topic, 3)
    reader = client.create_reader(topic, pulsar.MessageId.latest)
    assert not reader.has_message_available()
    last = client.create_reader(topic, pulsar.MessageId.latest, start_message_id_inclusive=True)
    assert last.has_message_available()
    assert last.read_next(WAIT_MS).data() == b"2"
    publish(client, topic, 1)
    assert reader.has_message_available()
    assert reader.read_next(WAIT_MS).data() == b"0"


def test_an_exclusive_subscription_has_one_consumer(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    consumer.close()
    client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)


def test_failover(client: pulsar.Client, topic: str) -> None:
    options = {"consumer_type": pulsar.ConsumerType.Failover, "initial_position": EARLIEST}
    # On the ring, b is the next one of this topic.
    first = client.subscribe(topic, "s", consumer_name="b", **options)
    second = client.subscribe(topic, "s", consumer_name="a", **options)
    publish(client, topic, 10)
    for message in receive(first, 5):
        first.acknowledge(message)
    assert has_no_more(second)
    first.close()
    assert numbers(receive(second, 5)) == list(range(5, 10))


@pytest.mark.parametrize("type_", ["Shared", "KeyShared"])
def test_shared_consumers(client: pulsar.Client, topic: str, type_: str) -> None:
    options = {"consumer_type": getattr(pulsar.ConsumerType, type_)}
    consumers = [client.subscribe(topic, "s", **options) for _ in range(3)]
    publish(client, topic, 90)
    found: list[list[pulsar.Message]] = [[] for _ in consumers]

    def is_all_there() -> bool:
        for messages, consumer in zip(found, consumers, strict=True):
            try:
                messages.append(consumer.receive(50))
            except pulsar.Timeout:
                continue
        return sum(map(len, found)) == 90

    wait_until(is_all_there, "all messages")
    assert sorted(number for each in found for number in numbers(each)) == list(range(90))
    if type_ == "KeyShared":
        keys = [{each.partition_key() for each in messages} for messages in found]
        assert sum(map(len, keys)) == 5


def test_receiver_queues_smaller_than_a_batch(client: pulsar.Client, topic: str) -> None:
    """Permits count messages: a batch larger than the queue is delivered anyway."""
    publish(client, topic, 50, batching=True)
    publish(client, topic, 5)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST, receiver_queue_size=3)
    assert numbers(receive(consumer, 55)) == [*range(50), *range(5)]
    consumer.close()
    publish(client, f"{topic}-single", 5)
    consumer = client.subscribe(
        f"{topic}-single", "s", initial_position=EARLIEST, receiver_queue_size=0
    )
    # Such a queue has no timeout.
    assert numbers([consumer.receive() for _ in range(5)]) == list(range(5))


def test_the_clients_asyncio_api(broker: BrokerProcess, topic: str) -> None:
    async def use() -> list[bytes]:
        client = pulsar.asyncio.Client(f"pulsar://{broker.ready['pulsar']}")
        producer = await client.create_producer(topic)
        consumer = await client.subscribe(topic, "s")
        await asyncio.gather(*(producer.send(b"%d" % number) for number in range(10)))
        found = []
        for _ in range(10):
            message = await consumer.receive()
            await consumer.acknowledge(message)
            found.append(message.data())
        await client.close()
        return found

    assert asyncio.run(use()) == [b"%d" % number for number in range(10)]


def test_read_compacted_needs_an_exclusive_or_failover_subscription(
    client: pulsar.Client, topic: str
) -> None:
    with pytest.raises(pulsar.PulsarException):
        client.subscribe(
            topic, "s", is_read_compacted=True, consumer_type=pulsar.ConsumerType.Shared
        )


def test_reserved_and_unsupported_subscriptions_are_refused(
    client: pulsar.Client, topic: str
) -> None:
    with pytest.raises(pulsar.NotAllowedError):
        client.subscribe(topic, "__compaction")


def test_clients_do_not_notice_an_unload(
    client: pulsar.Client, broker: BrokerProcess, topic: str
) -> None:
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, "s")
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    with Admin(broker.url) as admin:
        for number in range(3):
            admin.unload(topic)
            producer.send(b"%d" % number)
            assert reader.read_next(WAIT_MS).data() == b"%d" % number
            # Acknowledgements that had not arrived before the unload are repeated.
            while (message := consumer.receive(WAIT_MS)).data() != b"%d" % number:
                consumer.acknowledge(message)
            consumer.acknowledge(message)


def test_refusals_are_those_of_pulsar(
    client: pulsar.Client, broker: BrokerProcess, topic: str
) -> None:
    """The broker's answers had been tested, and not the errors that Pulsar's client makes of
    them.
    """
    with pytest.raises(pulsar.InvalidConfiguration):
        client.subscribe(topic, "")
    shared = {"consumer_type": pulsar.ConsumerType.Shared}
    first, second = (client.subscribe(topic, "s", **shared) for _ in range(2))
    with pytest.raises(pulsar.BrokerMetadataError):
        first.unsubscribe()
    with Admin(broker.url) as admin:
        admin.create_subscription(topic, "unused")
        first.close()
        second.close()
        found = admin.stats(topic)["subscriptions"]
        # The type is that of the last consumers, until the topic is unloaded.
        assert [found[name]["type"] for name in ("s", "unused")] == ["Shared", "None"]
        admin.unload(topic)
        assert admin.stats(topic)["subscriptions"]["s"]["type"] == "None"

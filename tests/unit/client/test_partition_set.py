"""Clients of a partitioned topic, over a broker that is not one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from ledgerfold.broker.client import (
    Client,
    Consumer,
    ConsumerType,
    InitialPosition,
    Message,
    MessageId,
)
from ledgerfold.broker.client.asyncio_client import client as aio
from ledgerfold.broker.client.core.consumer_set import config_of_each
from ledgerfold.broker.client.messages.configs import ConsumerConfig
from ledgerfold.broker.client.messages.routing import murmur3_32
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import (
    AlreadyClosed,
    InvalidRequest,
    LedgerfoldError,
    NotAllowed,
    ProducerBusy,
    Timeout,
)
from tests.support.fake_broker import WATCHFUL, FakeBroker, ThreadedFakeBroker
from tests.support.fake_topics import LEDGER_ID, FakeSubscription
from tests.support.waiting import WAIT_MS, WAIT_S, wait_until

KEYS = [f"k{number}" for number in range(12)]


@pytest.fixture
def client(broker: ThreadedFakeBroker) -> Iterator[Client]:
    """Looks for new partitions all the time; "t" has three."""
    broker.service.partitions["t"] = 3
    client = Client(broker.address, **WATCHFUL)
    yield client
    client.shutdown()


def name(index: int) -> str:
    return f"t-partition-{index}"


def publish(client: Client, keys: list[str] = KEYS, **options: Any) -> list[MessageId]:
    with client.create_producer("t", **options) as producer:
        return [producer.send(key.encode(), partition_key=key) for key in keys]


def by_partition(keys: list[str] = KEYS, partitions: int = 3) -> list[list[bytes]]:
    """Returns the contents of partitions, in order, if each key's content is the key."""
    return [
        [key.encode() for key in keys if murmur3_32(key) % partitions == index]
        for index in range(partitions)
    ]


def grouped(messages: list[Message], partitions: int = 3) -> list[list[bytes]]:
    return [
        [each.data() for each in messages if each.message_id().partition() == index]
        for index in range(partitions)
    ]


def subscription(broker: ThreadedFakeBroker, index: int) -> FakeSubscription:
    return broker.topic(name(index)).subscriptions["s"]


def subscribe(client: Client, **options: Any) -> Consumer:
    return client.subscribe("t", "s", initial_position=InitialPosition.Earliest, **options)


def receive(consumer: Consumer, count: int) -> list[Message]:
    return [consumer.receive(timeout_millis=WAIT_MS) for _ in range(count)]


# Producers.


def test_a_key_selects_its_partition(broker: ThreadedFakeBroker, client: Client) -> None:
    """And ids name it."""
    ids = publish(client)
    assert [broker.topic(name(index)).values() for index in range(3)] == by_partition()
    assert [each.partition() for each in ids] == [murmur3_32(key) % 3 for key in KEYS]
    assert "t" not in broker.service.topics


def test_a_partitioned_producer_has_one_name(broker: ThreadedFakeBroker, client: Client) -> None:
    """One name everywhere; its last sequence id is the highest of all partitions."""
    producer = client.create_producer("t", "p", batching_enabled=True)
    assert (producer.topic(), producer.producer_name(), producer.is_connected()) == (
        "persistent://public/default/t",
        "p",
        True,
    )
    # They open at the same time, in any order.
    assert sorted(each.topic for each in broker.service.opened) == [
        f"persistent://public/default/{name(index)}" for index in range(3)
    ]
    assert {each.producer_name for each in broker.service.opened} == {"p"}
    for key in KEYS:
        producer.send_async(key.encode(), None, partition_key=key)
    producer.flush()
    stored = [broker.topic(name(index)).values() for index in range(3)]
    assert stored == by_partition()
    assert producer.last_sequence_id() == max(map(len, stored)) - 1
    producer.close()
    with pytest.raises(AlreadyClosed):
        producer.send(b"late")


def test_a_refusing_partition_leaves_no_producer_open(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """Partitions that were opened are closed again, and their names are free."""
    broker.topic(name(1)).connected.add("p")
    with pytest.raises(ProducerBusy):
        client.create_producer("t", "p")
    wait_until(lambda: not broker.topic(name(0)).connected, "the first one is closed")
    broker.topic(name(1)).connected.clear()
    client.create_producer("t", "p")


def test_flush_raises_the_error_of_a_partition(broker: ThreadedFakeBroker, client: Client) -> None:
    """The messages of the others are stored anyway."""
    producer = client.create_producer("t")
    keys = [next(key for key in KEYS if murmur3_32(key) % 3 == index) for index in range(3)]
    for key in keys:
        size = 300_000 if murmur3_32(key) % 3 == 1 else 1
        producer.send_async(b"x" * size, None, partition_key=key)
    with pytest.raises(InvalidRequest, match="300"):
        producer.flush()
    assert [len(broker.topic(name(index)).entries) for index in range(3)] == [1, 0, 1]


# Consumers.


def test_a_consumer_reads_every_partition_in_order(client: Client) -> None:
    publish(client)
    consumer = subscribe(client)
    assert consumer.is_connected()
    assert len(consumer.consumer_name()) == 10
    assert grouped(receive(consumer, len(KEYS))) == by_partition()
    with pytest.raises(Timeout):
        consumer.receive(timeout_millis=1)


def test_acknowledgements_are_sent_to_their_partition(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """Here, ids of several partitions differ only in the partition."""
    publish(client)
    consumer = subscribe(client)
    messages = receive(consumer, len(KEYS))
    consumer.acknowledge(MessageId(2, LEDGER_ID, 0))
    in_1 = [each for each in messages if each.message_id().partition() == 1]
    consumer.acknowledge_cumulative(in_1[1])
    wait_until(
        lambda: (
            subscription(broker, 2).acknowledged == {Position(LEDGER_ID, 0)}
            and subscription(broker, 1).cumulative == Position(LEDGER_ID, 1)
        ),
        "the two acknowledgements",
    )
    assert subscription(broker, 0).acknowledged == subscription(broker, 1).acknowledged == set()
    for strange in (MessageId(3, LEDGER_ID, 0), MessageId(-1, LEDGER_ID, 0)):
        with pytest.raises(InvalidRequest, match="partition"):
            consumer.acknowledge(strange)


def test_unacknowledged_messages_are_redelivered(client: Client) -> None:
    publish(client)
    consumer = subscribe(client, negative_ack_redelivery_delay_ms=1)
    messages = receive(consumer, len(KEYS))
    consumer.redeliver_unacknowledged_messages()
    assert grouped(receive(consumer, len(KEYS))) == by_partition()
    (refused,) = [each for each in messages if each.data() == b"k3"]
    consumer.negative_acknowledge(refused)
    partition = refused.message_id().partition()
    again = receive(consumer, len(by_partition()[partition]))
    assert grouped(again)[partition] == by_partition()[partition]


def test_has_message_available_and_seek_cover_all_partitions(client: Client) -> None:
    """A seek to an id moves that partition alone; to an end or a time, all of them."""
    publish(client)
    consumer = subscribe(client, start_message_id_inclusive=True)
    assert consumer.has_message_available()
    messages = receive(consumer, len(KEYS))
    assert not consumer.has_message_available()
    first_of_1 = next(each for each in messages if each.message_id().partition() == 1)
    consumer.seek(first_of_1.message_id())
    again = receive(consumer, len(by_partition()[1]))
    assert grouped(again) == [[], by_partition()[1], []]
    for place in (MessageId.earliest, 0):
        consumer.seek(place)
        assert grouped(receive(consumer, len(KEYS))) == by_partition()
    with pytest.raises(InvalidRequest):
        consumer.seek(MessageId(9, LEDGER_ID, 0))


def test_a_partitioned_topic_has_no_last_message_id(client: Client) -> None:
    """As in Pulsar's client."""
    with pytest.raises(NotAllowed, match="several partitions or topics"):
        subscribe(client).get_last_message_id()


def test_any_partition_wakes_waiting_receivers(broker: ThreadedFakeBroker, client: Client) -> None:
    consumer = subscribe(client)
    for key in ("k0", "k1", "k2", "k3"):
        received: list[Message] = []
        waiting = threading.Thread(target=lambda: received.append(consumer.receive(WAIT_MS)))  # noqa: B023
        waiting.start()
        publish(client, [key])
        waiting.join(WAIT_S)
        assert [each.data() for each in received] == [key.encode()]


def test_closing_ends_waiting_receivers(client: Client) -> None:
    consumer = subscribe(client)
    caught: list[LedgerfoldError] = []

    def wait() -> None:
        try:
            consumer.receive()
        except LedgerfoldError as error:
            caught.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    consumer.close()
    waiting.join(WAIT_S)
    assert isinstance(caught[0], AlreadyClosed)


def test_a_listener_gets_messages_of_all_partitions(client: Client) -> None:
    publish(client)
    seen: list[bytes] = []
    all_seen = threading.Event()

    def listen(consumer: Consumer, message: Message) -> None:
        seen.append(message.data())
        if len(seen) == len(KEYS):
            all_seen.set()

    subscribe(client, message_listener=listen)
    assert all_seen.wait(WAIT_S)
    assert sorted(seen) == sorted(key.encode() for key in KEYS)


@pytest.mark.parametrize(
    ("size", "total", "expected"), [(1000, 50_000, 1000), (1000, 30, 10), (5, 30, 5), (5, 1, 1)]
)
def test_the_partitions_share_the_receiver_queue(size: int, total: int, expected: int) -> None:
    """As in Pulsar."""
    config = ConsumerConfig(
        "t", "s", receiver_queue_size=size, max_total_receiver_queue_size_across_partitions=total
    )
    assert config_of_each(config, 3).receiver_queue_size == expected
    with pytest.raises(InvalidRequest):
        replace(config, max_total_receiver_queue_size_across_partitions=0)


# Readers and table views.


def test_a_reader_reads_every_partition(client: Client) -> None:
    """Up to the end of all, again and again."""
    publish(client)
    reader = client.create_reader("t", MessageId.earliest)
    assert grouped(list(reader)) == by_partition()
    assert not reader.has_message_available()
    publish(client, ["k1"])
    assert [each.data() for each in reader] == [b"k1"]
    reader.seek(MessageId.earliest)
    read = []
    while reader.has_message_available():
        read.append(reader.read_next(WAIT_MS))
    assert len(read) == len(KEYS) + 1
    assert grouped(read)[murmur3_32("k1") % 3][-1] == b"k1"


def test_a_reader_of_partitions_starts_at_an_end_and_seeks(client: Client) -> None:
    """As in Pulsar, an id belongs to one partition."""
    publish(client)
    with pytest.raises(InvalidRequest, match="earliest, latest"):
        client.create_reader("t", MessageId(1, LEDGER_ID, 0))
    reader = client.create_reader("t", MessageId.latest)
    assert not reader.has_message_available()
    reader.seek(MessageId(1, LEDGER_ID, 0))
    assert grouped(list(reader)) == [[], by_partition()[1][1:], []]


def test_a_table_view_shows_every_partition(client: Client) -> None:
    publish(client)
    view = client.create_table_view("t")
    assert view.snapshot() == {key: key.encode() for key in KEYS}
    publish(client, ["new"])
    view.refresh()
    assert view.get("new") == b"new"


# More partitions.


def new_key(partitions: int) -> str:
    """Returns a key of the last of that many partitions."""
    return next(
        key for key in map(str, range(1000)) if murmur3_32(key) % partitions == partitions - 1
    )


def grow(broker: ThreadedFakeBroker, count: int) -> None:
    broker.do(lambda: broker.service.partitions.__setitem__("t", count))


def test_new_partitions_are_used_by_producers(broker: ThreadedFakeBroker, client: Client) -> None:
    """They are discovered automatically."""
    producer = client.create_producer("t")
    grow(broker, 4)
    key = new_key(4)
    wait_until(lambda: producer.send(b"x", partition_key=key).partition() == 3, "partition 3")


def test_new_partitions_are_read_from_the_beginning(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """Also by a reader that began at the end: their messages were published later."""
    consumer = client.subscribe("t", "s", ConsumerType.Shared)
    reader = client.create_reader("t", MessageId.latest)
    view = client.create_table_view("t")
    with client.create_producer(name(3)) as producer:
        producer.send(b"early", partition_key="k")
    grow(broker, 4)
    assert consumer.receive(WAIT_MS).message_id() == MessageId(3, LEDGER_ID, 0)
    assert reader.read_next(WAIT_MS).message_id() == MessageId(3, LEDGER_ID, 0)
    wait_until(lambda: view.get("k") == b"early", "the new partition's key")


def test_partition_discovery_survives_a_missing_broker(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """It is asked again."""
    reader = client.create_reader("t", MessageId.earliest)
    broker.stop_now()
    broker.start_now()
    publish(client, ["k0"])
    grow(broker, 4)
    with client.create_producer(name(3)) as producer:
        producer.send(b"early")
    read = [reader.read_next(WAIT_MS).data() for _ in range(2)]
    assert sorted(read) == [b"early", b"k0"]


def test_a_closed_reader_stops_partition_discovery(client: Client) -> None:
    reader = client.create_reader("t", MessageId.earliest)
    core: Any = reader._core
    assert not core._following.done()
    reader.close()
    assert core._following.done()
    with pytest.raises(AlreadyClosed):
        reader.read_next()


# asyncio.


def play(scenario: Callable[[FakeBroker, aio.Client], Any]) -> None:
    async def run() -> None:
        broker = FakeBroker()
        await broker.start()
        broker.service.partitions["t"] = 3
        try:
            async with aio.Client(broker.address, **WATCHFUL) as client:
                await scenario(broker, client)
        finally:
            await broker.stop()

    asyncio.run(run())


def test_partitioned_clients_of_asyncio() -> None:
    async def scenario(broker: FakeBroker, client: aio.Client) -> None:
        assert await client.get_topic_partitions("t") == [
            f"persistent://public/default/{name(index)}" for index in range(3)
        ]
        # A full queue of one partition waits for that one's receipts.
        producer = await client.create_producer(
            "t",
            batching_enabled=False,
            block_if_queue_full=True,
            max_pending_messages_across_partitions=3,
        )
        await asyncio.gather(*(producer.send(key.encode(), partition_key=key) for key in KEYS))
        reader = await client.create_reader("t", MessageId.earliest)
        assert grouped([message async for message in reader]) == by_partition()
        consumer = await client.subscribe("t", "s", initial_position=InitialPosition.Earliest)
        messages = [await consumer.receive(WAIT_MS) for _ in KEYS]
        assert grouped(messages) == by_partition()
        for message in messages:
            await consumer.acknowledge(message)
        assert not await consumer.has_message_available()
        view = await client.create_table_view("t")
        assert len(view) == len(KEYS)
        broker.service.partitions["t"] = 4
        newcomer = await client.create_producer(name(3))
        await newcomer.send(b"early")
        assert (await consumer.receive(WAIT_MS)).data() == b"early"
        await consumer.unsubscribe()

    play(scenario)


def test_get_topic_partitions(client: Client) -> None:
    """Returns their full names; the topic's name if it is not partitioned."""
    assert client.get_topic_partitions("t") == [
        f"persistent://public/default/{name(index)}" for index in range(3)
    ]
    assert client.get_topic_partitions("u") == ["persistent://public/default/u"]

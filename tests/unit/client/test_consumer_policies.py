"""Receiving without a queue, in batches, and by the listener of a reader."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from ledgerfold.broker.client import (
    Client,
    ConsumerBatchReceivePolicy,
    ConsumerKeySharedPolicy,
    ConsumerType,
    InitialPosition,
    KeySharedMode,
    Message,
    MessageId,
    Reader,
    Result,
)
from ledgerfold.broker.client.asyncio_client import client as aio
from ledgerfold.errors import InvalidConfiguration
from ledgerfold.storage.errors import (
    AlreadyClosed,
    InvalidRequest,
    NotAllowed,
    Overloaded,
)
from tests.support.fake_broker import FakeBroker, ThreadedFakeBroker
from tests.support.waiting import WAIT_S

EARLIEST = InitialPosition.Earliest


def fill(client: Client, messages: int, topic: str = "t", **options: Any) -> None:
    with client.create_producer(topic, **options) as producer:
        for number in range(messages):
            producer.send_async(b"%d" % number, None)


def values(messages: list[Message]) -> list[int]:
    return [int(message.data()) for message in messages]


# A queue of size 0.


@pytest.mark.parametrize("type_", ["Exclusive", "shared"])
def test_a_consumer_without_a_queue_prefetches_nothing(
    broker: ThreadedFakeBroker, client: Client, type_: Any
) -> None:
    """The broker sends a message only to a waiting receive call."""
    fill(client, 3)
    consumer = client.subscribe("t", "s", type_, initial_position=EARLIEST, receiver_queue_size=0)
    counts = broker.topic("t").subscriptions["s"].counts
    for number in range(3):
        assert len(counts) == number
        message = consumer.receive()
        assert values([message]) == [number]
        consumer.acknowledge(message)
    # One that arrives during a receive call.
    timer = threading.Timer(0.05, fill, (client, 1))
    timer.start()
    assert values([consumer.receive()]) == [0]
    timer.join()
    assert len(counts) == 4


def test_a_consumer_without_a_queue_refuses_some_calls(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """As Pulsar's: timeouts, batches of either kind, and partitions."""
    consumer = client.subscribe("t", "s", initial_position=EARLIEST, receiver_queue_size=0)
    with pytest.raises(InvalidConfiguration, match="of 0 does not allow a timeout"):
        consumer.receive(timeout_millis=10)
    with pytest.raises(NotAllowed, match="of 0 does not allow batch_receive"):
        consumer.batch_receive()
    fill(client, 2, batching_enabled=True)
    for _ in range(2):
        with pytest.raises(NotAllowed, match="is a batch, which a receiver_queue_size of 0 "):
            consumer.receive()
    broker.service.partitions["p"] = 2
    for open_it in (client.subscribe, client.create_reader):
        given: tuple[Any, ...] = ("p", "s" if open_it == client.subscribe else MessageId.earliest)
        with pytest.raises(InvalidConfiguration, match="p has several partitions or topics"):
            open_it(*given, receiver_queue_size=0)


def test_a_consumer_without_a_queue_reconnects(broker: ThreadedFakeBroker, client: Client) -> None:
    """It asks again on a new connection."""
    consumer = client.subscribe("t", "s", initial_position=EARLIEST, receiver_queue_size=0)
    received: list[Message] = []
    thread = threading.Thread(target=lambda: received.append(consumer.receive()))
    thread.start()
    broker.stop_now()
    broker.start_now()
    fill(client, 1)
    thread.join(WAIT_S)
    assert values(received) == [0]


def test_a_reader_without_a_queue(client: Client) -> None:
    """It answers whether there is more, and reads on."""
    fill(client, 3)
    reader = client.create_reader("t", MessageId.earliest, receiver_queue_size=0)
    assert values([reader.read_next()]) == [0]
    assert reader.has_message_available()
    assert values(list(reader)) == [1, 2]
    assert not reader.has_message_available()
    with pytest.raises(InvalidConfiguration, match="does not allow a timeout"):
        reader.read_next(timeout_millis=10)
    fill(client, 1)
    assert values([reader.read_next()]) == [0]


def test_a_listener_without_a_queue(broker: ThreadedFakeBroker, client: Client) -> None:
    """It gets one message after the other, and nothing is fetched meanwhile."""
    fill(client, 3)
    seen: list[int] = []
    done = threading.Event()

    def listen(consumer: Any, message: Message) -> None:
        seen.append(len(broker.topic("t").subscriptions["s"].counts))
        consumer.acknowledge(message)
        if len(seen) == 3:
            done.set()

    client.subscribe(
        "t", "s", initial_position=EARLIEST, receiver_queue_size=0, message_listener=listen
    )
    assert done.wait(WAIT_S)
    assert seen == [1, 2, 3]


# Batches.


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (ConsumerBatchReceivePolicy(4, -1, 10_000), [0, 1, 2, 3]),
        (ConsumerBatchReceivePolicy(-1, 3, 10_000), [0, 1, 2]),
        (ConsumerBatchReceivePolicy(-1, -1, 200), list(range(10))),
        (None, list(range(10))),
    ],
)
def test_a_batch_ends_at_the_first_limit_reached(
    client: Client, policy: ConsumerBatchReceivePolicy | None, expected: list[int]
) -> None:
    """Messages, bytes or time; the next batch continues after it."""
    consumer = client.subscribe("t", "s", initial_position=EARLIEST, batch_receive_policy=policy)
    fill(client, 10, batching_enabled=True)
    assert values(consumer.batch_receive()) == expected
    if len(expected) < 10:
        following = values(consumer.batch_receive())
        assert following == list(range(len(expected), 2 * len(expected)))


def test_an_empty_batch_and_a_closed_consumer(client: Client) -> None:
    """The time may pass without a message; a closed consumer says so."""
    policy = ConsumerBatchReceivePolicy(2, -1, 50)
    consumer = client.subscribe("t", "s", batch_receive_policy=policy)
    began_s = time.monotonic()
    assert consumer.batch_receive() == []
    assert time.monotonic() - began_s >= 0.05
    consumer.close()
    with pytest.raises(AlreadyClosed):
        consumer.batch_receive()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((0, 0, 0), "A batch needs a limit"),
        (("x",), "max_num_message must be a 64-bit integer, not 'x'"),
    ],
)
def test_wrong_limits_of_a_batch(arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        ConsumerBatchReceivePolicy(*arguments)


def test_a_policy_of_another_type(client: Client) -> None:
    wrong: Any = 100
    with pytest.raises(
        InvalidRequest, match="must be a ConsumerBatchReceivePolicy or None, not 100"
    ):
        client.subscribe("t", "s", batch_receive_policy=wrong)


def test_batches_of_the_asyncio_client() -> None:
    """A cancelled call loses nothing."""

    async def scenario() -> None:
        broker = FakeBroker()
        await broker.start()
        async with aio.Client(broker.address) as client:
            policy = ConsumerBatchReceivePolicy(3, -1, 60_000)
            consumer = await client.subscribe(
                "t", "s", initial_position=EARLIEST, batch_receive_policy=policy
            )
            producer = await client.create_producer("t")
            await producer.send(b"0")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.batch_receive(), 0.1)
            for number in (1, 2, 3):
                await producer.send(b"%d" % number)
            assert values(await consumer.batch_receive()) == [0, 1, 2]
            message = await consumer.receive()
            assert values([message]) == [3]
            short = await client.subscribe(
                "t", "u", batch_receive_policy=ConsumerBatchReceivePolicy(3, -1, 20)
            )
            assert await short.batch_receive() == []
            await short.close()
            with pytest.raises(AlreadyClosed):
                await short.batch_receive()
        await broker.stop()

    asyncio.run(scenario())


# Listeners of readers, and names of their subscriptions.


def test_a_reader_with_a_listener(client: Client) -> None:
    """The listener gets every message and may seek; other reads are refused."""
    fill(client, 3)
    seen: list[int] = []
    done = threading.Event()

    def listen(reader: Reader, message: Message) -> None:
        seen.append(int(message.data()))
        if seen == [0, 1, 2]:
            reader.seek(MessageId.earliest)
        if len(seen) == 6:
            done.set()
        if len(seen) == 2:
            raise ValueError("The next one comes all the same.")

    reader = client.create_reader("t", MessageId.earliest, reader_listener=listen)
    assert done.wait(WAIT_S)
    assert seen == [0, 1, 2, 0, 1, 2]
    for call in (reader.read_next, reader.has_message_available, lambda: list(reader)):
        with pytest.raises(
            InvalidConfiguration, match="has a listener, which receives its messages"
        ):
            call()
    reader.close()


def test_subscription_names_of_readers(broker: ThreadedFakeBroker, client: Client) -> None:
    """A prefix, or the whole name; a reconnect sends the same."""
    client.create_reader("t", MessageId.earliest, subscription_role_prefix="billing")
    client.create_reader("t", MessageId.earliest, subscription_name="mine", reader_name="me")
    client.create_reader("t", MessageId.earliest)
    first, second, third = broker.service.opened
    assert first.subscription.startswith("billing-reader-")
    assert (second.subscription, second.reader_name) == ("mine", "me")
    assert third.subscription == ""


# A full queue, and keys of bytes.


def test_a_full_queue_fails_sends_by_default(broker: ThreadedFakeBroker, client: Client) -> None:
    """A callback gets the error, or the caller if there is none; nothing else is lost."""
    producer = client.create_producer("t")
    broker.do(broker.service.may_answer.clear)
    results: list[Result] = []

    def note(result: Result, _: object) -> None:
        results.append(result)

    for number in range(1000):
        producer.send_async(b"%d" % number, note, partition_key="k")
    producer.send_async(b"x", note, partition_key="k")
    assert results == [Result.ProducerQueueIsFull]
    for send in (lambda: producer.send(b"x"), lambda: producer.send_async(b"x", None)):
        with pytest.raises(Overloaded, match=r"1,000 messages.*block_if_queue_full=True"):
            send()
    broker.do(broker.service.may_answer.set)
    producer.flush()
    assert results[1:] == [Result.Ok] * 1000
    assert len(broker.topic("t").values()) == 1000


@pytest.mark.parametrize("batching", [False, True])
def test_keys_of_bytes(client: Client, batching: bool) -> None:
    """As Pulsar's Java client: base64, marked as such."""
    key = bytes(range(256))
    with client.create_producer("t", batching_enabled=batching) as producer:
        producer.send_async(b"1", None, partition_key=key, ordering_key=b"\xff")
        producer.send_async(b"2", None, partition_key=b"")
        producer.send_async(b"3", None, partition_key="AAE=")
    reader = client.create_reader("t", MessageId.earliest)
    first, empty, text = list(reader)
    assert first.key_bytes() == key
    assert first.partition_key().startswith("AAECAwQF")
    assert first.ordering_key() == "\udcff"
    assert (empty.has_key(), empty.key_bytes()) == (True, b"")
    assert text.key_bytes() == b"AAE="


# Policies of KeyShared.


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("Sticky",), "KeySharedMode.Sticky needs sticky_ranges"),
        (("Sticky", False, [(0, 10), (10, 20)]), "must be pairs .* that do not overlap"),
        (("Sticky", False, [(0, 65_536)]), "from 0 to 65535"),
        (("Some",), r"must be a KeySharedMode \(AutoSplit, Sticky\), not 'Some'"),
    ],
)
def test_invalid_key_shared_policies_are_refused(arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises((InvalidRequest, NotAllowed), match=says):
        ConsumerKeySharedPolicy(*arguments)


def test_a_key_shared_policy(client: Client) -> None:
    """It requests the broker's only mode."""
    policy = ConsumerKeySharedPolicy(KeySharedMode.AutoSplit, True)
    client.subscribe("t", "s", ConsumerType.KeyShared, key_shared_policy=policy).close()
    with pytest.raises(InvalidRequest, match=r"is for consumer_type=ConsumerType\.KeyShared"):
        client.subscribe("t", "s", key_shared_policy=policy)

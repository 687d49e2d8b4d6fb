"""Dead letters: messages that were redelivered too often."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from ledgerfold.broker.client import (
    Client,
    Consumer,
    ConsumerDeadLetterPolicy,
    ConsumerType,
    InitialPosition,
    Message,
    MessageId,
)
from ledgerfold.broker.client.asyncio_client import client as aio
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import InvalidRequest, Timeout
from tests.support.fake_broker import FakeBroker, ThreadedFakeBroker
from tests.support.fake_topics import LEDGER_ID, FakeSubscription
from tests.support.waiting import WAIT_MS, wait_until

FULL = "persistent://public/default/"
DLQ = "t-s-DLQ"


def subscribe(client: Client, topic: str = "t", **options: Any) -> Consumer:
    options = {"dead_letter_policy": ConsumerDeadLetterPolicy(2)} | options
    return client.subscribe(
        topic,
        "s",
        ConsumerType.Shared,
        initial_position=InitialPosition.Earliest,
        negative_ack_redelivery_delay_ms=10,
        **options,
    )


def refuse(consumer: Consumer, is_wanted: Callable[[Message], bool], times: int) -> list[Message]:
    """Receives until unwanted messages were refused that often; acknowledges the others."""
    refused: list[Message] = []
    while len(refused) < times:
        message = consumer.receive(timeout_millis=WAIT_MS)
        if is_wanted(message):
            consumer.acknowledge(message)
        else:
            refused.append(message)
            consumer.negative_acknowledge(message)
    return refused


def refuse_until(consumer: Consumer, is_done: Callable[[], bool]) -> None:
    """Refuses all messages. (The fake broker redelivers more than it is asked for.)"""
    while not is_done():
        with contextlib.suppress(Timeout):
            consumer.negative_acknowledge(consumer.receive(timeout_millis=20))


def subscription(broker: ThreadedFakeBroker, topic: str = "t") -> FakeSubscription:
    return broker.topic(topic).subscriptions["s"]


def letters(client: Client, count: int, topic: str = DLQ) -> list[Message]:
    with client.create_reader(topic, MessageId.earliest) as reader:
        return [reader.read_next(timeout_millis=WAIT_MS) for _ in range(count)]


def test_a_message_is_published_after_its_last_redelivery(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """A copy with all its parts names its origin; then the message is acknowledged."""
    with client.create_producer("t") as producer:
        producer.send(b"good")
        bad = producer.send(
            b"bad", {"a": "b"}, b"\xff", ordering_key="o", event_timestamp=77, sequence_id=9
        )
    consumer = subscribe(client)
    refused = refuse(consumer, lambda message: message.data() == b"good", 3)
    assert [each.redelivery_count() for each in refused] == [0, 1, 2]
    wait_until(lambda: len(subscription(broker).acknowledged) == 2, "acknowledgements")
    with pytest.raises(Timeout):
        consumer.receive(timeout_millis=30)
    (letter,) = letters(client, 1)
    assert letter.data() == b"bad"
    assert (letter.key_bytes(), letter.ordering_key(), letter.event_timestamp()) == (
        b"\xff",
        "o",
        77,
    )
    origin = f"{LEDGER_ID}:{bad.entry_id()}:-1"
    assert letter.properties() == {
        "a": "b",
        "REAL_TOPIC": FULL + "t",
        "ORIGIN_MESSAGE_ID": origin,
        "ORIGIN_MESSAGE_IDY_TIME": origin,
    }


def test_remaining_messages_of_a_batch_are_published(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """Acknowledged messages of it are not published; null values stay null."""
    with client.create_producer("t", batching_enabled=True) as producer:
        for value in (b"0", b"1", None, b"3"):
            producer.send_async(value, None, partition_key="k")
    consumer = subscribe(client, dead_letter_policy=ConsumerDeadLetterPolicy(1, "dead", "audit"))
    for size in (4, 2):
        messages = [consumer.receive(timeout_millis=WAIT_MS) for _ in range(size)]
        for message in messages:
            if message.data() in (b"0", b"3"):
                consumer.acknowledge(message)
        consumer.negative_acknowledge(messages[1])
    wait_until(lambda: subscription(broker).acknowledged, "an acknowledgement")
    assert subscription(broker).acknowledged == {Position(LEDGER_ID, 0)}
    found = letters(client, 2, "dead")
    assert [each.value() for each in found] == [b"1", None]
    assert [each.properties()["ORIGIN_MESSAGE_ID"] for each in found] == ["7:0:-1:1", "7:0:-1:2"]
    # The subscription was created before they were published.
    with client.subscribe("dead", "audit") as audit:
        assert audit.receive(timeout_millis=WAIT_MS).data() == b"1"


def test_each_partition_has_a_separate_dead_letter_topic(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """As in Pulsar; the messages name the whole topic."""
    broker.service.partitions["t"] = 2
    with client.create_producer("t") as producer:
        ids = [producer.send(b"x", partition_key=key) for key in ("k0", "k1", "k2", "k3")]
    assert {each.partition() for each in ids} == {0, 1}
    consumer = subscribe(client, dead_letter_policy=ConsumerDeadLetterPolicy(1))
    refuse_until(
        consumer,
        lambda: (
            len(ids)
            == sum(len(subscription(broker, f"t-partition-{i}").acknowledged) for i in (0, 1))
        ),
    )
    for partition in (0, 1):
        expected = [each for each in ids if each.partition() == partition]
        topic = f"t-partition-{partition}-s-DLQ"
        found = letters(client, len(broker.topic(topic).entries), topic)
        origins = {each.properties()["ORIGIN_MESSAGE_ID"] for each in found}
        assert origins == {f"7:{each.entry_id()}:{partition}" for each in expected}
        assert {each.properties()["REAL_TOPIC"] for each in found} == {FULL + "t"}


def test_a_message_that_cannot_be_published_is_redelivered(
    broker: ThreadedFakeBroker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays in the subscription until it is in the dead letter topic."""
    with client.create_producer("t") as producer:
        producer.send(b"bad")
    consumer = subscribe(client, dead_letter_policy=ConsumerDeadLetterPolicy(1))
    failures = [3]

    def fail(entry: bytes) -> None:
        if failures[0] and b"ORIGIN_MESSAGE_ID" in entry:
            failures[0] -= 1
            raise InvalidRequest("The test refuses it.")

    broker.service.before_store = fail
    refuse(consumer, lambda _: False, 2)
    (letter,) = letters(client, 1)
    assert letter.data() == b"bad"
    assert failures == [0]
    assert "stays in the subscription s: it was not published to" in caplog.text
    wait_until(lambda: subscription(broker).acknowledged, "an acknowledgement")
    with pytest.raises(Timeout):
        consumer.receive(timeout_millis=30)


def test_dead_letters_are_published_without_receive_calls(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """They take the room of the queue only until they are published, and a seek forgets them."""
    with client.create_producer("t") as producer:
        for number in range(20):
            producer.send(b"%d" % number)
    consumer = subscribe(
        client, dead_letter_policy=ConsumerDeadLetterPolicy(1), receiver_queue_size=2
    )
    refuse_until(consumer, lambda: len(subscription(broker).acknowledged) == 20)
    count = len(broker.topic(DLQ).entries)
    assert {each.data() for each in letters(client, count)} == {b"%d" % n for n in range(20)}
    consumer.seek(MessageId.earliest)
    consumer.close()


def test_a_lost_connection_during_publication(broker: ThreadedFakeBroker, client: Client) -> None:
    """None is lost; one may be published again."""
    with client.create_producer("t") as producer:
        for number in range(5):
            producer.send(b"%d" % number)
    consumer = subscribe(client, dead_letter_policy=ConsumerDeadLetterPolicy(1))
    refuse_until(consumer, lambda: len(broker.topic(DLQ).entries) > 0)
    broker.do(lambda: broker.service.disconnect_consumers(subscription(broker)))
    refuse_until(consumer, lambda: len(subscription(broker).acknowledged) == 5)
    count = len(broker.topic(DLQ).entries)
    assert {each.data() for each in letters(client, count)} == {b"%d" % n for n in range(5)}


def test_ordered_subscriptions_have_no_dead_letters(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """As in Pulsar: they redeliver everything, in order."""
    with client.create_producer("t") as producer:
        producer.send(b"bad")
    consumer = client.subscribe(
        "t",
        "s",
        initial_position=InitialPosition.Earliest,
        negative_ack_redelivery_delay_ms=10,
        dead_letter_policy=ConsumerDeadLetterPolicy(1),
    )
    refuse(consumer, lambda _: False, 5)
    assert DLQ not in broker.service.topics


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((0,), "max_redeliver_count must be 1 or more"),
        ((1, 5), "dead_letter_topic must be a string or None, not 5"),
    ],
)
def test_invalid_policies_are_refused(arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        ConsumerDeadLetterPolicy(*arguments)


def test_dead_letters_of_the_asyncio_client() -> None:
    """The same."""

    async def scenario() -> None:
        broker = FakeBroker()
        await broker.start()
        async with aio.Client(broker.address) as client:
            producer = await client.create_producer("t")
            await producer.send(b"bad")
            consumer = await client.subscribe(
                "t",
                "s",
                ConsumerType.Shared,
                initial_position=InitialPosition.Earliest,
                negative_ack_redelivery_delay_ms=10,
                dead_letter_policy=ConsumerDeadLetterPolicy(1),
            )
            for _ in range(2):
                await consumer.negative_acknowledge(await consumer.receive(WAIT_MS))
            reader = await client.create_reader(DLQ, MessageId.earliest)
            assert (await reader.read_next(WAIT_MS)).data() == b"bad"
        await broker.stop()

    asyncio.run(scenario())

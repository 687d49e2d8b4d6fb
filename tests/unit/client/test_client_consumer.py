"""Consumers: acknowledging batches, redelivery, seeks, and coming back."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
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
from ledgerfold.broker.client.core.consumer_core import is_after
from ledgerfold.broker.client.messages import configs
from ledgerfold.broker.client.streams import ack_queue
from ledgerfold.broker.client.sync.io_thread import IoThread
from ledgerfold.errors import InvalidConfiguration
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import (
    AlreadyClosed,
    InvalidRequest,
    NotAllowed,
    SubscriptionBusy,
    Timeout,
)
from ledgerfold.storage.native import NativeBatchBuilder
from tests.support.fake_broker import ThreadedFakeBroker
from tests.support.fake_data_service import BreakAt
from tests.support.fake_topics import LEDGER_ID, FakeSubscription
from tests.support.waiting import WAIT_MS, WAIT_S

ORDERED = ConsumerType.Exclusive
SHARED = ConsumerType.Shared


def fill(client: Client, entries: int, rows: int) -> None:
    """`entries` batches of `rows` messages, with their numbers as values."""
    producer = client.create_producer(
        "t", batching_enabled=True, batching_max_messages=rows, batching_max_publish_delay_ms=60_000
    )
    for number in range(entries * rows):
        producer.send_async(b"%d" % number, None, partition_key=f"k{number}")
    producer.flush()


def fill_without_receipts(broker: ThreadedFakeBroker, entries: int) -> None:
    """The same, one message each, for a broker that answers nothing."""
    for number in range(entries):
        builder = NativeBatchBuilder("p")
        builder.add(b"%d" % number)
        broker.store("t", builder.build(sequence_id=number, publish_time_ms=number))


def subscribe(client: Client, type_: ConsumerType = ORDERED, **options: Any) -> Consumer:
    return client.subscribe("t", "s", type_, initial_position=InitialPosition.Earliest, **options)


def subscription(broker: ThreadedFakeBroker) -> FakeSubscription:
    return broker.topic("t").subscriptions["s"]


def wait_until(broker: ThreadedFakeBroker, condition: Callable[[], bool]) -> None:
    """Waits until the condition holds; the broker's state reports every change."""

    async def wait() -> None:
        while not condition():
            await broker.topic("t").changed.wait()

    future = IoThread.shared().start(wait())
    future.result(timeout=WAIT_S)


def receive(consumer: Consumer, count: int) -> list[Message]:
    return [consumer.receive(timeout_millis=WAIT_MS) for _ in range(count)]


def values(messages: list[Message]) -> list[int]:
    return [int(message.data()) for message in messages]


@pytest.mark.parametrize("wrong", [MessageId(-1, 2**64, 0), MessageId(-1, 1, 0, 2**40)], ids=str)
@pytest.mark.parametrize(
    "call", [Consumer.acknowledge, Consumer.acknowledge_cumulative, Consumer.negative_acknowledge]
)
def test_an_invalid_id_does_not_stop_later_acknowledgements(
    broker: ThreadedFakeBroker, client: Client, call: Callable[..., None], wrong: MessageId
) -> None:
    """Ids had been wrong in seeks alone: here one stopped all acknowledgements after it."""
    fill(client, 1, 1)
    consumer = client.subscribe("t", "s", ORDERED, initial_position=InitialPosition.Earliest)
    message = consumer.receive(WAIT_MS)
    with pytest.raises(InvalidRequest, match="message id"):
        call(consumer, wrong)
    consumer.acknowledge(message)
    consumer.close()
    assert subscription(broker).acknowledged == {message.message_id().position}


def test_messages_come_in_order_and_are_acknowledged_by_entry(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """The broker gets a batch's acknowledgement after that of its last message."""
    fill(client, 2, 3)
    consumer = subscribe(client)
    messages = receive(consumer, 6)
    assert values(messages) == list(range(6))
    for message in (*messages[:2], *messages[3:]):
        consumer.acknowledge(message)
    wait_until(broker, lambda: subscription(broker).acknowledged == {Position(LEDGER_ID, 1)})
    consumer.acknowledge(messages[2].message_id())
    wait_until(broker, lambda: len(subscription(broker).acknowledged) == 2)
    assert (consumer.topic(), consumer.subscription_name(), consumer.consumer_name()) == (
        "persistent://public/default/t",
        "s",
        "c-1",
    )


def test_cumulative_acknowledgement(broker: ThreadedFakeBroker, client: Client) -> None:
    """In the middle of a batch the entry before it is acknowledged."""
    fill(client, 3, 3)
    consumer = subscribe(client)
    messages = receive(consumer, 9)
    consumer.acknowledge_cumulative(messages[4])
    wait_until(broker, lambda: subscription(broker).cumulative == Position(LEDGER_ID, 0))
    consumer.acknowledge_cumulative(messages[8])
    wait_until(broker, lambda: subscription(broker).cumulative == Position(LEDGER_ID, 2))


def test_close_sends_pending_acknowledgements(broker: ThreadedFakeBroker, client: Client) -> None:
    """A consumer that acknowledged everything is not given it again."""
    fill(client, 5, 1)
    consumer = subscribe(client)
    for message in receive(consumer, 5):
        consumer.acknowledge(message)
    consumer.close()
    assert len(subscription(broker).acknowledged) == 5
    with pytest.raises(AlreadyClosed):
        consumer.receive()
    with pytest.raises(AlreadyClosed):
        consumer.acknowledge(MessageId(-1, LEDGER_ID, 0, 0))


def test_a_timeout_has_a_separate_error(client: Client) -> None:
    """The consumer lives on."""
    consumer = subscribe(client)
    with pytest.raises(Timeout):
        consumer.receive(timeout_millis=20)
    fill(client, 1, 1)
    assert values(receive(consumer, 1)) == [0]


@pytest.mark.parametrize("type_", [SHARED, ConsumerType.KeyShared])
def test_a_shared_subscription_refuses_read_compacted(client: Client, type_: ConsumerType) -> None:
    """Refused before anything is sent, as in Pulsar."""
    with pytest.raises(InvalidConfiguration):
        client.subscribe("t", "s", type_, is_read_compacted=True)


@pytest.mark.parametrize(
    "options",
    [
        {"receiver_queue_size": -1},
        {"negative_ack_redelivery_delay_ms": -1},
        {"unacked_messages_timeout_ms": 9_999},
        {"unacked_messages_timeout_ms": -1},
    ],
)
def test_invalid_options_are_refused(client: Client, options: dict[str, Any]) -> None:
    """With an error that names the option."""
    with pytest.raises(InvalidRequest, match=next(iter(options))):
        subscribe(client, **options)


def test_a_shared_subscription_refuses_cumulative_acknowledgements(client: Client) -> None:
    """Earlier messages may belong to another consumer."""
    fill(client, 1, 1)
    consumer = subscribe(client, SHARED)
    with pytest.raises(NotAllowed):
        consumer.acknowledge_cumulative(receive(consumer, 1)[0])


def test_a_negative_acknowledgement_redelivers_the_entry(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """After its delay, without the messages that were acknowledged."""
    fill(client, 3, 3)
    consumer = subscribe(client, SHARED, negative_ack_redelivery_delay_ms=30)
    messages = receive(consumer, 9)
    consumer.acknowledge(messages[3])
    consumer.negative_acknowledge(messages[4])
    again = receive(consumer, 2)
    assert values(again) == [4, 5]
    assert [message.redelivery_count() for message in again] == [1, 1]
    assert subscription(broker).redelivered == [[Position(LEDGER_ID, 1)]]


def test_a_negative_acknowledgement_rewinds_an_ordered_subscription(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """Everything unacknowledged is redelivered in order."""
    fill(client, 3, 3)
    consumer = subscribe(client, negative_ack_redelivery_delay_ms=10)
    messages = receive(consumer, 7)
    for message in messages[:4]:
        consumer.acknowledge(message)
    consumer.negative_acknowledge(messages[6])
    wait_until(broker, lambda: subscription(broker).redelivered == [[]])
    assert values(receive(consumer, 5)) == [4, 5, 6, 7, 8]


def test_an_acknowledged_entry_is_not_redelivered(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """Acknowledging after a negative acknowledgement takes it back."""
    fill(client, 2, 1)
    consumer = subscribe(client, SHARED, negative_ack_redelivery_delay_ms=40)
    first, second = receive(consumer, 2)
    consumer.negative_acknowledge(first)
    consumer.negative_acknowledge(second)
    consumer.acknowledge(first)
    assert values(receive(consumer, 1)) == [1]
    assert subscription(broker).redelivered == [[Position(LEDGER_ID, 1)]]


def test_messages_not_acknowledged_in_time_are_redelivered(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unacknowledged timeout redelivers by itself."""
    monkeypatch.setattr(configs, "UNACKED_TIMEOUT_MIN_MS", 50)
    fill(client, 2, 1)
    consumer = subscribe(client, SHARED, unacked_messages_timeout_ms=50)
    first, _ = receive(consumer, 2)
    consumer.acknowledge(first)
    assert values(receive(consumer, 1)) == [1]


def test_an_unacknowledged_timeout_of_0_is_off(client: Client) -> None:
    """As in Pulsar."""
    fill(client, 1, 1)
    consumer = subscribe(client, SHARED, unacked_messages_timeout_ms=0)
    receive(consumer, 1)
    with pytest.raises(Timeout):
        consumer.receive(timeout_millis=30)


@pytest.mark.parametrize("type_", [ORDERED, SHARED])
def test_redeliver_unacknowledged_messages(client: Client, type_: ConsumerType) -> None:
    """They are redelivered at once, and queued ones only once."""
    fill(client, 4, 2)
    consumer = subscribe(client, type_)
    messages = receive(consumer, 3)
    consumer.acknowledge(messages[0])
    consumer.redeliver_unacknowledged_messages()
    assert values(receive(consumer, 7)) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(("inclusive", "first"), [(False, 5), (True, 4)])
def test_seek_by_id(
    broker: ThreadedFakeBroker, client: Client, inclusive: bool, first: int
) -> None:
    """Forth and back, into the middle of a batch."""
    fill(client, 3, 3)
    consumer = subscribe(client, start_message_id_inclusive=inclusive)
    receive(consumer, 2)
    for _ in range(2):
        consumer.seek(MessageId(-1, LEDGER_ID, 1, 1))
        assert values(receive(consumer, 9 - first)) == list(range(first, 9))
    consumer.seek(MessageId.earliest)
    assert values(receive(consumer, 9)) == list(range(9))


def test_entries_before_a_seek_target_are_acknowledged(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """The consumer skips its messages, so it must acknowledge them."""
    fill(client, 2, 3)
    consumer = subscribe(client)
    consumer.seek(MessageId(-1, LEDGER_ID, 0, 2))
    assert values(receive(consumer, 1)) == [3]
    wait_until(broker, lambda: Position(LEDGER_ID, 0) in subscription(broker).acknowledged)


def test_seek_by_time(broker: ThreadedFakeBroker, client: Client) -> None:
    """To the first entry published at or after."""
    for time_ms in (1000, 2000, 3000):
        builder = NativeBatchBuilder("p")
        builder.add(b"%d" % time_ms)
        broker.store("t", builder.build(sequence_id=time_ms, publish_time_ms=time_ms))
    consumer = subscribe(client)
    consumer.seek(1500)
    assert values(receive(consumer, 2)) == [2000, 3000]


@pytest.mark.parametrize("queue_size", [1, 1000])
def test_a_restart_redelivers_unacknowledged_messages(
    broker: ThreadedFakeBroker, client: Client, queue_size: int
) -> None:
    """Acknowledged messages of a batch are not redelivered."""
    fill(client, 3, 3)
    consumer = subscribe(client, receiver_queue_size=queue_size)
    for message in receive(consumer, 4):
        consumer.acknowledge(message)
    wait_until(broker, lambda: len(subscription(broker).acknowledged) == 1)
    broker.stop_now()
    broker.start_now()
    # Messages received before the break may be read until the client notices it.
    wait_until(broker, lambda: subscription(broker).counts[Position(LEDGER_ID, 1)] == 2)
    assert values(receive(consumer, 5)) == [4, 5, 6, 7, 8]


def test_acknowledgements_while_disconnected_are_sent_later(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """They are not lost, and precede new permits."""
    fill(client, 3, 1)
    consumer = subscribe(client)
    messages = receive(consumer, 3)
    broker.stop_now()
    for message in messages[:2]:
        consumer.acknowledge(message)
    broker.start_now()
    wait_until(broker, lambda: len(subscription(broker).acknowledged) == 2)
    assert values(receive(consumer, 1)) == [2]


@pytest.mark.parametrize("cumulative", [False, True])
def test_an_acknowledgement_lost_with_its_stream_is_resent(
    broker: ThreadedFakeBroker, client: Client, cumulative: bool
) -> None:
    """It was written to a stream that died right then."""
    fill(client, 3, 1)
    consumer = subscribe(client)
    messages = receive(consumer, 3)
    broker.service.before_ack = BreakAt(1)

    def acknowledge() -> None:
        if cumulative:
            consumer.acknowledge_cumulative(messages[1])
        else:
            consumer.acknowledge(messages[0])
            consumer.acknowledge(messages[1])

    broker.do(acknowledge)
    assert values(receive(consumer, 1)) == [2]
    assert len(broker.service.opened) == 3, "the producer, the consumer, and once more"


@pytest.mark.parametrize("is_connected", [True, False])
@pytest.mark.parametrize("cumulative", [True, False])
def test_messages_acknowledged_before_a_seek_are_redelivered(
    broker: ThreadedFakeBroker, client: Client, is_connected: bool, cumulative: bool
) -> None:
    """Another client moved the subscription while this consumer was connected or not."""
    broker.service.may_answer.clear()
    fill_without_receipts(broker, 2)
    consumer = subscribe(client)
    acknowledge = consumer.acknowledge_cumulative if cumulative else consumer.acknowledge

    def all_are_acknowledged() -> bool:
        known = subscription(broker)
        return len(known.acknowledged) == 2 or known.cumulative == Position(LEDGER_ID, 1)

    for message in receive(consumer, 2):
        acknowledge(message)
    wait_until(broker, all_are_acknowledged)
    if not is_connected:
        broker.stop_now()
    broker.do(lambda: broker.service.move(subscription(broker), 0))
    if not is_connected:
        broker.start_now()
    again = receive(consumer, 2)
    assert values(again) == [0, 1]
    assert subscription(broker).acknowledged == set()
    for message in again:
        acknowledge(message)
    wait_until(broker, all_are_acknowledged)


def test_acknowledgements_after_the_consumers_own_seek_count(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """At once, before the consumer is connected again."""
    fill(client, 3, 1)
    consumer = subscribe(client)
    consumer.seek(MessageId.earliest)
    consumer.acknowledge_cumulative(MessageId(-1, LEDGER_ID, 1, -1))
    wait_until(broker, lambda: subscription(broker).cumulative == Position(LEDGER_ID, 1))


@pytest.mark.parametrize("cumulative", [False, True])
def test_close_resends_acknowledgements_of_a_lost_stream(
    broker: ThreadedFakeBroker, client: Client, cumulative: bool
) -> None:
    """It waits for the broker's answer, because no other stream follows."""
    fill(client, 1, 1)
    consumer = subscribe(client)
    [message] = receive(consumer, 1)
    broker.service.before_ack = BreakAt(1)
    if cumulative:
        consumer.acknowledge_cumulative(message)
        consumer.close()
        assert subscription(broker).cumulative == Position(LEDGER_ID, 0)
    else:
        consumer.acknowledge(message)
        consumer.close()
        assert subscription(broker).acknowledged == {Position(LEDGER_ID, 0)}


def test_a_shutdown_does_not_wait_for_answers(
    broker: ThreadedFakeBroker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """It reports which messages may be redelivered."""
    broker.service.may_answer.clear()
    fill_without_receipts(broker, 2)
    consumer = subscribe(client)
    for message in receive(consumer, 2):
        consumer.acknowledge(message)
    client.shutdown()
    assert "2 acknowledgements" in caplog.text


def test_few_acknowledgements_are_in_flight_at_once(
    broker: ThreadedFakeBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that does not answer is not asked for more messages, until it does."""
    monkeypatch.setattr(ack_queue, "UNANSWERED_MAX", 3)
    broker.service.may_answer.clear()
    fill_without_receipts(broker, 20)
    consumer = subscribe(client, receiver_queue_size=2)
    seen: list[Message] = []

    def receive_all() -> None:
        while True:
            seen.append(consumer.receive(timeout_millis=100))
            consumer.acknowledge(seen[-1])

    with pytest.raises(Timeout):
        receive_all()
    assert len(seen) <= 3 + 1 + 2
    broker.do(broker.service.may_answer.set)
    assert values(seen + receive(consumer, 20 - len(seen))) == list(range(20))


def test_an_exclusive_subscription_has_one_consumer(client: Client) -> None:
    """The second one is refused at once."""
    subscribe(client)
    with pytest.raises(SubscriptionBusy):
        subscribe(client)


def test_unsubscribe_deletes_the_subscription(broker: ThreadedFakeBroker, client: Client) -> None:
    """And closes the consumer."""
    consumer = subscribe(client)
    consumer.unsubscribe()
    assert broker.topic("t").subscriptions == {}
    with pytest.raises(AlreadyClosed):
        consumer.receive()


@pytest.mark.parametrize(
    ("last", "received", "expected"),
    [
        ((1, 0, -1), (-1, -1, -1), True),
        ((-1, -1, -1), (-1, -1, -1), False),
        ((1, 0, -1), (1, 0, -1), False),
        ((1, 0, 4), (1, 0, 3), True),
        ((1, 0, 4), (1, 0, 4), False),
        # A batch that cannot be decoded.
        ((1, 0, 4), (1, 0, -1), False),
        ((1, 1, 0), (1, 0, -1), True),
    ],
)
def test_has_message_available_after_the_last_received_message(
    last: tuple[int, int, int], received: tuple[int, int, int], *, expected: bool
) -> None:
    assert is_after(MessageId(-1, *last), MessageId(-1, *received)) == expected


def test_has_message_available(client: Client) -> None:
    """By the topic's last message and the last one received."""
    consumer = subscribe(client)
    assert not consumer.has_message_available()
    assert consumer.get_last_message_id() == MessageId.earliest
    fill(client, 1, 2)
    assert consumer.get_last_message_id() == MessageId(-1, LEDGER_ID, 0, 1)
    assert consumer.has_message_available()
    receive(consumer, 2)
    assert not consumer.has_message_available()


def test_a_message_listener_gets_the_messages(client: Client) -> None:
    """It runs in a separate thread; its failures do not stop it; receive is refused."""
    seen: list[int] = []
    done = threading.Event()

    def listen(consumer: Consumer, message: Message) -> None:
        seen.append(int(message.data()))
        consumer.acknowledge(message)
        if len(seen) == 6:
            done.set()
        if len(seen) == 2:
            raise RuntimeError("a person's mistake")

    fill(client, 2, 3)
    consumer = subscribe(client, message_listener=listen)
    assert done.wait(WAIT_S)
    assert seen == list(range(6))
    with pytest.raises(NotAllowed):
        consumer.receive()


def test_a_message_listener_pauses(client: Client) -> None:
    """It pauses between two messages; another consumer gets all messages meanwhile."""
    seen: list[int] = []
    paused, done, others_done = threading.Event(), threading.Event(), threading.Event()

    def listen(consumer: Consumer, message: Message) -> None:
        seen.append(int(message.data()))
        if len(seen) == 2:
            consumer.pause_message_listener()
            paused.set()
        if len(seen) == 6:
            done.set()

    def listen_to_the_end(consumer: Consumer, message: Message) -> None:
        if message.data() == b"5":
            others_done.set()

    fill(client, 2, 3)
    consumer = subscribe(client, message_listener=listen)
    assert paused.wait(WAIT_S)
    client.subscribe(
        "t",
        "other",
        initial_position=InitialPosition.Earliest,
        message_listener=listen_to_the_end,
    )
    assert others_done.wait(WAIT_S)
    assert seen == [0, 1]
    consumer.resume_message_listener()
    assert done.wait(WAIT_S)
    assert seen == list(range(6))


def test_threads_share_a_consumer(client: Client) -> None:
    """Each message goes to one of them."""
    fill(client, 50, 4)
    consumer = subscribe(client, SHARED, receiver_queue_size=20)
    seen: list[int] = []

    def consume() -> None:
        for message in receive(consumer, 50):
            seen.append(int(message.data()))
            consumer.acknowledge(message)

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(seen) == list(range(200))


def test_seeks_of_two_threads_follow_one_another(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """Each moves the subscription while the consumer is disconnected: none overlaps."""
    fill(client, 3, 2)
    consumer = subscribe(client)
    inside, together = 0, asyncio.Event()
    original = broker.service.Seek

    async def seek(request: Any, context: Any) -> Any:
        nonlocal inside
        inside += 1
        if inside == 2:
            together.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(together.wait(), 0.1)
        inside -= 1
        return await original(request, context)

    broker.stop_now()
    broker.service.Seek = seek  # type: ignore[method-assign]
    broker.start_now()
    io = IoThread.shared()
    moves = [io.start(consumer._core.seek(place)) for place in (1500, MessageId.earliest)]
    for move in moves:
        move.result(WAIT_S)
    assert not together.is_set()
    assert [consumer.receive(WAIT_MS).data() for _ in range(6)] == [b"%d" % n for n in range(6)]

"""Delayed entries: held back until due, on shared subscriptions only, in bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.subscriptions.consumer import Consumer, ConsumerOptions
from ledgerfold.broker.subscriptions.delayed import DelayedEntries
from ledgerfold.broker.subscriptions.dispatcher import Candidate, ConsumerState, SubscriptionType
from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.broker.subscriptions.shared import SharedDispatcher
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.storage.codec import routing_of
from ledgerfold.storage.entry import Position, read_header
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.v1.data_pb2 import StartPosition
from tests.model.broker_lab import TOPIC, BrokerLab

EARLIEST = StartPosition(earliest=True)
SHARED = (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)


def candidate(entry_id: int, deliver_at_ms: int) -> Candidate:
    return Candidate(Position(1, entry_id), 1, 10, deliver_at_ms=deliver_at_ms)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 50)), max_size=60))
def test_entries_leave_when_they_are_due(steps: list[tuple[bool, int]]) -> None:
    delayed, expected = DelayedEntries(), dict[int, int]()
    for number, (adds, time_ms) in enumerate(steps):
        if adds:
            delayed.add(candidate(number, time_ms))
            expected[number] = time_ms
        else:
            due = [each.position.entry_id for each in delayed.take_due(time_ms)]
            assert due == sorted(
                (each for each, at in expected.items() if at <= time_ms),
                key=lambda each: (expected[each], each),
            )
            for each in due:
                del expected[each]
        assert delayed.next_ms == min(expected.values(), default=None)
        assert len(delayed) == len(expected)
    delayed.pass_over(Position(1, 30))
    assert len(delayed) == sum(each > 30 for each in expected)


def test_reading_pauses_while_too_many_wait() -> None:
    dispatcher, taker = SharedDispatcher(), ConsumerState("c", 1, permits=100, room_bytes=1000)
    dispatcher._delayed = DelayedEntries(entries_max=2)
    dispatcher.add(taker)
    decision = dispatcher.assign([candidate(n, 500 + n) for n in range(4)])
    assert (decision.taken, dispatcher.delayed, dispatcher.budget().messages) == (2, 2, 0)
    dispatcher.release(499, lambda position: False)
    assert dispatcher.replay_positions() == []
    dispatcher.release(500, lambda position: False)
    assert dispatcher.replay_positions() == [Position(1, 0)]
    decision = dispatcher.assign([candidate(n, 500 + n) for n in (2, 3)])
    assert (decision.taken, dispatcher.budget().messages) == (1, 0)
    # What is due is not held up by what is not.
    assert dispatcher.replay_positions() == [Position(1, 0)]
    dispatcher.release(600, lambda position: position == Position(1, 1))
    assert dispatcher.replay_positions() == [Position(1, 0), Position(1, 2)]


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()
    lab.loop.close()


def publish(lab: BrokerLab, *delays_ms: int) -> list[Position]:
    async def work() -> list[Position]:
        producer, found = (
            await (await lab.broker.topic(TOPIC)).attach_producer("p"),
            list[Position](),
        )
        for delay_ms in delays_ms:
            builder = NativeBatchBuilder("p")
            builder.deliver_at_ms = lab.clock.now_ms() + delay_ms if delay_ms else 0
            builder.add(b"v", b"k")
            number = producer.record.last_sequence_id + 1
            entry = builder.build(sequence_id=number, publish_time_ms=1, plain=True)
            producer.append_all([memoryview(entry)])
            (receipt,) = await producer.receipts()
            found.append(receipt.position)
        producer.detach()
        return found

    return lab.run(work())


def consume(
    lab: BrokerLab, type_: SubscriptionType, name: str = "s"
) -> tuple[Subscription, Consumer]:
    async def work() -> tuple[Subscription, Consumer]:
        subscription = await create_subscription(await lab.broker.topic(TOPIC), name, EARLIEST)
        consumer = subscription.attach(ConsumerOptions(type_, name="c"))
        subscription.add_permits(consumer, 100)
        return subscription, consumer

    return lab.run(work())


def received(lab: BrokerLab, consumer: Consumer) -> list[Position]:
    async def work() -> list[Position]:
        for _ in range(50):
            await asyncio.sleep(0)
        found = list[Position]()
        while consumer._deliveries:
            output = await consumer.take()
            assert output is not None
            found += [each.position for each in output.deliveries]
        return found

    return lab.run(work())


@pytest.mark.parametrize("type_", SHARED)
def test_a_shared_subscription_waits(lab: BrokerLab, type_: SubscriptionType) -> None:
    """By the broker's clock, also after a crash; the backlog counts what waits."""
    late, now, soon = publish(lab, 60_000, 0, 10_000)
    subscription, consumer = consume(lab, type_)
    assert received(lab, consumer) == [now]
    assert (subscription.delayed_entries, subscription.backlog_entries()) == (2, 3)
    lab.advance(9_000)
    assert received(lab, consumer) == []
    lab.advance(1_100)
    assert received(lab, consumer) == [soon]
    subscription.acknowledge(consumer, [now, soon])
    lab.run(subscription.persist())
    lab.crash()
    subscription, consumer = consume(lab, type_)
    assert received(lab, consumer) == []
    lab.advance(60_000)
    assert received(lab, consumer) == [late]
    subscription.acknowledge(consumer, [late])
    assert subscription.backlog_entries() == 0


def test_others_get_it_at_once(lab: BrokerLab) -> None:
    positions = publish(lab, 60_000, 0)
    for type_ in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER):
        assert received(lab, consume(lab, type_, type_)[1]) == positions
    assert len(lab.read(Position(-1, -1), read_compacted=False)) == 2


def test_what_was_acknowledged_meanwhile_is_not_delivered(lab: BrokerLab) -> None:
    first, second, third = publish(lab, 1_000, 2_000, 3_000)
    subscription, consumer = consume(lab, SubscriptionType.SHARED)
    assert received(lab, consumer) == []
    subscription.pass_over(first)
    subscription.acknowledge(consumer, [second])
    lab.advance(10_000)
    assert received(lab, consumer) == [third]


def test_the_key_section_says_when() -> None:
    builder = NativeBatchBuilder("p")
    builder.deliver_at_ms = 5
    builder.add(b"v", b"aw==", key_is_base64=True)
    builder.add(b"v", b"other", ordering_key=b"o")
    entry = builder.build(sequence_id=1, publish_time_ms=1)
    assert routing_of(entry, read_header(entry)) == (b"k", 5)
    builder = NativeBatchBuilder("p")
    builder.add(b"v", b"key", ordering_key=b"o")
    entry = builder.build(sequence_id=1, publish_time_ms=1)
    assert routing_of(entry, read_header(entry)) == (b"o", 0)
    builder = NativeBatchBuilder("p")
    builder.add(b"v")
    entry = builder.build(sequence_id=1, publish_time_ms=1)
    assert routing_of(entry, read_header(entry)) == (None, 0)

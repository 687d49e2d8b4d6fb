"""Delayed entries: held back until due, on shared subscriptions only, in bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.common.places import Places
from ledgerfold.broker.stats.subscription import describe
from ledgerfold.broker.subscriptions import shared
from ledgerfold.broker.subscriptions.consumer import Consumer, ConsumerOptions
from ledgerfold.broker.subscriptions.delayed import DelayedEntries
from ledgerfold.broker.subscriptions.dispatcher import Candidate, ConsumerState, SubscriptionType
from ledgerfold.broker.subscriptions.key_shared import KeySharedDispatcher
from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.broker.subscriptions.shared import LOOK_AHEAD_MAX, RELEASED_MAX, SharedDispatcher
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.codec import routing_of
from ledgerfold.storage.entry import Position, read_header
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.v1.data_pb2 import StartPosition
from tests.model.broker_lab import TOPIC, BrokerLab

EARLIEST = StartPosition(earliest=True)
SHARED = (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)


def delayed_of(subscription: Subscription) -> int:
    return int(describe(subscription)["msgDelayed"])


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
            due = [each.position.entry_id for each in delayed.take_due(time_ms, 100)]
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


def test_entries_keep_the_fields_for_dispatch() -> None:
    delayed = DelayedEntries()
    large = Candidate(Position(2**62, 2**62), 2**31, 0, 65535, 2**62)
    small = Candidate(Position(0, 0), 1, 0, 0, 1)
    assert delayed.add(large)
    assert delayed.add(small)
    assert delayed.take_due(2**62, 5) == [small, large]


def test_delaying_resumes_when_a_tenth_is_free() -> None:
    """Otherwise each entry that falls due would cause a read for one entry."""
    dispatcher, taker = SharedDispatcher(DelayedEntries(entries_max=100)), ConsumerState("c", 1)
    taker.permits, taker.room_bytes = 10_000, 10_000
    dispatcher.add(taker)
    assert dispatcher.budget().messages == 100
    assert dispatcher.assign([candidate(n, 500 + n) for n in range(200)]).candidate_count == 100
    for now_ms in range(500, 510):
        dispatcher.release(now_ms, lambda position: True)
        assert dispatcher.budget().messages == 0
    dispatcher.release(510, lambda position: True)
    # Not more is read than is free.
    assert dispatcher.budget().messages == 11


def test_subscriptions_share_the_limit_of_the_broker() -> None:
    places, woken = Places(100), list[str]()
    one = DelayedEntries(places=places, on_room=lambda: woken.append("one"))
    other = DelayedEntries(places=places, on_room=lambda: woken.append("other"))
    assert [one.add(candidate(n, 500 + n)) for n in range(101)] == [True] * 100 + [False]
    # One that delays nothing reads on.
    assert (one.is_full, other.is_full) == (True, False)
    assert not other.add(candidate(0, 1))
    assert other.is_full
    one.take_due(509, 100)
    assert woken == []
    one.take_due(510, 100)
    assert sorted(woken) == ["one", "other"]
    assert (one.is_full, other.is_full) == (False, False)
    assert other.add(candidate(0, 1))
    assert places.count == 90
    one.close()
    other.close()
    assert places.count == 0


@pytest.mark.parametrize("make", [SharedDispatcher, KeySharedDispatcher])
def test_entries_that_are_due_together_are_released_in_parts(
    make: Callable[[], SharedDispatcher],
) -> None:
    """The others wait in the heap, which is small, while the replay queue is full."""
    dispatcher, taker = make(), ConsumerState("c", 1, permits=10**6, room_bytes=10**9)
    dispatcher.add(taker)
    count = LOOK_AHEAD_MAX + 2 * RELEASED_MAX
    assert dispatcher.assign([candidate(n, 500) for n in range(count)]).candidate_count == count
    released = 0
    while dispatcher.release(500, lambda position: False):
        assert dispatcher.waiting == released + RELEASED_MAX
        released = dispatcher.waiting
    assert (dispatcher.waiting, dispatcher.delayed) == (LOOK_AHEAD_MAX, 2 * RELEASED_MAX)
    assert not dispatcher.release(500, lambda position: False)
    replayed = list[int]()
    while positions := dispatcher.replay_positions():
        replayed += [each.entry_id for each in positions]
        dispatcher.assign_replayed([Candidate(each, 1, 10) for each in positions])
        dispatcher.release(500, lambda position: False)
        assert dispatcher.waiting <= LOOK_AHEAD_MAX
        for each in positions:
            dispatcher.settle(taker, each)
    assert sorted(replayed) == list(range(count))


def test_reading_pauses_while_too_many_entries_wait() -> None:
    taker = ConsumerState("c", 1, permits=100, room_bytes=1000)
    dispatcher = SharedDispatcher(DelayedEntries(entries_max=2))
    dispatcher.add(taker)
    decision = dispatcher.assign([candidate(n, 500 + n) for n in range(4)])
    assert (decision.candidate_count, dispatcher.delayed, dispatcher.budget().messages) == (2, 2, 0)
    dispatcher.release(499, lambda position: False)
    assert dispatcher.replay_positions() == []
    dispatcher.release(500, lambda position: False)
    assert dispatcher.replay_positions() == [Position(1, 0)]
    decision = dispatcher.assign([candidate(n, 500 + n) for n in (2, 3)])
    assert (decision.candidate_count, dispatcher.budget().messages) == (1, 0)
    # Entries that are not due do not hold up those that are.
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
def test_many_entries_due_together_are_all_delivered(
    lab: BrokerLab, type_: SubscriptionType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In parts, and with less room in the replay queue than there are: nothing needs a clock."""
    monkeypatch.setattr(shared, "RELEASED_MAX", 3)
    positions = publish(lab, *[10_000] * 20)
    subscription, consumer = consume(lab, type_)
    assert received(lab, consumer) == []
    assert subscription._session is not None
    monkeypatch.setattr(subscription._session.dispatcher, "_look_ahead_max", 5)
    lab.advance(11_000)
    assert received(lab, consumer) == positions
    assert lab.broker.outgoing.delayed.count == 0
    assert delayed_of(subscription) == 0


@pytest.mark.parametrize("type_", SHARED)
def test_policies_are_read_once_per_read(
    lab: BrokerLab, type_: SubscriptionType, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged = list[str]()

    def delays_delivery(topic: Topic) -> bool:
        merged.append(topic.name)
        return True

    monkeypatch.setattr(Topic, "delays_delivery", delays_delivery)
    publish(lab, *[10_000] * 20)
    subscription, consumer = consume(lab, type_)
    assert received(lab, consumer) == []
    assert delayed_of(subscription) == 20
    reads = len(merged)
    lab.advance(11_000)
    assert len(received(lab, consumer)) == 20
    # Replayed entries have waited already.
    assert (reads < 5, len(merged)) == (True, reads)


def test_a_session_that_ends_releases_its_space(lab: BrokerLab) -> None:
    publish(lab, 10_000, 10_000)
    subscription, consumer = consume(lab, SubscriptionType.SHARED)
    assert received(lab, consumer) == []
    places = lab.broker.outgoing.delayed
    assert places.count == 2
    subscription.detach(consumer)
    assert places.count == 0


@pytest.mark.parametrize("type_", SHARED)
def test_a_shared_subscription_delays_messages(lab: BrokerLab, type_: SubscriptionType) -> None:
    """By the broker's clock, also after a crash; the backlog counts waiting entries."""
    late, now, soon = publish(lab, 60_000, 0, 10_000)
    subscription, consumer = consume(lab, type_)
    assert received(lab, consumer) == [now]
    assert (delayed_of(subscription), subscription.backlog_entries()) == (2, 3)
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


def test_other_subscriptions_deliver_delayed_messages_at_once(lab: BrokerLab) -> None:
    positions = publish(lab, 60_000, 0)
    for type_ in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER):
        assert received(lab, consume(lab, type_, type_)[1]) == positions
    assert len(lab.read(Position(-1, -1), read_compacted=False)) == 2


def test_acknowledged_messages_are_not_delivered(lab: BrokerLab) -> None:
    first, second, third = publish(lab, 1_000, 2_000, 3_000)
    subscription, consumer = consume(lab, SubscriptionType.SHARED)
    assert received(lab, consumer) == []
    subscription.pass_over(first)
    subscription.acknowledge(consumer, [second])
    lab.advance(10_000)
    assert received(lab, consumer) == [third]


def test_the_key_section_contains_the_delivery_time() -> None:
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

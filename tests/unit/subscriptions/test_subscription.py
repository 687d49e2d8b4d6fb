"""Subscriptions on a log in memory: delivery, refusals, statistics."""

from __future__ import annotations

import pytest

from ledgerfold.broker.stats.subscription import describe
from ledgerfold.broker.subscriptions import consumer as consumer_module
from ledgerfold.broker.subscriptions.consumer import ConsumerOptions, Delivery
from ledgerfold.broker.subscriptions.dispatcher import SubscriptionType
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import (
    InvalidRequest,
    NotAllowed,
    SubscriptionBusy,
)
from tests.support.subscription_lab import (
    COMPACTED,
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    SHARED,
    MemoryTopic,
    acknowledge,
    backlog,
    quiet,
    receive,
    run,
    settled,
    subscribed,
    text,
)


def test_entries_are_delivered_in_order_and_only_for_permits() -> None:
    """RTE-24: with one permit there is one entry; a batch may overdraw the permits."""

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish("a=1", "b=2 b=3", "c=4", "d=5")
        consumer = await subscribed(topic, EXCLUSIVE, permits=1)
        assert text(await receive(consumer, 1)) == "a=1"
        await quiet(topic, consumer)
        topic.subscriptions["s"].add_permits(consumer, 1)
        assert text(await receive(consumer, 1)) == "b=2 b=3"
        topic.subscriptions["s"].add_permits(consumer, 1)
        await quiet(topic, consumer)
        topic.subscriptions["s"].add_permits(consumer, 5)
        assert text(await receive(consumer, 2)) == "c=4 d=5"

    run(test)


@pytest.mark.parametrize("options", [EXCLUSIVE, SHARED, KEY_SHARED, COMPACTED])
def test_a_waiting_consumer_is_woken_by_a_publish(options: ConsumerOptions) -> None:
    """Also on a compacted topic (Pulsar #22634), and across a roll of the ledger."""

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish("a=1")
        topic.log.compact(Position(0, 0))
        consumer = await subscribed(topic, options)
        assert text(await receive(consumer, 1)) == "a=1"
        await quiet(topic, consumer)
        topic.log.publish("b=1")
        assert text(await receive(consumer, 1)) == "b=1"
        topic.log.roll()
        topic.log.wake()
        await quiet(topic, consumer)
        topic.log.publish("c=1")
        assert text(await receive(consumer, 1)) == "c=1"

    run(test)


def test_an_idle_subscription_does_not_read() -> None:
    """Acknowledgements and permits at the end of the log cause no reads."""

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish("a=1", "b=1")
        consumer = await subscribed(topic, SHARED)
        received = await receive(consumer, 2)
        await settled(topic)
        reads = len(topic.log.read_at)
        await acknowledge(topic, consumer, received)
        topic.subscriptions["s"].add_permits(consumer, 5)
        await settled(topic)
        assert len(topic.log.read_at) == reads

    run(test)


def test_unacknowledged_messages_are_redelivered_after_a_disconnect() -> None:
    """Acknowledged entries stay away, also those acknowledged one by one."""

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish("a=1", "b=1", "c=1", "d=1")
        consumer = await subscribed(topic, EXCLUSIVE)
        received = await receive(consumer, 4)
        await acknowledge(topic, consumer, [received[0], received[2]])
        topic.subscriptions["s"].detach(consumer)
        assert await consumer.take() is None
        again = await subscribed(topic, EXCLUSIVE)
        assert text(await receive(again, 2)) == "b=1 d=1"

    run(test)


def test_a_cumulative_ack_ahead_of_the_read_position_moves_it() -> None:
    """After a reconnect a consumer may acknowledge earlier deliveries."""

    async def test(topic: MemoryTopic) -> None:
        positions = topic.log.publish("a=1", "b=1", "c=1", "d=1")
        consumer = await subscribed(topic, EXCLUSIVE, permits=0)
        topic.subscriptions["s"].acknowledge(consumer, [positions[2]], cumulative=True)
        topic.subscriptions["s"].add_permits(consumer, 9)
        assert text(await receive(consumer, 1)) == "d=1"
        assert backlog(topic) == 1

    run(test)


def test_acks_of_missing_entries_are_ignored() -> None:
    """Beyond the end of the log or before its beginning nothing changes, and the call is
    answered.
    """

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish("a=1")
        consumer = await subscribed(topic, EXCLUSIVE)
        subscription = topic.subscriptions["s"]
        await receive(consumer, 1)
        for position in (Position(0, 5), Position(9, 0), Position(0, -1), EARLIEST):
            for cumulative in (True, False):
                subscription.acknowledge(consumer, [position], cumulative=cumulative)
        assert subscription.mark_delete == EARLIEST
        assert backlog(topic) == 1

    run(test)


def test_an_ack_before_the_first_entry_of_a_ledger_is_ignored() -> None:
    """Entry id -1 is no entry. Tests had acknowledged it only where the cursor passes it over, and
    not between the entries of two ledgers.
    """

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish("a=1")
        topic.log.roll()
        last = topic.log.publish("b=1")[-1]
        consumer = await subscribed(topic, SHARED)
        await receive(consumer, 2)
        topic.subscriptions["s"].acknowledge(consumer, [Position(last.ledger_id, -1)])
        assert topic.subscriptions["s"].cursor.ranges == []

    run(test)


def test_a_slow_shared_consumer_takes_bounded_memory_and_stops_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its queue takes OUTGOING_BYTES_MAX and one entry; the other consumer gets the rest."""
    monkeypatch.setattr("ledgerfold.broker.subscriptions.consumer.OUTGOING_BYTES_MAX", 400)
    monkeypatch.setattr(consumer_module, "FRAME_BYTES_MAX", 200)

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish(*(f"k{n}=v" for n in range(50)))
        slow = await subscribed(topic, SHARED)
        quick = await subscribed(topic, SHARED)
        received: list[Delivery] = []
        while len(received) + len(slow._deliveries) < 50:
            output = await quick.take()
            assert output is not None
            received += output.deliveries
        largest = max(len(each.data) for each in topic.log.raw)
        assert sum(len(each.entry) for each in slow._deliveries) <= 400 + largest
        topic.subscriptions["s"].detach(slow)
        rest = await receive(quick, 50 - len(received))
        assert {each.redelivery_count for each in rest} == {0}

    run(test)


def test_negatively_acknowledged_entries_are_redelivered_with_a_count() -> None:
    """Only returned entries, ordered by id, before new ones."""

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish("a=1", "b=1", "c=1", "d=1")
        consumer = await subscribed(topic, SHARED, permits=3)
        received = await receive(consumer, 3)
        subscription = topic.subscriptions["s"]
        subscription.redeliver(consumer, [received[2].position, received[0].position])
        subscription.add_permits(consumer, 3)
        again = await receive(consumer, 3)
        assert text(again) == "a=1 c=1 d=1"
        assert [each.redelivery_count for each in again] == [1, 1, 0]
        assert describe(subscription)["unackedMessages"] == 4

    run(test)


def test_deleted_entries_waiting_for_replay_count_as_acknowledged() -> None:
    """A forced trim removes entries that wait for redelivery."""

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish("a=1", "b=1")
        topic.log.roll()
        topic.log.publish("c=1")
        consumer = await subscribed(topic, SHARED, permits=3)
        await receive(consumer, 3)
        subscription = topic.subscriptions["s"]
        topic.log.trim(ledgers_before=1)
        subscription.redeliver(consumer, [])
        subscription.add_permits(consumer, 3)
        again = await receive(consumer, 1)
        assert text(again) == "c=1"
        await acknowledge(topic, consumer, again)
        assert subscription.mark_delete == Position(1, 0)

    run(test)


def test_key_shared_delivers_a_key_to_one_consumer() -> None:
    """Each key is seen by one consumer only, in order; a leaver's keys go to others, in order."""

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish(*(f"k{n % 10}={n}" for n in range(60)), "=none1", "=none2")
        one, two = await subscribed(topic, KEY_SHARED), await subscribed(topic, KEY_SHARED)
        await settled(topic)
        shares = []
        for consumer in (one, two):
            output = await consumer.take()
            assert output is not None
            shares.append(output.deliveries)
        assert sum(map(len, shares)) == 62
        keys = [{pair.split("=")[0] for pair in text(share).split()} for share in shares]
        assert all(keys)
        assert not keys[0] & keys[1]
        for share in shares:
            assert share == sorted(share, key=lambda each: each.position)
        topic.subscriptions["s"].detach(one)
        again = await receive(two, len(shares[0]))
        assert text(again) == text(shares[0])

    run(test)


def test_redelivery_requests_of_a_passive_consumer_are_ignored() -> None:
    """It has nothing; the active one would get all once more."""

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish("a=1", "b=1")
        active = await subscribed(topic, FAILOVER)
        passive = await subscribed(topic, FAILOVER)
        assert text(await receive(active, 2)) == "a=1 b=1"
        topic.subscriptions["s"].redeliver(passive, [])
        await quiet(topic, active)
        topic.log.publish("c=1")
        assert text(await receive(active, 1)) == "c=1"

    run(test)


def test_failover_notifies_consumers_and_hands_over() -> None:
    """The passive one gets nothing until the active one leaves; then all that was not acked."""

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish("a=1", "b=1", "c=1")
        first = await subscribed(topic, FAILOVER)
        second = await subscribed(topic, FAILOVER)
        output = await second.take()
        assert output is not None
        assert output.active is False
        received = await receive(first, 3)
        await acknowledge(topic, first, received[:1])
        topic.subscriptions["s"].detach(first)
        output = await second.take()
        assert output is not None
        assert output.active is True
        again = output.deliveries or await receive(second, 2)
        assert text(again) == "b=1 c=1"

    run(test)


def test_failover_a_lower_priority_number_takes_over() -> None:
    """Unsent entries of the old consumer are taken back, with its permits."""

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish("a=1", "b=1")
        old = await subscribed(topic, FAILOVER, permits=10)
        await settled(topic)
        better = await subscribed(topic, ConsumerOptions(SubscriptionType.FAILOVER, priority=-1))
        received = await receive(better, 2)
        assert text(received) == "a=1 b=1"
        assert {each.redelivery_count for each in received} == {0}
        assert old.state.permits == 10
        output = await old.take()
        assert output is not None
        assert (output.active, output.deliveries) == (False, [])
        assert describe(topic.subscriptions["s"])["activeConsumerName"] == better.name

    run(test)


def test_failover_on_a_partition_takes_queued_entries_back_when_a_passive_consumer_leaves() -> None:
    """Among a, b, c the second is active on partition 1: b, and c after a has left."""

    async def test(topic: MemoryTopic) -> None:
        topic.name = "t-partition-1"
        topic.log.publish("a=1", "b=1")
        a, b, c = [
            await subscribed(topic, ConsumerOptions(SubscriptionType.FAILOVER, name=name))
            for name in "abc"
        ]
        await settled(topic)
        topic.subscriptions["s"].detach(a)
        await settled(topic)
        received = await receive(c, 2)
        assert text(received) == "a=1 b=1"
        assert {each.redelivery_count for each in received} == {0}
        output = await b.take()
        assert output is not None
        assert (output.active, output.deliveries) == (False, [])
        assert b.state.permits == 1_000

    run(test)


def test_exclusive_redelivery_rewinds_during_a_read() -> None:
    """The order stays: everything unacknowledged is redelivered, then the rest, nothing twice."""

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish("a=1", "b=1", "c=1")
        consumer = await subscribed(topic, EXCLUSIVE, permits=2)
        received = await receive(consumer, 2)
        subscription = topic.subscriptions["s"]
        await acknowledge(topic, consumer, received[:1])
        topic.log.gate.clear()
        subscription.add_permits(consumer, 10)
        await settled(topic)
        subscription.redeliver(consumer, [received[1].position])
        topic.log.gate.set()
        again = await receive(consumer, 2)
        assert text(again) == "b=1 c=1"

    run(test)


def test_invalid_requests_of_a_consumer_are_rejected() -> None:
    """SUB-05; a second Exclusive consumer; another type or durability; cumulative on Shared."""

    async def test(topic: MemoryTopic) -> None:
        consumer = await subscribed(topic, EXCLUSIVE)
        subscription = topic.subscriptions["s"]
        with pytest.raises(SubscriptionBusy, match="Exclusive and has a consumer"):
            subscription.attach(EXCLUSIVE)
        with pytest.raises(SubscriptionBusy, match="it is currently Exclusive"):
            subscription.attach(FAILOVER)
        with pytest.raises(NotAllowed, match="exists as durable"):
            subscription.attach(ConsumerOptions(SubscriptionType.EXCLUSIVE, durable=False))
        for type_ in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED):
            with pytest.raises(NotAllowed, match="Read-compacted"):
                subscription.attach(ConsumerOptions(type_, read_compacted=True))
        subscription.detach(consumer)
        shared = subscription.attach(SHARED)
        with pytest.raises(InvalidRequest, match="cumulatively"):
            subscription.acknowledge(shared, [Position(0, 0)], cumulative=True)

    run(test)

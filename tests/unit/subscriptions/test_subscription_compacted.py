"""Read-compacted subscriptions: cases SUB and RTE of the catalogue of Pulsar cases."""

from __future__ import annotations

import pytest

from ledgerfold.broker.subscriptions.consumer import Consumer, ConsumerOptions
from ledgerfold.broker.subscriptions.dispatcher import SubscriptionType
from ledgerfold.broker.subscriptions.lifecycle import (
    create_subscription,
)
from ledgerfold.storage.entry import Position
from ledgerfold.v1.data_pb2 import StartPosition
from tests.support.subscription_lab import (
    COMPACTED,
    EXCLUSIVE,
    FAILOVER,
    SHARED,
    MemoryTopic,
    acknowledge,
    backlog,
    quiet,
    receive,
    run,
    subscribed,
    text,
)

COMPACTED_FAILOVER = ConsumerOptions(SubscriptionType.FAILOVER, read_compacted=True)


async def compacted_topic(topic: MemoryTopic) -> None:
    """k0..k9, each twice; the last message is a tombstone of k9: k0..k8 survive."""
    first = topic.log.publish(*(f"k{n}=old" for n in range(10)))
    topic.log.roll()
    second = topic.log.publish(*(f"k{n}=new" for n in range(9)), "k9=")
    assert len(first) == len(second)
    topic.log.compact(*second[:9])


def test_a_raw_consumer_reads_the_whole_log_after_a_compacted_one() -> None:
    """CompactionTest#testCompaction: read-compacted is a property of the consumer."""

    async def test(topic: MemoryTopic) -> None:
        await compacted_topic(topic)
        compacted = await subscribed(topic, COMPACTED)
        assert len(await receive(compacted, 9)) == 9
        await quiet(topic, compacted)
        assert backlog(topic) == 20
        topic.subscriptions["s"].detach(compacted)
        raw = await subscribed(topic, EXCLUSIVE)
        assert len(await receive(raw, 20)) == 20

    run(test)


async def read_compacted_before(topic: MemoryTopic, options: ConsumerOptions) -> Consumer:
    """a and b, each twice, and a tombstone: a consumer reads the view, and acknowledges nothing."""
    positions = topic.log.publish("a=1", "a=2", "b=1", "b=2", "c=")
    topic.log.compact(positions[1], positions[3])
    consumer = await subscribed(topic, options)
    await receive(consumer, 2)
    await quiet(topic, consumer)
    return consumer


@pytest.mark.parametrize("raw_options", [EXCLUSIVE, FAILOVER, SHARED])
@pytest.mark.parametrize("cumulative", [True, False])
def test_a_raw_consumer_after_a_compacted_one_acknowledges_only_what_it_names(
    raw_options: ConsumerOptions, cumulative: bool
) -> None:
    """Not the superseded entries and tombstones that the view of the last consumer left out."""
    cumulative = cumulative and raw_options.type.is_ordered

    async def test(topic: MemoryTopic) -> None:
        compacted = await read_compacted_before(topic, COMPACTED)
        subscription = topic.subscriptions["s"]
        subscription.detach(compacted)
        raw = await subscribed(topic, raw_options)
        received = await receive(raw, 5)
        subscription.acknowledge(raw, [received[3].position], cumulative=cumulative)
        assert backlog(topic) == (1 if cumulative else 4)
        subscription.detach(raw)
        again = await subscribed(topic, EXCLUSIVE)
        expected = "c=" if cumulative else "a=1 a=2 b=1 c="
        assert text(await receive(again, backlog(topic))) == expected

    run(test)


def test_a_raw_consumer_takes_over_from_a_compacted_one() -> None:
    """One consumer of a Failover subscription is read-compacted, and the other is not."""

    async def test(topic: MemoryTopic) -> None:
        compacted = await read_compacted_before(topic, COMPACTED_FAILOVER)
        raw = await subscribed(topic, FAILOVER)
        subscription = topic.subscriptions["s"]
        subscription.detach(compacted)
        subscription.acknowledge(raw, [(await receive(raw, 5))[1].position])
        assert backlog(topic) == 4

    run(test)


@pytest.mark.parametrize("how", ["redelivery", "reconnect", "restart"])
def test_a_compacted_consumer_that_reads_again_passes_the_same_gaps(how: str) -> None:
    """Acknowledgements from before and after count, also of entries it has not read again."""

    async def test(topic: MemoryTopic) -> None:
        await compacted_topic(topic)
        consumer = await subscribed(topic, COMPACTED)
        received = await receive(consumer, 9)
        await quiet(topic, consumer)
        subscription = topic.subscriptions["s"]
        await acknowledge(topic, consumer, received[4:])
        if how == "redelivery":
            subscription.redeliver(consumer, ())
            subscription.acknowledge(consumer, [received[3].position])
            rest = await receive(consumer, 3)
        else:
            if how == "restart":
                subscription = await topic.restart()
            else:
                subscription.detach(consumer)
            consumer = await subscribed(topic, COMPACTED)
            rest = await receive(consumer, 4)
        await quiet(topic, consumer)
        subscription.acknowledge(consumer, [each.position for each in rest])
        assert backlog(topic) == 0

    run(test)


@pytest.mark.parametrize("cumulative", [True, False])
@pytest.mark.parametrize("backwards", [True, False])
def test_acknowledging_everything_delivered_empties_the_backlog(
    cumulative: bool, backwards: bool
) -> None:
    """Superseded entries and tombstones, at the end too, do not stay behind (Pulsar #23245)."""

    async def test(topic: MemoryTopic) -> None:
        await compacted_topic(topic)
        consumer = await subscribed(topic, COMPACTED)
        received = await receive(consumer, 9)
        await quiet(topic, consumer)
        subscription = topic.subscriptions["s"]
        if cumulative:
            subscription.acknowledge(consumer, [received[-1].position], cumulative=True)
        else:
            for each in reversed(received) if backwards else received:
                subscription.acknowledge(consumer, [each.position])
        assert backlog(topic) == 0
        assert subscription.mark_delete == topic.log.positions.last()
        subscription.detach(consumer)
        topic.log.publish("x=1")
        again = await subscribed(topic, COMPACTED)
        assert text(await receive(again, 1)) == "x=1"

    run(test)


def test_an_empty_compacted_ledger_leaves_no_backlog() -> None:
    """A topic of tombstones: a read-compacted consumer gets nothing, and has nothing left."""

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish("a=1", "a=")
        topic.log.compact()
        consumer = await subscribed(topic, COMPACTED)
        await quiet(topic, consumer)
        assert backlog(topic) == 0

    run(test)


def test_sub_06_acks_of_ids_that_exist_only_in_the_compacted_ledger() -> None:
    """Raw ledgers are trimmed: reads and acknowledgements continue over restarts, nothing twice."""

    async def test(topic: MemoryTopic) -> None:
        positions = topic.log.publish(*(f"k{n}={n}" for n in range(10)))
        topic.log.compact(*positions)
        topic.log.roll()
        topic.log.trim(ledgers_before=1)
        for n in range(2):
            consumer = await subscribed(topic, COMPACTED, permits=5)
            received = await receive(consumer, 5)
            assert text(received) == " ".join(f"k{i}={i}" for i in range(n * 5, n * 5 + 5))
            await acknowledge(topic, consumer, received)
            await topic.restart()
        topic.log.publish("K=V")
        consumer = await subscribed(topic, COMPACTED, permits=5)
        received = await receive(consumer, 1)
        await acknowledge(topic, consumer, received)
        assert topic.subscriptions["s"].mark_delete == topic.log.positions.last()

    run(test)


def test_sub_12_acks_out_of_order_are_kept_when_raw_ledgers_are_deleted() -> None:
    """The mark-delete does not pass unacknowledged entries of trimmed ledgers."""

    async def test(topic: MemoryTopic) -> None:
        positions = topic.log.publish(*(f"k{n}={n}" for n in range(10)))
        topic.log.compact(*positions)
        topic.log.roll()
        topic.log.trim(ledgers_before=1)
        consumer = await subscribed(topic, COMPACTED)
        received = await receive(consumer, 10)
        await acknowledge(topic, consumer, [received[0], received[2], received[4]])
        await topic.restart()
        again = await subscribed(topic, COMPACTED)
        assert text(await receive(again, 7)) == "k1=1 k3=3 k5=5 k6=6 k7=7 k8=8 k9=9"

    run(test)


def test_sub_08_and_sub_10_a_successor_begins_after_the_cumulative_ack() -> None:
    """After a reconnect, and at a Failover takeover."""

    async def test(topic: MemoryTopic) -> None:
        positions = topic.log.publish(*(f"k{n}={n}" for n in range(10)))
        topic.log.compact(*positions)
        options = ConsumerOptions(SubscriptionType.FAILOVER, read_compacted=True)
        first, second = await subscribed(topic, options), await subscribed(topic, options)
        received = await receive(first, 10)
        subscription = topic.subscriptions["s"]
        subscription.acknowledge(first, [received[3].position], cumulative=True)
        subscription.detach(first)
        again = await receive(second, 6)
        assert text(again).startswith("k4=4")
        subscription.acknowledge(second, [again[0].position], cumulative=True)
        subscription.detach(second)
        assert text(await receive(await subscribed(topic, options), 5)).startswith("k5=5")

    run(test)


def test_rte_11_and_rte_12_start_positions_of_a_read_compacted_consumer() -> None:
    """Behind the mark-delete; at the very start when that is before its ledger's first entry."""

    async def test(topic: MemoryTopic) -> None:
        early = await create_subscription(topic, "early", StartPosition(latest=True))
        assert early.mark_delete == Position(0, -1)
        positions = topic.log.publish("a=1", "b=1", "c=1")
        acked = await subscribed(topic, EXCLUSIVE)
        await acknowledge(topic, acked, (await receive(acked, 3))[:2])
        topic.subscriptions["s"].detach(acked)
        topic.log.compact(*positions)
        assert text(await receive(await subscribed(topic, COMPACTED), 1)) == "c=1"
        begun = early.attach(COMPACTED)
        early.add_permits(begun, 10)
        assert text(await receive(begun, 3)) == "a=1 b=1 c=1"

    run(test)


def test_a_consumer_at_the_latest_of_a_trimmed_topic_gets_new_messages() -> None:
    """Its subscription is behind the last entry, though that is trimmed."""

    async def test(topic: MemoryTopic) -> None:
        positions = topic.log.publish("a=1", "b=1")
        topic.log.compact(*positions)
        topic.log.roll()
        topic.log.trim(ledgers_before=1)
        latest = StartPosition(latest=True)
        subscription = await create_subscription(topic, "s", latest, by_consumer=True)
        assert subscription.mark_delete == positions[-1]
        consumer = subscription.attach(COMPACTED)
        subscription.add_permits(consumer, 10)
        topic.log.publish("c=1")
        assert text(await receive(consumer, 1)) == "c=1"

    run(test)


def test_a_subscription_at_the_latest_of_an_empty_ledger_gets_the_compacted_data() -> None:
    """Pulsar's first-read rule; acknowledging that data neither fails nor moves the cursor back."""

    async def test(topic: MemoryTopic) -> None:
        positions = topic.log.publish("a=1", "b=1")
        topic.log.compact(*positions)
        topic.log.roll()
        subscription = await create_subscription(topic, "s", StartPosition(latest=True))
        consumer = subscription.attach(COMPACTED)
        subscription.add_permits(consumer, 10)
        received = await receive(consumer, 2)
        assert text(received) == "a=1 b=1"
        await acknowledge(topic, consumer, received)
        assert subscription.mark_delete == Position(1, -1)
        topic.log.publish("c=1")
        await acknowledge(topic, consumer, await receive(consumer, 1))
        assert subscription.mark_delete == Position(1, 0)

    run(test)

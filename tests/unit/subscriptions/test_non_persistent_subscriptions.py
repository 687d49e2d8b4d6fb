"""Subscriptions of non-persistent topics: which consumer gets a message, and which are dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from ledgerfold.broker.common.clock import ManualClock
from ledgerfold.broker.common.outgoing import READ_LEAST, Outgoing
from ledgerfold.broker.subscriptions.consumer import (
    OUTGOING_BYTES_MAX,
    Consumer,
    ConsumerOptions,
)
from ledgerfold.broker.subscriptions.delivery import routing
from ledgerfold.broker.subscriptions.dispatcher import HashRange, SubscriptionType
from ledgerfold.broker.subscriptions.key_owners import KeySharedPolicy
from ledgerfold.broker.subscriptions.non_persistent import NonPersistentSubscription
from ledgerfold.storage.entry import Position, read_header
from ledgerfold.storage.errors import InvalidHashRanges, Moved, SubscriptionBusy
from ledgerfold.storage.ledger import StoredEntry
from ledgerfold.storage.native import NativeBatchBuilder
from tests.support.subscription_lab import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED

STICKY = KeySharedPolicy(is_sticky=True, ranges=(HashRange(0, 65535),))


class Lab:
    """A subscription, and messages for it."""

    def __init__(self, *, is_durable: bool = True, outgoing: Outgoing | None = None) -> None:
        self.clock, self.unused = ManualClock(0), list[str]()
        self.subscription = NonPersistentSubscription(
            "non-persistent://public/default/t",
            "s",
            self.clock,
            outgoing or Outgoing(),
            is_durable=is_durable,
            on_unused=lambda each: self.unused.append(each.name),
        )

    def join(self, options: ConsumerOptions, permits: int = 100) -> Consumer:
        consumer = self.subscription.attach(options)
        self.subscription.add_permits(consumer, permits)
        return consumer

    def publish(self, *values: bytes, key: bytes | None = None) -> None:
        """One entry of these messages."""
        builder = NativeBatchBuilder("p")
        for value in values:
            builder.add(value, key)
        data = builder.build(sequence_id=1, publish_time_ms=1, plain=len(values) == 1)
        entry = StoredEntry(read_header(data), data)
        self.subscription.deliver(entry, lambda: routing(entry)[0])


async def entries(consumer: Consumer) -> int:
    """Takes the entries that wait for a consumer; returns their number."""
    count = 0
    while True:
        try:
            output = await asyncio.wait_for(consumer.take(), 0.01)
        except TimeoutError:
            return count
        assert output is not None
        assert {each.position for each in output.deliveries} <= {Position(0, 0)}
        count += len(output.deliveries)


def run(test: Callable[[], Awaitable[Any]]) -> None:
    async def body() -> None:
        await test()

    asyncio.run(body())


def named(options: ConsumerOptions, name: str) -> ConsumerOptions:
    return ConsumerOptions(options.type, name=name, key_shared=options.key_shared)


def test_undelivered_messages_are_dropped_and_counted() -> None:
    async def test() -> None:
        lab = Lab()
        lab.publish(b"1")
        consumer = lab.join(EXCLUSIVE, permits=1)
        # A batch costs all its messages, and is not split.
        lab.publish(b"2", b"3", b"4")
        lab.publish(b"5")
        assert consumer.state.permits == -2
        assert await entries(consumer) == 1
        lab.subscription.add_permits(consumer, 3)
        lab.publish(b"6")
        assert await entries(consumer) == 1
        assert lab.subscription.dropped.total == 2
        lab.clock._now_ms = 60_000
        assert lab.subscription.dropped.per_second(60_000) == pytest.approx(2 / 60)

    run(test)


def test_a_consumer_that_reads_nothing_takes_bounded_memory() -> None:
    async def test() -> None:
        lab = Lab()
        consumer = lab.join(EXCLUSIVE, permits=1_000_000)
        for _ in range(10):
            lab.publish(b"x" * (OUTGOING_BYTES_MAX // 4))
        assert consumer.share.size_bytes < OUTGOING_BYTES_MAX * 1.3
        assert lab.subscription.dropped.total == 6

    run(test)


def test_messages_are_dropped_while_the_broker_has_no_space() -> None:
    async def test() -> None:
        outgoing = Outgoing(bytes_max=2 * READ_LEAST)
        lab = Lab(outgoing=outgoing)
        consumer = lab.join(EXCLUSIVE)
        lab.publish(b"x" * (READ_LEAST + 1))
        lab.publish(b"y")
        assert await entries(consumer) == 1
        assert await entries(consumer) == 0
        lab.publish(b"z")
        assert await entries(consumer) == 1
        assert lab.subscription.dropped.total == 1

    run(test)


def test_shared_consumers_rotate_and_those_without_permits_are_skipped() -> None:
    async def test() -> None:
        lab = Lab()
        one, two, three = (lab.join(SHARED, permits) for permits in (100, 0, 100))
        for _ in range(6):
            lab.publish(b"x")
        assert [await entries(each) for each in (one, two, three)] == [3, 0, 3]
        # Nothing waits for an acknowledgement, and none has an effect but its answer.
        lab.subscription.acknowledge(one, [Position(0, 0)], request_id=7)
        output = await one.take()
        assert output is not None
        assert (output.acked_request_ids, one.state.unacked_messages) == ([7], 0)
        lab.subscription.redeliver(one, [Position(0, 0)])
        assert await entries(one) == 0

    run(test)


def test_a_key_belongs_to_one_consumer_even_if_it_is_slow() -> None:
    async def test() -> None:
        lab = Lab()
        consumers = [lab.join(named(KEY_SHARED, f"c{number}")) for number in range(3)]
        for number in range(30):
            lab.publish(b"x", key=b"k%d" % (number % 10))
        counts = [await entries(each) for each in consumers]
        assert sum(counts) == 30
        assert all(count % 3 == 0 for count in counts)
        for each in consumers:
            each.state.permits = 0
        consumers[0].state.permits = 100
        for number in range(10):
            lab.publish(b"x", key=b"k%d" % number)
        assert await entries(consumers[0]) == counts[0] / 3
        assert lab.subscription.dropped.total == 10 - counts[0] / 3

    run(test)


def test_failover_consumers_are_notified_of_the_active_one() -> None:
    async def test() -> None:
        lab = Lab()
        # On the ring, b is the next one of this topic.
        first, second = (lab.join(replace(FAILOVER, name=name)) for name in "ba")
        lab.publish(b"x")
        told = [await each.take() for each in (first, second)]
        assert [each and each.active for each in told] == [True, False]
        assert told[0] is not None
        assert len(told[0].deliveries) == 1
        assert lab.subscription.active_consumer is first
        lab.subscription.detach(first)
        lab.publish(b"y")
        output = await second.take()
        assert output is not None
        assert (output.active, len(output.deliveries)) == (True, 1)

    run(test)


def test_subscription_types_conflict_as_on_persistent_topics() -> None:
    async def test() -> None:
        lab = Lab()
        first = lab.join(EXCLUSIVE)
        for options in (EXCLUSIVE, SHARED):
            with pytest.raises(SubscriptionBusy):
                lab.join(options)
        lab.subscription.detach(first)
        lab.subscription.detach(first)
        assert lab.subscription.type is None
        sticky = ConsumerOptions(SubscriptionType.KEY_SHARED, key_shared=STICKY)
        lab.join(sticky)
        with pytest.raises(SubscriptionBusy, match="share keys in another way"):
            lab.join(KEY_SHARED)
        with pytest.raises(InvalidHashRanges):
            lab.join(sticky)

    run(test)


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_non_durable_subscription_ends_with_its_last_consumer(is_durable: bool) -> None:
    async def test() -> None:
        lab = Lab(is_durable=is_durable)
        consumers = [lab.join(SHARED) for _ in range(2)]
        lab.subscription.detach(consumers[0])
        assert lab.unused == []
        lab.subscription.detach(consumers[1])
        assert lab.unused == ([] if is_durable else ["s"])

    run(test)


def test_a_close_disconnects_all_consumers_and_refuses_others() -> None:
    async def test() -> None:
        lab = Lab()
        consumer = lab.join(EXCLUSIVE)
        lab.publish(b"x")
        lab.subscription.close(Moved("unloaded"))
        with pytest.raises(Moved):
            await consumer.take()
        with pytest.raises(Moved):
            lab.join(EXCLUSIVE)
        assert consumer.share.size_bytes == 0

    run(test)

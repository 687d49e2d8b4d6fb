"""Stats that show why a subscription delivers nothing, with the field names of Pulsar 4.0.7."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from ledgerfold.broker.stats.subscription import describe
from ledgerfold.broker.stats.topic import topic_stats
from ledgerfold.broker.subscriptions.consumer import Consumer, ConsumerOptions
from ledgerfold.broker.subscriptions.dispatcher import HashRange, SubscriptionType
from ledgerfold.broker.subscriptions.key_owners import KeySharedPolicy
from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.storage.entry import Position
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import BacklogQuota, Policies
from tests.model.broker_lab import BrokerLab
from tests.model.log_model import Message

SHARED, KEY_SHARED = SubscriptionType.SHARED, SubscriptionType.KEY_SHARED


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def consume(lab: BrokerLab, options: ConsumerOptions) -> tuple[Subscription, Consumer]:
    """Publishes three entries, and connects a consumer with permits for two of them."""
    lab.publish([([Message(b"k", b"%d" % n)], False) for n in range(3)])
    start = StartPosition(earliest=True)
    subscription = lab.run(create_subscription(lab.topic, "s", start))

    async def attached() -> Consumer:
        consumer = subscription.attach(options)
        subscription.add_permits(consumer, 2)
        assert await consumer.take()
        return consumer

    return subscription, lab.run(attached())


def test_unacknowledged_messages_block(lab: BrokerLab) -> None:
    """Until half of the limits of the namespace is acknowledged."""
    limits = Policies(max_unacked_messages_per_consumer=2, max_unacked_messages_per_subscription=2)
    lab.run(lab.broker.policies.update_namespace("public/default", limits, ()))
    subscription, consumer = consume(lab, ConsumerOptions(SHARED))

    def blocked() -> tuple[bool, bool]:
        stats = describe(subscription)
        of_consumer = stats["consumers"][0]["blockedConsumerOnUnackedMsgs"]
        return stats["blockedSubscriptionOnUnackedMsgs"], of_consumer

    assert blocked() == (True, True)
    subscription.acknowledge(consumer, [next(iter(consumer.state.pending))])
    assert blocked() == (True, False)
    subscription.acknowledge(consumer, list(consumer.state.pending))
    assert blocked() == (False, False)


def test_a_higher_limit_of_unacknowledged_messages_takes_effect_at_once(lab: BrokerLab) -> None:
    """Without an acknowledgement, more permits or new messages, nothing had looked at it."""
    limits, topic = Policies(max_unacked_messages_per_consumer=2), lab.topic
    lab.run(lab.broker.policies.update_topic(topic, limits, ()))
    subscription, consumer = consume(lab, ConsumerOptions(SHARED))
    subscription.add_permits(consumer, 1)
    assert len(consumer.state.pending) == 2
    limits.max_unacked_messages_per_consumer = 3

    async def raised() -> bool:
        await lab.broker.policies.update_topic(topic, limits, ())
        return bool(await consumer.take())

    assert lab.run(raised())
    assert len(consumer.state.pending) == 3


def test_a_higher_limit_redelivers_at_the_end_of_the_log(lab: BrokerLab) -> None:
    """Dispatch waited for new messages, and compared what could be replayed with the old limit."""
    limits, topic = Policies(max_unacked_messages_per_consumer=2), lab.topic
    lab.run(lab.broker.policies.update_topic(topic, limits, ()))
    subscription, blocked = consume(lab, ConsumerOptions(SHARED))
    subscription.add_permits(blocked, 1)

    async def third() -> None:
        other = subscription.attach(ConsumerOptions(SHARED))
        subscription.add_permits(other, 9)
        assert await other.take()
        # It has read to the end.
        for _ in range(9):
            await asyncio.sleep(0)
        subscription.detach(other)
        limits.max_unacked_messages_per_consumer = 3
        await lab.broker.policies.update_topic(topic, limits, ())
        assert await blocked.take()

    lab.run(third())
    assert len(blocked.state.pending) == 3


def test_entries_that_wait_for_a_redelivery_are_counted(lab: BrokerLab) -> None:
    subscription, consumer = consume(lab, ConsumerOptions(SHARED))
    assert describe(subscription)["msgInReplay"] == 0
    # It has no more permits.
    subscription.redeliver(consumer, ())
    assert describe(subscription)["msgInReplay"] == 2


def test_the_time_of_the_last_progress_is_shown(lab: BrokerLab) -> None:
    """An acknowledgement after a gap is none."""
    subscription, consumer = consume(lab, ConsumerOptions(SHARED))
    first, second = sorted(consumer.state.pending)
    times = list[int]()

    def acknowledge(position: Position) -> None:
        lab.advance(1_000)
        subscription.acknowledge(consumer, [position])
        times.append(describe(subscription)["lastMarkDeleteAdvancedTimestamp"])

    acknowledge(second)
    before_ms = lab.broker.clock_ms()
    acknowledge(first)
    assert times[0] == 0 < before_ms < times[1]


@pytest.mark.parametrize("is_sticky", [True, False])
def test_key_shared_shows_how_keys_are_shared(lab: BrokerLab, is_sticky: bool) -> None:
    ranges = (HashRange(0, 65535),) if is_sticky else ()
    policy = KeySharedPolicy(is_sticky, ranges, allows_out_of_order=is_sticky)
    stats = describe(consume(lab, ConsumerOptions(KEY_SHARED, key_shared=policy))[0])
    mode = "STICKY" if is_sticky else "AUTO_SPLIT"
    assert (stats["keySharedMode"], stats["allowOutOfOrderDelivery"]) == (mode, is_sticky)
    first = 0 if is_sticky else 1
    assert [list(each) for each in stats["consumers"][0]["keyHashRangeArrays"]] == [[first, 65535]]


def test_a_topic_shows_the_limits_of_its_backlog_quotas(lab: BrokerLab) -> None:
    lab.publish([([Message(b"k", b"v")], False)])

    def limits() -> tuple[Any, Any]:
        stats = topic_stats(lab.topic, lab.broker.compaction.stats(lab.topic))
        assert stats["waitingPublishers"] == 0
        return stats["backlogQuotaLimitSize"], stats["backlogQuotaLimitTime"]

    assert limits() == (-1, -1)
    quotas = Policies(
        backlog_size_quota=BacklogQuota(limit_bytes=500, limit_ms=-1),
        backlog_age_quota=BacklogQuota(limit_bytes=-1, limit_ms=60_000),
    )
    lab.run(lab.broker.policies.update_topic(lab.topic, quotas, ()))
    assert limits() == (500, 60)

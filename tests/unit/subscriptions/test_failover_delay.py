"""The pause before a newly active consumer of a Failover subscription is served, as in Pulsar."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ledgerfold.broker.common.settings import FAILOVER_DELAY_MS, BrokerSettings
from ledgerfold.broker.subscriptions.consumer import Consumer, ConsumerOptions
from ledgerfold.broker.subscriptions.delivery import DeliveryRules
from ledgerfold.broker.subscriptions.dispatcher import SubscriptionType
from tests.model.broker_lab import BrokerLab
from tests.support.subscription_lab import (
    EXCLUSIVE,
    FAILOVER,
    MemoryTopic,
    acknowledge,
    quiet,
    receive,
    run,
    settled,
    subscribed,
    text,
)

_FIRST = ConsumerOptions(SubscriptionType.FAILOVER, priority=0)
_SECOND = ConsumerOptions(SubscriptionType.FAILOVER, priority=1)


def delayed(topic: MemoryTopic) -> None:
    topic.delivery_rules = DeliveryRules(failover_delay_ms=1000)


async def pass_ms(topic: MemoryTopic, elapsed_ms: int) -> None:
    await topic.clock.move_to(topic.clock.now_ms() + elapsed_ms)
    await settled(topic)


async def notified(consumer: Consumer) -> bool | None:
    output = await consumer.take()
    assert output is not None
    assert output.deliveries == []
    return output.active


def test_the_first_consumer_is_served_and_notified_after_the_delay() -> None:
    async def test(topic: MemoryTopic) -> None:
        delayed(topic)
        topic.log.publish("a=1")
        consumer = await subscribed(topic, FAILOVER)
        await pass_ms(topic, 999)
        await quiet(topic, consumer)
        assert topic.subscriptions["s"].active_consumer is consumer
        await pass_ms(topic, 1)
        output = await consumer.take()
        assert output is not None
        assert output.active is True
        assert text(output.deliveries) == "a=1"

    run(test)


def test_what_is_acknowledged_within_the_delay_is_not_delivered_twice() -> None:
    """The earlier consumer keeps what it has, gets no more, and still acknowledges."""

    async def test(topic: MemoryTopic) -> None:
        delayed(topic)
        topic.log.publish("a=1", "b=1")
        old = await subscribed(topic, _SECOND)
        await pass_ms(topic, 1000)
        received = await receive(old, 2)
        new = await subscribed(topic, _FIRST)
        topic.log.publish("c=1")
        await pass_ms(topic, 500)
        await quiet(topic, old)
        await acknowledge(topic, old, received[:1])
        await pass_ms(topic, 500)
        output = await new.take()
        assert output is not None
        assert output.active is True
        assert text(output.deliveries) == "b=1 c=1"
        assert await notified(old) is False

    run(test)


def test_a_further_change_does_not_prolong_the_delay() -> None:
    """The consumer that is active at the end of the delay gets everything."""

    async def test(topic: MemoryTopic) -> None:
        delayed(topic)
        topic.log.publish("a=1")
        low = await subscribed(topic, _SECOND)
        await pass_ms(topic, 600)
        high = await subscribed(topic, _FIRST)
        await pass_ms(topic, 400)
        output = await high.take()
        assert output is not None
        assert (output.active, text(output.deliveries)) == (True, "a=1")
        assert await notified(low) is False

    run(test)


def test_a_consumer_that_stays_passive_is_notified_at_once() -> None:
    async def test(topic: MemoryTopic) -> None:
        delayed(topic)
        await subscribed(topic, _FIRST)
        assert await notified(await subscribed(topic, _SECOND)) is False

    run(test)


def test_the_next_consumer_waits_when_the_active_one_leaves() -> None:
    async def test(topic: MemoryTopic) -> None:
        delayed(topic)
        topic.log.publish("a=1")
        active = await subscribed(topic, _FIRST)
        waiting = await subscribed(topic, _SECOND)
        assert await notified(waiting) is False
        await pass_ms(topic, 1000)
        await receive(active, 1)
        topic.subscriptions["s"].detach(active)
        await pass_ms(topic, 999)
        await quiet(topic, waiting)
        await pass_ms(topic, 1)
        assert text(await receive(waiting, 1)) == "a=1"

    run(test)


def test_a_delay_of_consumers_that_have_left_has_no_effect() -> None:
    """The next consumer waits for its own whole delay."""

    async def test(topic: MemoryTopic) -> None:
        delayed(topic)
        topic.log.publish("a=1")
        gone = await subscribed(topic, FAILOVER)
        topic.subscriptions["s"].detach(gone)
        await pass_ms(topic, 500)
        consumer = await subscribed(topic, FAILOVER)
        await pass_ms(topic, 999)
        await quiet(topic, consumer)
        await pass_ms(topic, 1)
        assert text(await receive(consumer, 1)) == "a=1"

    run(test)


def test_an_exclusive_consumer_is_served_at_once() -> None:
    async def test(topic: MemoryTopic) -> None:
        delayed(topic)
        topic.log.publish("a=1")
        assert text(await receive(await subscribed(topic, EXCLUSIVE), 1)) == "a=1"

    run(test)


@pytest.mark.parametrize(
    ("delay_ms", "clock_ms", "pause_ms"),
    [(None, None, FAILOVER_DELAY_MS), (None, 1, 0), (200, 1, 200), (0, None, 0)],
)
def test_only_a_set_delay_applies_with_a_manual_clock(
    tmp_path: Path, delay_ms: int | None, clock_ms: int | None, pause_ms: int
) -> None:
    settings = BrokerSettings(tmp_path, failover_delay_ms=delay_ms, test_clock_start_ms=clock_ms)
    assert settings.failover_pause_ms == pause_ms


def test_a_topic_has_the_settings_delay() -> None:
    """The tests above set the rules of a topic in memory themselves."""
    lab = BrokerLab()
    try:
        lab.broker.settings = replace(lab.broker.settings, failover_delay_ms=300)
        assert lab.topic.delivery_rules.failover_delay_ms == 300
    finally:
        lab.stop()

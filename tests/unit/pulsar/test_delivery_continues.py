"""Delivery continues after any order of redeliveries, acknowledgements and reconnections.

The consumers count permits as Pulsar's Java client does. A permit that the broker loses, or a
change that it does not notice, ends in messages that never arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerfold.storage.entry import Position
from ledgerfold.v1.pulsar_pb2 import BaseCommand
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.pulsar.recorded import subscribe
from tests.support.permits_model import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, JavaConsumer
from tests.support.property_tests import examples
from tests.support.pulsar_lab import ConsumerLab

# More than any of the scenarios needs.
ROUNDS_MAX = 600

# Some are more frequent, so that something is delivered before it is redelivered.
ACTIONS = (
    *("work", "acknowledge", "reject") * 3,
    *("read", "receive", "redeliver", "reopen", "unload", "turn"),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, 1), st.integers(0, 7)),
    min_size=10,
    max_size=40,
)


def opening(type_: int, name: str) -> BaseCommand:
    command = subscribe(TOPIC, initial_position=1, consumer_name=name)
    command.subscribe.sub_type = type_
    return command


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Scenario:
    """The consumers of one subscription, each on its connection."""

    def __init__(
        self, lab: BrokerLab, type_: int, batches: Sequence[int], queue_size: int, *, indexes: bool
    ) -> None:
        self.lab = lab
        entries = [
            ([Message(b"k%d" % (at % 3), b"v")] * size, size > 1) for at, size in enumerate(batches)
        ]
        positions = lab.publish(entries)
        self.sizes: dict[Position, int] = dict(zip(positions, batches, strict=True))
        first = ConsumerLab(lab)
        labs = [first] if type_ == EXCLUSIVE else [first, ConsumerLab(lab, first.acks)]
        self.consumers = [
            JavaConsumer(each, opening(type_, f"c{at}"), queue_size, self.sizes, indexes)
            for at, each in enumerate(labs)
        ]

    async def play(self, steps: Sequence[tuple[str, int, int]]) -> None:
        for consumer in self.consumers:
            consumer.connect()
        for action, which, number in steps:
            await self._act(self.consumers[which % len(self.consumers)], action, number)
        await self._finish()
        for consumer in self.consumers:
            consumer.lab.lose()

    async def _act(self, consumer: JavaConsumer, action: str, number: int) -> None:
        if action == "read":
            await consumer.read(number)
        elif action == "work":
            await turns(5)
            await consumer.read(number + 1)
            await consumer.receive(number + 1)
        elif action == "receive":
            await consumer.receive(number)
        elif action == "acknowledge":
            for _ in range(number):
                await consumer.acknowledge(0)
        elif action == "reject":
            await consumer.reject(number)
        elif action == "redeliver":
            await consumer.redeliver()
        elif action == "reopen":
            await consumer.reopen()
        elif action == "unload":
            await self.lab.broker.unload_topic(TOPIC)
        else:
            await turns(number)

    async def _finish(self) -> None:
        """Receives and acknowledges everything that is left."""
        topic = await self.lab.broker.topic(TOPIC)
        for _ in range(ROUNDS_MAX):
            await turns(3)
            for consumer in self.consumers:
                await consumer.read(1)
                await consumer.receive(1)
                await consumer.acknowledge(0)
            topic = await self.lab.broker.topic(TOPIC)
            subscription = topic.subscriptions.get("s")
            if subscription is not None and not subscription.backlog_entries():
                return
        states = [
            (each.state.permits, each.state.unacked_messages, each.state.room_bytes)
            for each in topic.subscriptions["s"].consumers
        ]
        missing = topic.subscriptions["s"].backlog_entries()
        raise AssertionError(f"{missing} entries never arrive: {states}")


@pytest.mark.parametrize("indexes", [False, True])
@pytest.mark.parametrize("type_", [EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED])
@settings(max_examples=examples(50))
@given(
    batches=st.lists(st.integers(1, 5), min_size=3, max_size=8),
    queue_size=st.integers(1, 4),
    steps=STEPS,
)
def test_every_message_arrives(
    type_: int,
    indexes: bool,
    batches: list[int],
    queue_size: int,
    steps: list[tuple[str, int, int]],
) -> None:
    """No test had combined redeliveries with commands in flight and few permits."""
    lab = BrokerLab()
    try:
        scenario = Scenario(lab, type_, batches, queue_size, indexes=indexes)
        lab.run(scenario.play(steps))
    finally:
        lab.stop()

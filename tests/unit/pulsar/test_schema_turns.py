"""The commands of one client that compare schemas, and those of others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from ledgerfold.broker.pulsar.link import Link
from ledgerfold.broker.pulsar.schemas import check_consumer, schema_of_producer
from ledgerfold.v1.pulsar_pb2 import CommandProducer, CommandSubscribe, Schema
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.support.held_executor import HeldExecutor

TEXT = Schema(name=b"s", type=1, schema_data=b"")


class Nowhere(asyncio.Transport):
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Does nothing."""


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def test_each_client_has_one_schema_comparison_at_a_time(lab: BrokerLab) -> None:
    """However many it asks for, the next client waits for one of them."""
    broker, held = lab.broker, HeldExecutor()
    topics = [lab.run(broker.topic(f"{TOPIC}{at}")) for at in range(6)]
    broker.schemas.executor = held
    held.holds = True

    async def use() -> list[int]:
        greedy, other = Link(broker, Nowhere()), Link(broker, Nowhere())
        tasks = list[asyncio.Task[Any]]()
        waiting = list[int]()
        for link, own in ((greedy, topics[:-1]), (other, topics[-1:])):
            for topic in own:
                producer, subscribe = CommandProducer(schema=TEXT), CommandSubscribe(schema=TEXT)
                for work in (
                    schema_of_producer(link, topic, producer),
                    check_consumer(link, topic, subscribe),
                ):
                    tasks.append(asyncio.ensure_future(work))
            for _ in range(20):
                await asyncio.sleep(0)
            waiting.append(held.waiting)
        held.free()
        await asyncio.gather(*tasks)
        return waiting

    assert lab.run(use()) == [1, 2]
    assert all(len(broker.schemas.versions(each.name)) == 1 for each in topics)

"""Tests when the oracle accepts that the broker forgets a producer: after six hours of absence."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ledgerfold.storage.ledger import StoreSettings
from ledgerfold.v1.records_pb2 import CompactionStrategy, TopicRecord
from tests.simulation.life import Topic
from tests.simulation.limits import AWAY_MS
from tests.simulation.loop import Pace
from tests.simulation.world import World

NAME = "persistent://public/default/t"
STRATEGY = CompactionStrategy(name="publishing-order")


@pytest.fixture
def world() -> Iterator[World]:
    made = World(Random(1), Pace(), "pulsar-4", StoreSettings(), 0, STRATEGY)
    made.oracle.topics[NAME] = Topic(NAME, TopicRecord(name=NAME))
    yield made
    made.close()


def _connect(world: World, served_until_ms: int | None) -> None:
    connection = SimpleNamespace(served_until_ms=served_until_ms)
    world.oracle.connected(NAME, "p", cast(Any, connection))


def test_a_connected_producer_must_not_be_forgotten(world: World) -> None:
    _connect(world, None)
    world.oracle._on_forgotten(NAME, "p")
    assert "p is forgotten" in str(world.oracle.failure)


@pytest.mark.parametrize(("away_ms", "is_right"), [(AWAY_MS, False), (AWAY_MS + 1, True)])
def test_a_connection_that_the_broker_has_ended_does_not_count(
    world: World, away_ms: int, is_right: bool
) -> None:
    """Its client may notice the end later."""
    _connect(world, world.oracle.asked_ms() - away_ms)
    world.oracle._on_forgotten(NAME, "p")
    assert (world.oracle.failure is None) == is_right

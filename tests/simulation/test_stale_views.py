"""Tests which views the oracle calls stale while the write of a commit is in progress, and
afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from ledgerfold.storage.entry import Position
from ledgerfold.storage.ledger import StoreSettings
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.v1.records_pb2 import (
    RUN_STATE_SUCCESS,
    CompactedView,
    CompactionStrategy,
    LedgerRecord,
    RunRecord,
    TopicRecord,
)
from ledgerfold.v1.records_pb2 import Position as PositionRecord
from tests.simulation.jobs import Process
from tests.simulation.key_value import SimKeyValue
from tests.simulation.loop import Pace
from tests.simulation.world import World

NAME = "persistent://public/default/t"
STRATEGY = CompactionStrategy(name="publishing-order")
INSIDE, BEHIND = Position(1, 2), Position(1, 4)


@pytest.fixture
def world() -> Iterator[World]:
    made = World(Random(1), Pace(), "pulsar-4", StoreSettings(), 0, STRATEGY)
    yield made
    made.close()


@pytest.fixture
def metadata(world: World) -> MetadataStore:
    process = Process("broker")
    pairs = SimKeyValue(world.pairs, world.disk, process, world.oracle.on_write, world.loop.time)
    store = MetadataStore(pairs)
    with store.batch() as batch:
        batch.put(TopicRecord(name=NAME))
    commit_empty_view(store)
    return store


def commit_empty_view(store: MetadataStore) -> TopicRecord:
    """Commits run 1, which leaves nothing up to 1:3."""
    horizon = PositionRecord(ledger_id=1, entry_id=3)
    view = CompactedView(ledger_id=9, horizon=horizon, run_number=1)
    record = TopicRecord(name=NAME, compacted=view, compaction_cursor=True)
    run = RunRecord(topic=NAME, number=1, state=RUN_STATE_SUCCESS, strategy=STRATEGY.name)
    run.ledger_id = 9
    with store.batch() as batch:
        batch.put(record)
        batch.put(LedgerRecord(ledger_id=9, topic=NAME))
        batch.put(run)
    return record


def is_stale(world: World, position: Position, run_number: int | None) -> bool:
    return world.oracle.is_stale(world.oracle.topics[NAME], position, run_number)


@pytest.mark.usefixtures("metadata")
def test_a_commit_in_progress_is_not_yet_shown(world: World) -> None:
    """The write is durable, but the waiting task has not resumed yet."""
    assert not is_stale(world, INSIDE, 0)
    assert is_stale(world, INSIDE, 1)
    assert not is_stale(world, BEHIND, 1)


@pytest.mark.usefixtures("metadata")
def test_a_topic_being_unloaded_may_show_either_view(world: World) -> None:
    """The topic may have learned of the commit or not."""
    assert not is_stale(world, INSIDE, None)


def test_a_view_older_than_one_write_is_stale(world: World, metadata: MetadataStore) -> None:
    """Writes of a topic run one after another."""
    record = commit_empty_view(metadata)
    record.last_run_number = 1
    with metadata.batch() as batch:
        batch.put(record)
    assert is_stale(world, INSIDE, 0)
    assert is_stale(world, INSIDE, None)


def test_a_dropped_view_is_shown_until_the_write_is_complete(
    world: World, metadata: MetadataStore
) -> None:
    """Then all entries come from the raw ledgers."""
    with metadata.batch() as batch:
        batch.put(TopicRecord(name=NAME))
    assert is_stale(world, INSIDE, 1)
    assert not is_stale(world, INSIDE, 0)

"""Partitioned topics: allowed names, growth, and the locks of a write (partitions.py).

The rules were seen on Pulsar 4.0.7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

import pytest

from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.policies.effective import PolicyLevels
from ledgerfold.broker.topics.partitions import PARTITIONS_MAX, Partitions
from ledgerfold.storage.errors import (
    DiskFailure,
    InvalidRequest,
    NotAllowed,
    TopicExists,
    TopicIsPartitioned,
    TopicNotFound,
)
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.partition_names import parse_partition, partition_index, partition_name
from ledgerfold.v1.records_pb2 import CursorRecord, Policies, Position, TopicRecord
from tests.support.held_executor import HeldExecutor
from tests.support.inline_executor import InlineExecutor

T = "persistent://public/default/t"
P0, P1, P2 = (partition_name(T, index) for index in range(3))


class CountingKeyValue(MemoryKeyValue):
    """Counts writes, and fails them on request."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.is_broken = False

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        if self.is_broken:
            raise DiskFailure("metadata", "A metadata write", OSError(28, "full"))
        self.writes += 1
        super().write(puts, deletes)


class Lab:
    def __init__(self) -> None:
        self.disk = CountingKeyValue()
        self.metadata = MetadataStore(self.disk)
        self.partitions = Partitions(self.metadata, InlineExecutor, lambda: 17)

    def add_topic(self, name: str) -> None:
        with self.metadata.batch() as batch:
            batch.put(TopicRecord(name=name))

    def delete_topic(self, name: str) -> None:
        with self.metadata.batch() as batch:
            batch.delete_topic(name)

    def topics(self) -> list[str]:
        return [record.name for record in self.metadata.topics()]


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_a_partitioned_topic_and_its_partitions_are_made_in_one_write(lab: Lab) -> None:
    asyncio.run(lab.partitions.create(T, 3))
    assert lab.disk.writes == 1
    assert lab.topics() == lab.partitions.names(T) == [P0, P1, P2]
    assert (lab.partitions.count(T), lab.partitions.record(T).created_ms) == (3, 17)
    assert lab.partitions.list_names("public/default") == [T]
    assert lab.partitions.list_names("public/other") == []


def test_partitions_of_a_kafka_topic_are_kafka_topics(lab: Lab) -> None:
    """Later ones too, with the topic's settings at that time."""

    def configs() -> list[dict[str, str]]:
        return [dict(record.kafka.config) for record in lab.metadata.topics()]

    compact = {"cleanup.policy": "compact", "segment.ms": "5"}
    asyncio.run(lab.partitions.create(T, 2, compact))
    assert configs() == [compact, compact]
    asyncio.run(lab.partitions.update_kafka(T, {"segment.ms": None, "retention.ms": "7"}))
    asyncio.run(lab.partitions.grow(T, 3))
    assert configs() == [compact, compact, {"cleanup.policy": "compact", "retention.ms": "7"}]


CHANGES: list[Callable[[Partitions], Awaitable[None]]] = [
    lambda partitions: partitions.create(T + "2", 1),
    lambda partitions: partitions.grow(T, 3),
    lambda partitions: partitions.change_record(T, lambda record: None),
    lambda partitions: partitions.update_kafka(T, {"segment.ms": "7"}),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_completes_when_it_is_durable(
    lab: Lab, change: Callable[[Partitions], Awaitable[None]]
) -> None:
    """Other tests had an executor that is never late."""

    async def both() -> None:
        held = HeldExecutor()
        partitions = Partitions(lab.metadata, lambda: held, lambda: 17)
        await partitions.create(T, 2, {})
        held.holds = True
        changing = asyncio.ensure_future(change(partitions))
        await held.has_work()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not changing.done()
        held.free()
        await changing

    asyncio.run(both())


def test_a_failed_write_creates_nothing(lab: Lab) -> None:
    lab.disk.is_broken = True
    with pytest.raises(DiskFailure):
        asyncio.run(lab.partitions.create(T, 2))
    assert (lab.partitions.count(T), lab.topics()) == (0, [])


@pytest.mark.parametrize("taken", [T, P0, partition_name(T, 9)])
def test_an_existing_topic_or_partition_blocks_the_creation(lab: Lab, taken: str) -> None:
    """A client's use may have created a partition."""
    lab.add_topic(taken)
    with pytest.raises(TopicExists):
        asyncio.run(lab.partitions.create(T, 2))


def test_a_partitioned_topic_is_created_once(lab: Lab) -> None:
    asyncio.run(lab.partitions.create(T, 2))
    with pytest.raises(TopicExists):
        asyncio.run(lab.partitions.create(T, 2))
    with pytest.raises(TopicExists):
        lab.partitions.check_creatable(T)


@pytest.mark.parametrize("count", [0, -1, PARTITIONS_MAX + 1])
def test_the_number_of_partitions_has_bounds(lab: Lab, count: int) -> None:
    with pytest.raises(InvalidRequest, match=f"1 to {PARTITIONS_MAX}"):
        asyncio.run(lab.partitions.create(T, count))


@pytest.mark.parametrize("name", [P0, f"{T}-partition-x"])
def test_a_name_like_a_partitions_is_refused(lab: Lab, name: str) -> None:
    with pytest.raises(InvalidRequest, match="-partition-"):
        asyncio.run(lab.partitions.create(name, 2))


def test_a_partition_cannot_be_created_directly(lab: Lab) -> None:
    """Neither without a partitioned topic nor beyond its number; other suffixes are just names."""
    with pytest.raises(NotAllowed, match="is not partitioned"):
        lab.partitions.check_creatable(P1)
    asyncio.run(lab.partitions.create(T, 2))
    with pytest.raises(TopicExists):
        lab.partitions.check_creatable(P1)
    with pytest.raises(TopicNotFound, match="has only 2 partitions"):
        lab.partitions.check_creatable(P2)
    lab.delete_topic(P1)
    for name in (P1, f"{T}-partition-x", f"{T}-partition-00", f"{T}-partition--1"):
        lab.partitions.check_creatable(name)


def test_topics_that_are_created_by_use(lab: Lab) -> None:
    """A plain topic under a partition's name that belongs to nothing; nothing else of these."""
    lab.partitions.check_usable(P1)
    asyncio.run(lab.partitions.create(T, 1))
    with pytest.raises(TopicIsPartitioned, match=P0):
        lab.partitions.check_usable(T)
    with pytest.raises(TopicNotFound, match="has only 1 partition"):
        lab.partitions.check_usable(P1)


def test_the_number_of_partitions_only_increases(lab: Lab) -> None:
    asyncio.run(lab.partitions.create(T, 2))
    with pytest.raises(InvalidRequest, match="cannot be reduced to 1"):
        asyncio.run(lab.partitions.grow(T, 1))
    asyncio.run(lab.partitions.grow(T, 2))
    lab.disk.writes = 0
    asyncio.run(lab.partitions.grow(T, 3))
    assert (lab.disk.writes, lab.topics()) == (1, [P0, P1, P2])


def test_only_a_partitioned_topic_can_grow(lab: Lab) -> None:
    lab.add_topic(T)
    with pytest.raises(NotAllowed, match="is not partitioned"):
        asyncio.run(lab.partitions.grow(T, 3))
    with pytest.raises(TopicNotFound):
        asyncio.run(lab.partitions.grow(T + "x", 3))


def test_new_partitions_get_the_subscriptions_of_the_first(lab: Lab) -> None:
    """A consumer that discovers them later misses nothing. A lost partition is created again."""
    asyncio.run(lab.partitions.create(T, 2))
    lab.delete_topic(P1)
    cursor = CursorRecord(
        topic=P0, subscription="s", mark_delete=Position(ledger_id=4, entry_id=7), created_ms=3
    )
    with lab.metadata.batch() as batch:
        batch.put(cursor)
    asyncio.run(lab.partitions.grow(T, 3))
    assert lab.topics() == [P0, P1, P2]
    assert lab.metadata.cursors(P0) == [cursor]
    for name in (P1, P2):
        (found,) = lab.metadata.cursors(name)
        assert (found.topic, found.subscription, found.created_ms) == (name, "s", 17)
        assert found.mark_delete == Position(ledger_id=-1, entry_id=-1)


def test_policies_belong_to_the_partitioned_topic(lab: Lab) -> None:
    """A partition's record does not count; a partition without a partitioned topic is a plain
    topic.
    """
    asyncio.run(lab.partitions.create(T, 2))
    own_policies = Policies(compaction_threshold_bytes=5)
    asyncio.run(
        lab.partitions.change_record(T, lambda record: record.policies.CopyFrom(own_policies))
    )
    levels = PolicyLevels(lab.metadata, BrokerSettings(data_dir=Path("unused")))
    own = TopicRecord(name=P1, policies=Policies(compaction_threshold_bytes=7))
    assert levels.of_topic(own).compaction_threshold_bytes == 5
    own.name = "persistent://public/default/other-partition-1"
    assert levels.of_topic(own).compaction_threshold_bytes == 7
    lab.partitions.check_policies(own.name)
    with pytest.raises(InvalidRequest, match=f"policies of {T}"):
        lab.partitions.check_policies(P1)


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("t-partition-0", 0),
        ("t-partition-1-partition-12", 12),
        ("t", -1),
        ("t-partition-", -1),
        ("t-partition-01", -1),
        ("t-partition--1", -1),
        ("t-partition-1x", -1),
    ],
)
def test_a_partitions_name_contains_its_index(name: str, index: int) -> None:
    """As Pulsar's TopicName.getPartitionIndex does."""
    assert partition_index(name) == index
    partition = parse_partition(name)
    assert partition is None or partition_name(partition.topic, partition.index) == name

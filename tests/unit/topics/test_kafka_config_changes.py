"""The settings of a Kafka topic are changed by its name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ledgerfold.broker.topics.kafka_settings import change_config
from ledgerfold.storage.errors import KafkaError
from ledgerfold.storage.partition_names import partition_name
from tests.support.held_executor import HeldExecutor
from tests.support.kafka_lab import KafkaLab

T = "persistent://public/default/whole"


@pytest.fixture
def lab() -> Iterator[KafkaLab]:
    lab = KafkaLab({})
    lab.run(lab.broker.partitions.create(T, 2, {"cleanup.policy": "compact"}))
    yield lab
    lab.close()


def configs(lab: KafkaLab) -> list[dict[str, str]]:
    """Returns the partitions' settings, and those of a new partition."""
    names = lab.broker.partitions.names(T)
    records = [lab.run(lab.broker.kafka_topic(each)).record for each in names]
    return [*(dict(each.kafka.config) for each in records), new_ones(lab)]


def new_ones(lab: KafkaLab) -> dict[str, str]:
    return dict(lab.broker.partitions.record(T).kafka.config)


def stored(lab: KafkaLab, partition: int) -> dict[str, str]:
    record = lab.metadata.topic(partition_name(T, partition))
    assert record is not None
    return dict(record.kafka.config)


@pytest.mark.parametrize("turns", range(6))
def test_a_partition_that_is_added_meanwhile_gets_the_change(lab: KafkaLab, turns: int) -> None:
    """Partitions had been added before a change or after it."""
    configs(lab)

    async def both() -> None:
        changing = asyncio.ensure_future(change_config(lab.broker, T, {"segment.ms": "7"}))
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.gather(changing, lab.broker.grow_partitioned_topic(T, 3))

    lab.run(both())
    assert configs(lab) == [{"cleanup.policy": "compact", "segment.ms": "7"}] * 4


def test_of_two_changes_at_once_all_partitions_have_the_later_one(lab: KafkaLab) -> None:
    async def both() -> None:
        changes = ({"segment.ms": each} for each in ("7", "8"))
        await asyncio.gather(*(change_config(lab.broker, T, each) for each in changes))

    lab.run(both())
    assert configs(lab) == [{"cleanup.policy": "compact", "segment.ms": "8"}] * 3


def test_a_change_applies_to_existing_and_future_partitions(lab: KafkaLab) -> None:
    lab.run(change_config(lab.broker, T, {"cleanup.policy": None, "segment.ms": "7"}))
    assert configs(lab) == [{"segment.ms": "7"}] * 3


def test_a_refused_change_changes_no_partition(lab: KafkaLab) -> None:
    with pytest.raises(KafkaError):
        lab.run(change_config(lab.broker, T, {"segment.ms": "7", "cleanup.policy": "none"}))
    assert configs(lab) == [{"cleanup.policy": "compact"}] * 3


def test_a_change_completes_when_everything_is_durable(lab: KafkaLab) -> None:
    """The settings of the last partition are written last."""
    configs(lab)
    held = HeldExecutor()
    lab.broker.executor = held

    async def change() -> None:
        held.holds = True
        changing = asyncio.ensure_future(change_config(lab.broker, T, {"segment.ms": "7"}))
        while "segment.ms" not in stored(lab, 1):
            await held.has_work()
            assert not changing.done()
            held.let_go(1)
            for _ in range(20):
                await asyncio.sleep(0)
        held.free()
        await changing

    lab.run(change())

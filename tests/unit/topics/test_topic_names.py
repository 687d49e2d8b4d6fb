"""Watchers of names learn of every topic that appears or disappears, with any later failure."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, Literal

import pytest

from ledgerfold.broker.common.given_names import shown_topic
from ledgerfold.broker.common.names import namespace_of
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.errors import DiskFailure, LedgerfoldError
from ledgerfold.v1.records_pb2 import TopicRecord
from tests.model.broker_lab import TOPIC, BrokerLab

NAMES = [f"{TOPIC}-partition-{index}" for index in range(3)]


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()
    lab.loop.close()


def watched(lab: BrokerLab) -> list[tuple[str, bool]]:
    told = list[tuple[str, bool]]()
    lab.broker.names.watchers.add(lambda name, exists: told.append((name, exists)))
    return told


def test_a_topic_is_announced_even_if_its_first_load_fails(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record is durable: the next load finds it."""
    told, load = watched(lab), Topic.load

    async def failing(topic: Topic) -> None:
        await load(topic)
        raise LedgerfoldError("broken")

    monkeypatch.setattr(Topic, "load", failing)
    with pytest.raises(LedgerfoldError, match="broken"):
        lab.run(lab.broker.topic(TOPIC))
    assert lab.broker.names.listed() == [TOPIC]
    assert told == [(TOPIC, True)]
    monkeypatch.undo()
    lab.run(lab.broker.topic(TOPIC))
    assert told == [(TOPIC, True)]


def test_a_topic_that_was_not_created_is_not_announced(lab: BrokerLab) -> None:
    told = watched(lab)
    lab.files.fail_at(1)
    with pytest.raises(DiskFailure):
        lab.run(lab.broker.topic(TOPIC))
    lab.files.fail_at(0)
    lab.run(lab.broker.topic(TOPIC))
    assert told == [(TOPIC, True)]


async def some_turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def cancelled(lab: BrokerLab, work: Coroutine[Any, Any, None]) -> None:
    """Runs a call that its caller cancels while its write is in progress."""
    task = lab.loop.create_task(work)

    async def give_up() -> None:
        await some_turns(4)
        task.cancel()
        await asyncio.wait((task,))

    lab.run(give_up())
    assert task.cancelled()
    lab.settle()


def test_cancelled_callers_do_not_prevent_an_announcement(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, in_thread = watched(lab), Broker.in_thread

    class SlowLock(asyncio.Lock):
        async def acquire(self) -> Literal[True]:
            await some_turns()
            return await super().acquire()

    async def slow_thread(*args: Any) -> Any:
        await some_turns()
        return await in_thread(*args)

    monkeypatch.setattr(lab.broker.partitions, "_turn", SlowLock())
    monkeypatch.setattr(Broker, "in_thread", slow_thread)
    broker = lab.broker

    def happened() -> list[tuple[str, bool]]:
        """Waits for the locks, which the work holds until it is done."""

        async def wait() -> None:
            async with broker.locks.one(TOPIC), broker.locks.one(NAMES[0]):
                pass

        lab.run(wait())
        found = told.copy()
        told.clear()
        return found

    cancelled(lab, broker.create_partitioned_topic(TOPIC, 2))
    assert happened() == [(NAMES[0], True), (NAMES[1], True)]
    cancelled(lab, broker.grow_partitioned_topic(TOPIC, 3))
    assert happened() == [(NAMES[2], True)]
    cancelled(lab, broker.delete_partitioned_topic(TOPIC, force=True))
    assert happened() == [(each, False) for each in NAMES]


def test_names_are_listed_in_the_namespace_that_displays_them(lab: BrokerLab) -> None:
    """One that an earlier version allowed is displayed in a namespace that another may have."""
    names = [
        "persistent://public/default/b",
        "persistent://public/default/a/with/slashes",
        "persistent://public/default2/c",
        "persistent://public/../d",
    ]
    with lab.broker.metadata.batch() as batch:
        for name in names:
            batch.put(TopicRecord(name=name))
    listed = lab.broker.names.listed
    assert listed("public/default") == sorted(names[:2])
    assert listed("public/default2") == names[2:3]
    assert listed("public/..") == listed("public") == listed("a/b/c") == []
    (other,) = set(listed()) - set(names)
    assert other == shown_topic(names[3])
    assert listed(namespace_of(other)) == [other]
    batch = lab.broker.metadata.begin()
    for name in names:
        batch.delete_topic(name)
    lab.broker.metadata.write(batch)

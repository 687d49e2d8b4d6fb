"""A reset of a broker: one write deletes everything, with any operation in progress."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from ledgerfold.broker.topics.locks import TopicLocks
from ledgerfold.broker.topics.reset import reset
from ledgerfold.storage.entry import EARLIEST
from ledgerfold.storage.errors import DiskFailure, Moved, NotAllowed, StorageError
from ledgerfold.v1.records_pb2 import Policies, SchemaDefinition
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.lossy_files import everything, nothing
from tests.support.waiting import WAIT_S

ENTRY = ([Message(b"a", b"1")], False)
KAFKA = "persistent://acme/ns/k"
PARTITIONED = "persistent://acme/ns/p"


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def fill(lab: BrokerLab) -> None:
    lab.publish([ENTRY] * 9)
    assert lab.compact() is not None
    broker = lab.broker
    lab.run(broker.create_topic(KAFKA, {"cleanup.policy": "compact"}))
    lab.run(broker.create_partitioned_topic(PARTITIONED, 2))
    lab.run(broker.namespaces.put_tenant("acme", ["root"]))
    lab.run(broker.namespaces.create("acme/ns"))
    lab.run(broker.policies.update_namespace("acme/ns", Policies(message_ttl_ms=5), ()))
    lab.run(broker.schemas.put(TOPIC, SchemaDefinition(type="SCHEMA_TYPE_STRING")))


def check_empty(lab: BrokerLab) -> None:
    metadata, namespaces = lab.metadata, lab.broker.namespaces
    assert (namespaces.tenants(), namespaces.names()) == (["public"], ["public/default"])
    records = (metadata.topics(), metadata.partitioned_topics(), metadata.schemas(TOPIC))
    assert (*records, metadata.runs(), metadata.ledgers()) == ([], [], [], [], [])
    assert lab.files.listdir(lab.store.ledgers_dir) == []


def test_a_reset_deletes_everything(lab: BrokerLab) -> None:
    fill(lab)
    highest = max(each.ledger_id for each in lab.metadata.ledgers())
    told = list[tuple[str, bool]]()
    lab.broker.names.watchers.add(lambda name, exists: told.append((name, exists)))
    assert lab.run(reset(lab.broker)) == 4
    lab.settle()
    check_empty(lab)
    names = [TOPIC, KAFKA, *(f"{PARTITIONED}-partition-{index}" for index in (0, 1))]
    assert sorted(told) == sorted((name, False) for name in names)
    # A new topic of the name has nothing of the old one; ids are never reused.
    assert lab.publish([ENTRY])[0].ledger_id > highest
    assert len(lab.read(EARLIEST, read_compacted=True)) == 1
    assert lab.topic.record.last_run_number == 0


@pytest.mark.parametrize("tail", [nothing, everything])
def test_a_reset_is_durable(lab: BrokerLab, tail: object) -> None:
    """A start deletes the files that a crash has left."""
    fill(lab)
    lab.run(reset(lab.broker))
    lab.crash(tail)  # type: ignore[arg-type]
    check_empty(lab)


def test_a_reset_disconnects_clients_as_a_deletion_does(lab: BrokerLab) -> None:
    producer = lab.run(lab.topic.attach_producer("p"))
    lab.run(reset(lab.broker))
    with pytest.raises(Moved):
        lab.run(producer.receipts())


def test_a_load_waits_for_a_reset(lab: BrokerLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that began before is in it; one that begins meanwhile creates the topic afterwards."""
    fill(lab)

    async def both() -> int:
        unloading = lab.broker.unload_all
        has_begun = asyncio.Event()

        async def unload_all() -> list[StorageError]:
            has_begun.set()
            return await unloading()

        monkeypatch.setattr(lab.broker, "unload_all", unload_all)
        deleted = asyncio.create_task(reset(lab.broker))
        await has_begun.wait()
        created = asyncio.create_task(lab.broker.topic(TOPIC))
        found = await deleted
        assert (await created).record.last_run_number == 0
        return found

    assert lab.run(both()) == 4
    assert lab.broker.names.listed() == [TOPIC]


def loaded(lab: BrokerLab) -> set[str]:
    return {*lab.broker.topics, *lab.broker.kafka_topics}


def failing_for(name: str, work: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Returns `work` with an internal error for one topic."""

    async def fails(topic: str, *arguments: Any, **more: Any) -> Any:
        if topic == name:
            raise ValueError(topic)
        return await work(topic, *arguments, **more)

    return fails


def test_a_reset_fails_if_a_topic_cannot_be_unloaded(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reset is refused, and all topics are loaded again."""
    fill(lab)
    before, compaction = loaded(lab), lab.broker.compaction
    with monkeypatch.context() as patched:
        patched.setattr(compaction, "fence", failing_for(min(before), compaction.fence))
        with pytest.raises(ValueError, match="persistent"):
            lab.run(reset(lab.broker))
    lab.settle()
    assert loaded(lab) == before


def test_other_topics_are_loaded_if_one_cannot_be(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lab)
    before = loaded(lab)

    def full(*_: object) -> None:
        raise DiskFailure("metadata", "A metadata write", OSError(28, "full"))

    monkeypatch.setattr(lab.broker, "any_topic", failing_for(min(before), lab.broker.any_topic))
    monkeypatch.setattr(lab.metadata, "change", full)
    with pytest.raises(DiskFailure):
        lab.run(reset(lab.broker))
    lab.settle()
    assert loaded(lab) == before - {min(before)}


def test_a_failed_write_changes_nothing(lab: BrokerLab, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(lab)

    def fails(*_: object) -> None:
        raise DiskFailure("metadata", "A metadata write", OSError(28, "full"))

    with monkeypatch.context() as patched:
        patched.setattr(lab.metadata, "change", fails)
        with pytest.raises(DiskFailure):
            lab.run(reset(lab.broker))
    assert len(lab.read(EARLIEST, read_compacted=True)) == 1
    assert len(lab.broker.names.listed()) == 4


def test_a_full_disk_is_reset_with_the_reserve(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write needs room, and so does the removal of files, which gives it back."""
    lab.store.reserve.keep()
    fill(lab)
    change, allow_removal = lab.metadata.change, lab.metadata.allow_removal

    def full() -> None:
        if not lab.store.reserve.is_lent and lab.metadata.ledgers():
            raise DiskFailure("metadata", "A metadata write", OSError(28, "full"))

    def change_with_room(edit: Any) -> None:
        full()
        change(edit)

    def allow_removal_with_room() -> None:
        full()
        allow_removal()

    monkeypatch.setattr(lab.metadata, "change", change_with_room)
    monkeypatch.setattr(lab.metadata, "allow_removal", allow_removal_with_room)
    assert lab.run(reset(lab.broker)) == 4
    check_empty(lab)
    assert lab.store.reserve.is_there


def test_files_are_removed_with_the_reserve_if_the_disk_fills_meanwhile(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.store.reserve.keep()
    fill(lab)
    allow_removal = lab.metadata.allow_removal

    def allow_removal_with_room() -> None:
        if not lab.store.reserve.is_lent:
            raise DiskFailure("writes", "A write", OSError(28, "full"))
        allow_removal()

    monkeypatch.setattr(lab.metadata, "allow_removal", allow_removal_with_room)
    assert lab.run(reset(lab.broker)) == 4
    lab.settle()
    check_empty(lab)


def test_a_reset_needs_the_option(lab: BrokerLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab.broker, "manual_clock", None)
    with pytest.raises(NotAllowed, match="--allow-reset"):
        lab.run(reset(lab.broker))


def test_a_holder_may_take_another_name_while_a_reset_waits(lab: BrokerLab) -> None:
    async def example() -> list[str]:
        locks, order = TopicLocks(), list[str]()

        async def every() -> None:
            async with locks.every():
                order.append("all")

        async with locks.one("a"):
            waiting = asyncio.create_task(every())
            await asyncio.sleep(0)
            async with locks.one("b"):
                order.append("b")
        await waiting
        return order

    assert lab.run(example()) == ["b", "all"]


def test_later_callers_wait_for_a_waiting_reset(lab: BrokerLab) -> None:
    """Or loads that overlap would hold off a reset without end. What a holder creates continues."""

    async def example() -> list[str]:
        locks, order = TopicLocks(), list[str]()

        async def every() -> None:
            async with locks.every():
                order.append("all")

        async def one(name: str) -> None:
            async with locks.one(name):
                order.append(name)

        may_end = asyncio.Event()

        async def holder() -> None:
            async with locks.one("a"):
                await may_end.wait()
                await asyncio.create_task(one("of a"))

        tasks = [asyncio.create_task(holder())]
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(every()))
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(one("later")))
        for _ in range(5):
            await asyncio.sleep(0)
        assert order == []
        may_end.set()
        await asyncio.gather(*tasks)
        await one("after")
        return order

    assert lab.run(example()) == ["of a", "all", "later", "after"]


def test_a_cancelled_reset_blocks_no_caller(lab: BrokerLab) -> None:
    async def example() -> bool:
        locks = TopicLocks()

        async def every() -> None:
            async with locks.every():
                raise AssertionError

        async with locks.one("a"):
            waiting = asyncio.create_task(every())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait({waiting})
            other = asyncio.create_task(locks.one("b").__aenter__())
            await asyncio.wait_for(other, WAIT_S)
        return other.done()

    assert lab.run(example())

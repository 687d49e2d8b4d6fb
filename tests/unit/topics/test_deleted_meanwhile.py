"""Tests deletion by force during operations on a topic, which is then created again: nothing of the
old topic returns, and nothing of the new one is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from ledgerfold.broker.log.search import LogSearch
from ledgerfold.broker.subscriptions.cursor_operations import expire_all
from ledgerfold.broker.subscriptions.cursor_writer import DELAY_MS
from ledgerfold.broker.subscriptions.lifecycle import (
    create_subscription,
    delete_subscription,
    seek_subscription,
)
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.broker.topics.policy_store import PolicyStore
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import Moved, TopicNotFound
from ledgerfold.storage.partition_names import partition_name
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import Policies
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.held_executor import HeldExecutor

EARLIEST = StartPosition(earliest=True)
BY_TIME = StartPosition(publish_time_ms=1)
Work = Callable[[Topic], Awaitable[object]]


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    lab.publish([([Message(b"a", b"1")], False)])
    yield lab
    lab.stop()


class Gate:
    """Holds callers of `method`, before or after its work."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, *, after: bool = False
    ) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        self._is_used = False
        original = getattr(owner, method)

        async def gated(*args: Any, **kwargs: Any) -> Any:
            if self._is_used:
                return await original(*args, **kwargs)
            self._is_used = True
            answer = await original(*args, **kwargs) if after else None
            self.reached.set()
            await self.opened.wait()
            return answer if after else await original(*args, **kwargs)

        monkeypatch.setattr(owner, method, gated)


async def deleted_during(
    lab: BrokerLab, gate: Gate, work: Work, subscription_after: str | None
) -> None:
    """`work` waits at the gate while its topic is deleted and made again. Raises the method's
    error.
    """
    task = asyncio.ensure_future(work(lab.broker.topics[TOPIC]))
    await gate.reached.wait()
    await lab.broker.delete_topic(TOPIC, force=True)
    topic = await lab.broker.topic(TOPIC)
    if subscription_after is not None:
        await create_subscription(topic, subscription_after, EARLIEST)
    gate.opened.set()
    await task


def cursors(lab: BrokerLab) -> list[tuple[str, int]]:
    """Name and mark-delete's entry id of those on disk, once nothing more is to be written."""
    lab.advance(2 * DELAY_MS)
    return [(each.subscription, each.mark_delete.entry_id) for each in lab.metadata.cursors(TOPIC)]


@pytest.mark.parametrize("again", [None, "s"])
@pytest.mark.parametrize(("durable", "after"), [(True, True), (False, True), (True, False)])
def test_a_subscription_is_not_created_on_a_topic_that_is_gone(
    lab: BrokerLab,
    monkeypatch: pytest.MonkeyPatch,
    again: str | None,
    durable: bool,
    after: bool,
) -> None:
    """Tests a start found before the ledgers were deleted, and one not found."""

    async def create(topic: Topic) -> None:
        await create_subscription(topic, "s", BY_TIME, durable=durable)

    gate = Gate(monkeypatch, LogSearch, "resolve_start", after=after)
    with pytest.raises(Moved):
        lab.run(deleted_during(lab, gate, create, again))
    assert cursors(lab) == ([("s", -1)] if again else [])
    assert list(lab.topic.subscriptions) == ([again] if again else [])


@pytest.mark.parametrize("again", [None, "s"])
def test_a_seek_moves_no_cursor_of_a_topic_that_is_gone(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch, again: str | None
) -> None:
    lab.run(create_subscription(lab.topic, "s", EARLIEST))
    gate = Gate(monkeypatch, LogSearch, "resolve_start", after=True)
    to_the_end = StartPosition(publish_time_ms=2**50)
    with pytest.raises(Moved):
        lab.run(
            deleted_during(
                lab, gate, lambda topic: seek_subscription(topic, "s", to_the_end), again
            )
        )
    assert cursors(lab) == ([("s", -1)] if again else [])


def test_a_seek_waiting_for_its_consumers_moves_no_cursor_of_a_deleted_topic(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.run(create_subscription(lab.topic, "s", EARLIEST))
    gate = Gate(monkeypatch, Subscription, "_disconnect", after=True)
    with pytest.raises(Moved):
        lab.run(
            deleted_during(lab, gate, lambda topic: seek_subscription(topic, "s", EARLIEST), None)
        )
    assert cursors(lab) == []


@pytest.mark.parametrize("again", [None, "s"])
def test_expiry_moves_no_cursor_of_a_topic_that_is_gone(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch, again: str | None
) -> None:
    lab.run(create_subscription(lab.topic, "s", EARLIEST))
    lab.advance(10_000)
    gate = Gate(monkeypatch, LogSearch, "last_published_before", after=True)
    lab.run(deleted_during(lab, gate, lambda topic: expire_all(topic, 1), again))
    assert cursors(lab) == ([("s", -1)] if again else [])


def test_a_deletion_removes_no_subscription_of_the_next_topic(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.run(create_subscription(lab.topic, "s", EARLIEST))
    gate = Gate(monkeypatch, Subscription, "close", after=True)
    with pytest.raises(Moved):
        lab.run(deleted_during(lab, gate, lambda topic: delete_subscription(topic, "s"), "s"))
    assert cursors(lab) == [("s", -1)]


def test_acknowledgements_after_the_deletion_are_not_written(lab: BrokerLab) -> None:
    """A client still holds the subscription of a deleted topic."""
    subscription = lab.run(create_subscription(lab.topic, "s", EARLIEST))
    lab.run(lab.broker.delete_topic(TOPIC, force=True))

    async def change() -> None:
        subscription.recorded.changed(10_000)
        assert subscription.pass_over(subscription.log.positions.last_published()) == 0
        with pytest.raises(Moved):
            await subscription.persist()

    lab.run(change())
    assert cursors(lab) == []


def test_an_unloaded_topic_writes_no_record(lab: BrokerLab) -> None:
    """Its record lacks later ledgers, which would become orphans."""
    old = lab.topic
    lab.run(lab.broker.unload_topic(TOPIC))
    lab.publish([([Message(b"a", b"2")], False)])
    policies = PolicyStore(lab.broker)
    with pytest.raises(Moved):
        lab.run(policies.update_topic(old, Policies(message_ttl_ms=1_000), ()))
    lab.run(old.enable_compaction_cursor())
    lab.crash()
    assert len(lab.read(Position(-1, -1), read_compacted=False)) == 2


def test_a_topic_is_not_found_before_it_is_loaded(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Concurrent callers wait."""
    lab.restart()
    gate = Gate(monkeypatch, Topic, "load")

    async def ask() -> None:
        first = asyncio.ensure_future(lab.broker.topic(TOPIC))
        await gate.reached.wait()
        second = asyncio.ensure_future(lab.broker.topic(TOPIC))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not second.done()
        assert TOPIC not in lab.broker.topics
        gate.opened.set()
        assert await first is await second

    lab.run(ask())


def test_a_caller_gets_the_loaded_topic(lab: BrokerLab) -> None:
    """Though it is unloaded between its load and the caller's turn."""
    lab.restart()

    async def ask() -> bool:
        asking = asyncio.ensure_future(lab.broker.topic(TOPIC))
        for _ in range(100):
            await asyncio.sleep(0)
            if TOPIC in lab.broker.topics:
                break
        unloading = asyncio.ensure_future(lab.broker._unload(TOPIC))
        found = await asking
        is_loaded = found.is_loaded
        await unloading
        return is_loaded

    assert lab.run(ask())


@pytest.mark.parametrize("deletes_first", [True, False])
def test_a_stopping_broker_writes_nothing_of_a_deleted_topic(
    lab: BrokerLab, deletes_first: bool
) -> None:
    """Otherwise, the next topic of the name would answer a publisher that its message is
    stored.
    """
    lab.publish([([Message(b"b", b"1")], False)])
    held = HeldExecutor()
    lab.topic.log._files.executor = held
    held.holds = True

    async def both() -> None:
        works = [lab.broker.stop(), lab.broker.delete_topic(TOPIC, force=True)]
        first, second = reversed(works) if deletes_first else works
        begun = [asyncio.ensure_future(first)]
        await held.has_work()
        begun.append(asyncio.ensure_future(second))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(each.done() for each in begun), "The disk holds both."
        held.free()
        await asyncio.gather(*begun)

    lab.run(both())
    assert lab.metadata.topic(TOPIC) is None
    assert list(lab.metadata.producers(TOPIC)) == []


def test_a_topic_named_as_a_partition_is_not_created_next_to_it(lab: BrokerLab) -> None:
    """A concurrent caller of the name gets the error of the partitioned topic."""
    name = "persistent://public/default/parts"
    held = HeldExecutor()
    lab.broker.executor = held

    async def both() -> None:
        held.holds = True
        making = asyncio.ensure_future(lab.broker.create_partitioned_topic(name, 2))
        await held.has_work()
        using = asyncio.ensure_future(lab.broker.topic(f"{name}-partition-2"))
        for _ in range(20):
            await asyncio.sleep(0)
        held.free()
        await making
        with pytest.raises(TopicNotFound, match="has only"):
            await using

    lab.run(both())
    there = [each.name for each in lab.metadata.topics() if each.name.startswith(name)]
    assert there == lab.broker.partitions.names(name)


def test_a_partition_deleted_during_its_load_is_not_recreated_beyond_the_count(
    lab: BrokerLab,
) -> None:
    """A concurrent caller has seen the partition, waits for its deletion, and finds that no
    partition has that number.
    """
    name = "persistent://public/default/parts"
    last = partition_name(name, 2)
    lab.run(lab.broker.create_partitioned_topic(name, 3))
    held = HeldExecutor()
    lab.broker.executor = held

    async def step(*tasks: asyncio.Task[Any]) -> None:
        for _ in range(30):
            await asyncio.sleep(0)
        held.let_go(1)
        if not all(task.done() for task in tasks):
            await step(*tasks)

    async def race() -> list[object]:
        held.holds = True
        deleting = asyncio.ensure_future(lab.broker.delete_partitioned_topic(name, True))
        await held.has_work()
        using = asyncio.ensure_future(lab.broker.topic(last))
        making = asyncio.ensure_future(lab.broker.create_partitioned_topic(name, 1))
        await step(deleting, using, making)
        held.free()
        return list(await asyncio.gather(deleting, using, making, return_exceptions=True))

    deleted, used, made = lab.run(race())
    assert deleted is None
    names = {each.name for each in lab.metadata.topics()}
    if made is None:
        assert isinstance(used, TopicNotFound)
        assert last not in names
    else:
        assert last in names
        assert lab.metadata.partitioned_topic(name) is None

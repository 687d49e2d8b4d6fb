"""Tests entries in flight that may not become durable: they are not reported as stored."""

from __future__ import annotations

import asyncio
import errno

import pytest

from ledgerfold.broker.subscriptions.consumer import ConsumerOptions
from ledgerfold.broker.subscriptions.cursor_operations import nth_after
from ledgerfold.broker.subscriptions.dispatcher import SubscriptionType
from ledgerfold.broker.subscriptions.lifecycle import create_subscription, delete_subscription
from ledgerfold.broker.topics import trimming as trimming_module
from ledgerfold.storage.entry import EARLIEST
from ledgerfold.storage.errors import CompactionFailed, DiskFailure
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import RUN_STATE_ERROR, RUN_STATE_RUNNING
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.held_executor import HeldExecutor
from tests.support.inline_executor import InlineExecutor

LATEST = StartPosition(latest=True)


def held_lab() -> tuple[BrokerLab, HeldExecutor]:
    """With one message, whose ledger is closed; cursors wait for the test."""
    lab = BrokerLab()
    lab.publish([([Message(b"a", b"1")], False)])
    lab.run(lab.topic.log.tail.roll())
    held = HeldExecutor()
    lab.broker.executor = held
    lab.broker.record_writes._executor = InlineExecutor
    held.holds = True
    return lab, held


def test_an_unload_after_a_failure_waits_for_the_writing_thread() -> None:
    """It would write the record of a ledger that was closed, or deleted, by then."""
    lab = BrokerLab()
    lab.publish([([Message(b"a", b"1")], False)])
    topic, held = lab.topic, HeldExecutor()
    topic.log._files.executor = held

    async def unload() -> None:
        producer = await topic.attach_producer("p")
        held.holds = True
        producer.append_all([memoryview(lab.entry([Message(b"a", b"2")], is_batch=False))])
        await held.has_work()
        lab.files.fail_at(1)
        rolling = asyncio.ensure_future(topic.log.tail.roll())
        for _ in range(20):
            await asyncio.sleep(0)
        assert topic.log.state.failure is not None
        lab.files.fail_at(0)
        producer.detach()
        unloading = asyncio.ensure_future(lab.broker.unload_topic(TOPIC))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not unloading.done()
        assert not lab.broker.topics
        held.free()
        await unloading
        with pytest.raises(DiskFailure):
            await rolling

    lab.run(unload())
    assert lab.topic is not topic
    lab.publish([([Message(b"a", b"3")], False)])
    lab.stop()


@pytest.mark.parametrize("fails", [False, True])
def test_a_second_caller_waits_for_a_subscription_being_created(fails: bool) -> None:
    """Both callers get the same result."""
    lab, held = held_lab()

    async def create() -> list[object]:
        topic = await lab.broker.topic(TOPIC)
        creating = [asyncio.ensure_future(create_subscription(topic, "s", LATEST)) for _ in "12"]
        await held.has_work()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not any(each.done() for each in creating)
        if fails:
            lab.files.fail_at(1, error=errno.EMFILE)
        held.let_go(1)
        lab.files.fail_at(0)
        held.free()
        return await asyncio.gather(*creating, return_exceptions=True)

    first, second = lab.run(create())
    if fails:
        assert isinstance(first, DiskFailure)
        assert isinstance(second, DiskFailure)
        assert not lab.topic.subscriptions
    else:
        assert first is second
    lab.stop()


def test_a_cursor_being_created_protects_its_entries() -> None:
    """Raw data without a cursor stay, and after a crash there may be none."""
    lab, held = held_lab()

    async def trim() -> tuple[int, int]:
        topic = await lab.broker.topic(TOPIC)
        creating = asyncio.ensure_future(create_subscription(topic, "s", LATEST))
        await held.has_work()
        # As a timer does: without waiting for the cursor, whose write is held.
        before = len(topic.log.ledgers.ids)
        trimming = asyncio.ensure_future(topic.trim())
        for _ in range(10):
            await asyncio.sleep(0)
        now = len(topic.log.ledgers.ids)
        held.free()
        await asyncio.gather(creating, trimming)
        return before, now

    before, now = lab.run(trim())
    assert before == now
    lab.run(lab.topic.trim())
    assert len(lab.topic.log.ledgers.ids) < before
    lab.stop()


def test_a_skip_before_the_cursor_is_durable_protects_entries() -> None:
    """After a crash the cursor is where it was created: the entries after it must exist.

    No test moved a subscription whose first record was still being written; the simulator did.
    """
    lab, held = held_lab()
    held.holds = False
    lab.run(create_subscription(lab.topic, "other", LATEST))
    held.holds = True

    async def trim() -> tuple[int, int]:
        topic = await lab.broker.topic(TOPIC)
        earliest = StartPosition(earliest=True)
        creating = asyncio.ensure_future(create_subscription(topic, "s", earliest))
        await held.has_work()
        before = len(topic.log.ledgers.ids)
        assert topic.subscriptions["s"].pass_over(nth_after(topic.log, EARLIEST, (), 1)) == 1
        trimming = asyncio.ensure_future(trimming_module.trim(topic))
        for _ in range(10):
            await asyncio.sleep(0)
        held.free()
        await asyncio.gather(creating, trimming)
        return before, len(topic.log.ledgers.ids)

    before, after = lab.run(trim())
    assert before == after
    lab.run(lab.topic.trim())
    assert len(lab.topic.log.ledgers.ids) < before
    lab.stop()


def test_a_run_ends_though_its_record_is_not_durable() -> None:
    """And written with the next record that it takes."""
    lab = BrokerLab()
    lab.publish([([Message(b"a", b"1")], False)])
    lab.compactor.failure = CompactionFailed("phase two", "a test wants it")

    def refuse_the_end(call: str) -> None:
        runs = lab.metadata.runs(TOPIC)
        is_left = not lab.files.exists(lab.store.ledger_dir(runs[-1].ledger_id)) if runs else False
        if runs and runs[-1].state == RUN_STATE_RUNNING and is_left and call.startswith("write"):
            lab.files.fail_at(0, error=errno.ENOSPC)

    lab.files.during = refuse_the_end
    run = lab.compact()
    lab.files.during = lambda call: None
    assert run is not None
    history = lab.broker.compaction.history
    assert [each.state for each in history.oldest_first(TOPIC)] == [RUN_STATE_ERROR]
    assert lab.compact() is not None
    assert lab.metadata.runs(TOPIC)[0].state == RUN_STATE_ERROR
    lab.stop()


def test_a_search_by_time_skips_a_ledger_trimmed_meanwhile() -> None:
    lab, held = held_lab()
    lab.files.is_cold = True

    async def search() -> object:
        topic = await lab.broker.topic(TOPIC)
        topic.log._files.executor = held
        searching = asyncio.ensure_future(topic.log.search.first_published_since(1))
        await held.has_work()
        topic.log._files.executor = InlineExecutor()
        await topic.log.drop_ledgers(lambda: topic.log.ledgers.ids[:1], hides_compacted=False)
        held.free()
        return await searching

    assert lab.run(search()) == (lab.topic.log.ledgers.ids[0], 0)
    lab.stop()


def test_a_subscription_survives_its_failed_deletion() -> None:
    """Its consumers may reconnect."""
    lab = BrokerLab()
    topic = lab.topic
    lab.run(create_subscription(topic, "s", LATEST))
    lab.files.fail_at(1, error=errno.EIO)
    with pytest.raises(DiskFailure):
        lab.run(delete_subscription(topic, "s"))

    async def come_back() -> None:
        found = topic.subscriptions["s"]
        found.detach(found.attach(ConsumerOptions(SubscriptionType.EXCLUSIVE)))

    lab.run(come_back())
    lab.run(delete_subscription(topic, "s"))
    assert not topic.subscriptions
    lab.stop()

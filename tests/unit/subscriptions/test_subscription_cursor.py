"""The durable cursor of a subscription: group commit, late writes, restarts, failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ledgerfold.broker.common.clock import Timer, WallClock
from ledgerfold.broker.subscriptions import cursor_writer
from ledgerfold.broker.subscriptions.consumer import ConsumerOptions
from ledgerfold.broker.subscriptions.cursor import Cursor
from ledgerfold.broker.subscriptions.dispatcher import SubscriptionType
from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import (
    Corruption,
    DiskFailure,
    LedgerfoldError,
    SubscriptionBusy,
)
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import CursorRecord
from tests.support.subscription_lab import (
    EXCLUSIVE,
    FROM_EARLIEST,
    SHARED,
    MemoryTopic,
    acknowledge,
    receive,
    run,
    settled,
    subscribed,
    text,
)


def without_delay(topic: MemoryTopic) -> Subscription:
    """Writes cursors, and retries, at the next turn of the loop."""
    subscription = Subscription(
        "t", "s", topic.log, Cursor(Position(0, -1)), topic.persist_cursor, persist_delay_ms=0
    )
    subscription.recorded.is_recorded = True
    topic.subscriptions["s"] = subscription
    return subscription


def test_acks_that_request_an_answer_share_writes() -> None:
    """While a write is in flight others gather; each is answered after the write that has it."""

    async def test(topic: MemoryTopic) -> None:
        positions = topic.log.publish(*(f"k{n}=v" for n in range(10)))
        consumer = await subscribed(topic, EXCLUSIVE)
        subscription = topic.subscriptions["s"]
        await receive(consumer, 10)
        written = len(topic.written)
        topic.may_write.clear()
        topic.writing.clear()
        subscription.acknowledge(consumer, positions[:1], request_id=1)
        await topic.writing.wait()
        for n in range(1, 10):
            subscription.acknowledge(consumer, [positions[n]], request_id=n + 1)
        await settled(topic)
        assert not consumer._acked_request_ids
        topic.may_write.set()
        answered: list[int] = []
        while len(answered) < 10:
            output = await consumer.take()
            assert output is not None
            answered += output.acked_request_ids
        assert answered == list(range(1, 11))
        assert len(topic.written) - written == 2
        assert topic.written[-1].mark_delete.entry_id == 9

    run(test)


def test_acks_without_an_answer_are_written_by_count_and_at_close() -> None:
    """Not one by one; by count, and at close."""

    async def test(topic: MemoryTopic) -> None:
        positions = topic.log.publish(*(f"k{n}=v" for n in range(1_500)))
        consumer = await subscribed(topic, EXCLUSIVE, permits=1_500)
        await receive(consumer, 1_500)
        subscription = topic.subscriptions["s"]
        written = len(topic.written)
        for position in positions:
            subscription.acknowledge(consumer, [position])
        await settled(topic)
        assert len(topic.written) == written + 1
        assert topic.written[-1].mark_delete.entry_id == 1_499
        topic.log.publish("z=1")
        subscription.acknowledge(consumer, [Position(0, 1_500)])
        await settled(topic)
        assert len(topic.written) == written + 1
        await subscription.close()
        assert topic.written[-1].mark_delete.entry_id == 1_500

    run(test)


def test_acks_without_an_answer_are_written_after_a_delay() -> None:
    """The delay is an argument; here it is none."""

    async def test(topic: MemoryTopic) -> None:
        positions = topic.log.publish("a=1")
        subscription = without_delay(topic)
        subscription.acknowledge(subscription.attach(EXCLUSIVE), positions)
        await topic.writing.wait()
        await settled(topic)
        assert topic.written[-1].mark_delete.entry_id == 0

    run(test)


def test_a_crash_redelivers_only_what_was_not_durable() -> None:
    """The cursor of the last write, with its ranges, is where the next consumer begins."""

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish("a=1", "b=1", "c=1", "d=1")
        consumer = await subscribed(topic, SHARED)
        received = await receive(consumer, 4)
        await acknowledge(topic, consumer, [received[0], received[2]])
        topic.subscriptions["s"].acknowledge(consumer, [received[3].position])
        await topic.restart()
        again = await subscribed(topic, EXCLUSIVE)
        assert text(await receive(again, 2)) == "b=1 d=1"

    run(test)


def test_a_refused_write_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    """Consumers keep reading; requested answers follow when the write succeeds."""

    async def test(topic: MemoryTopic) -> None:
        positions = topic.log.publish("a=1", "b=1")
        subscription = without_delay(topic)
        consumer = await subscribed(topic, EXCLUSIVE)
        await receive(consumer, 2)
        topic.error = DiskFailure("metadata", "write", OSError(28, "No space left on device"))
        subscription.acknowledge(consumer, positions[:1], request_id=5)
        topic.log.publish("c=1")
        assert text(await receive(consumer, 1)) == "c=1"
        with pytest.raises(DiskFailure):
            await subscription.persist()
        with pytest.raises(DiskFailure):
            await subscription.persist()
        await settled(topic)
        assert topic.written == []
        topic.error = None
        output = await consumer.take()
        assert output is not None
        assert output.acked_request_ids == [5]
        assert topic.written[-1].mark_delete.entry_id == 0
        assert caplog.text.count("will be retried") == 1

    run(test)


def test_a_failed_creation_is_not_written_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its creator got the error."""

    async def test(topic: MemoryTopic) -> None:
        monkeypatch.setattr(cursor_writer, "WallClock", lambda: topic.clock)
        topic.error = DiskFailure("metadata", "write", OSError(28, "No space left on device"))
        with pytest.raises(DiskFailure):
            await create_subscription(topic, "s", StartPosition(earliest=True))
        topic.error = None
        await topic.clock.move_to(topic.clock.now_ms() + 10 * cursor_writer.DELAY_MS)
        await settled(topic)
        assert topic.written == []

    run(test)


class _Hurried(WallClock):
    """A clock of a busy loop: it makes each delayed call two turns later.

    The writer then begins to write again just before the creator has its error.
    """

    def call_later(self, delay_s: float, call: Callable[[], object]) -> Timer:
        loop = asyncio.get_running_loop()
        return loop.call_soon(loop.call_soon, call)


class _FailsOnce(MemoryTopic):
    """Its disk refuses the first write, with `error`."""

    async def persist_cursor(self, record: CursorRecord) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error
        await super().persist_cursor(record)


@pytest.mark.parametrize("is_deletable", [True, False])
def test_a_failed_creation_leaves_no_cursor_if_its_write_succeeds_later(
    is_deletable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer may try again before the creator has its error.

    Otherwise the cursor would be on disk, and the topic would delete entries that it has not
    passed. If the disk refuses the deletion, the subscription exists.
    """

    class Refusing(_FailsOnce):
        async def delete_cursor(
            self, subscription: str, check: Callable[[], None], deleted: Callable[[], None]
        ) -> None:
            with pytest.raises(DiskFailure):
                # It must not get a subscription that is about to be deleted.
                await create_subscription(self, "s", FROM_EARLIEST)
            if not is_deletable:
                raise DiskFailure("metadata", "write", OSError(28, "No space left on device"))
            await super().delete_cursor(subscription, check, deleted)

    async def test() -> None:
        topic = Refusing()
        topic.error = DiskFailure("metadata", "write", OSError(28, "No space left on device"))
        with pytest.raises(DiskFailure):
            await create_subscription(topic, "s", StartPosition(earliest=True))
        assert len(topic.written) == 1
        assert topic.deleted == (["s"] if is_deletable else [])
        assert list(topic.subscriptions) == ([] if is_deletable else ["s"])
        for subscription in topic.subscriptions.values():
            assert not subscription.is_closed
            await subscription.close(keep_cursor=False)

    monkeypatch.setattr(cursor_writer, "WallClock", _Hurried)
    asyncio.run(test())


def test_a_failed_creation_ends_without_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client may leave while another write ends. A closed subscription would refuse all."""

    async def test() -> None:
        topic = _FailsOnce()
        topic.error = DiskFailure("metadata", "write", OSError(28, "No space left on device"))
        topic.may_write.clear()
        creating = asyncio.create_task(create_subscription(topic, "s", FROM_EARLIEST))
        await topic.writing.wait()
        await settled(topic)
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
        # Another creator meanwhile gets the reason.
        with pytest.raises(DiskFailure):
            await create_subscription(topic, "s", FROM_EARLIEST)
        topic.may_write.set()
        await settled(topic)
        assert (topic.deleted, topic.subscriptions) == (["s"], {})
        await (await create_subscription(topic, "s", FROM_EARLIEST)).close()

    monkeypatch.setattr(cursor_writer, "WallClock", _Hurried)
    asyncio.run(test())


def test_a_closed_subscription_writes_nothing() -> None:
    """It does not repeat refused writes either: the next load may have continued from there."""

    async def test(topic: MemoryTopic) -> None:
        positions = topic.log.publish("a=1")
        subscription = without_delay(topic)
        consumer = await subscribed(topic, EXCLUSIVE)
        await receive(consumer, 1)
        topic.error = DiskFailure("metadata", "write", OSError(28, "No space left on device"))
        subscription.acknowledge(consumer, positions)
        with pytest.raises(DiskFailure):
            await subscription.close()
        topic.error = None
        await settled(topic)
        assert topic.written == []

    run(test)


@pytest.mark.parametrize(
    ("error", "expected"),
    [(Corruption("f", 7, "a", "b"), Corruption), (ValueError("bug"), LedgerfoldError)],
)
def test_a_failed_read_raises_an_error(
    error: Exception, expected: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is skipped: consumers get the error, and again when they reconnect."""

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish("a=1")
        topic.log.error = error
        for _ in range(2):
            consumer = await subscribed(topic, EXCLUSIVE)
            with pytest.raises(expected):
                await consumer.take()
        topic.log.error = None
        assert text(await receive(await subscribed(topic, EXCLUSIVE), 1)) == "a=1"

    run(test)


def test_a_mark_delete_is_durable_with_its_record() -> None:
    """Trimming uses it: entries that a crash brings back must still be there."""

    async def test(topic: MemoryTopic) -> None:
        positions = topic.log.publish("a=1", "b=1", "c=1")
        consumer = await subscribed(topic, EXCLUSIVE)
        subscription = topic.subscriptions["s"]
        before = subscription.mark_delete
        received = await receive(consumer, 3)
        subscription.acknowledge(consumer, [positions[0]])
        assert subscription.mark_delete == positions[0]
        assert subscription.durable_mark_delete == before
        await acknowledge(topic, consumer, received[1:2])
        assert subscription.durable_mark_delete == positions[1]
        assert (await topic.restart()).durable_mark_delete == positions[1]

    run(test)


def test_a_backward_seek_protects_its_entries_before_it_is_durable() -> None:
    """At once, also while it waits for an earlier write. What is passed over meanwhile is not."""

    async def test(topic: MemoryTopic) -> None:
        positions = topic.log.publish("a=1", "b=1", "c=1")
        consumer = await subscribed(topic, EXCLUSIVE)
        await acknowledge(topic, consumer, (await receive(consumer, 3))[:2])
        subscription = topic.subscriptions["s"]
        topic.may_write.clear()
        topic.writing.clear()
        writing = asyncio.create_task(subscription.persist())
        await topic.writing.wait()
        moving = asyncio.create_task(subscription.move(positions[0]))
        await settled(topic)
        subscription.pass_over(positions[2])
        assert subscription.durable_mark_delete == positions[0]
        topic.may_write.set()
        await asyncio.gather(writing, moving)
        await subscription.persist()
        assert subscription.mark_delete == subscription.durable_mark_delete == positions[0]

    run(test)


@pytest.mark.parametrize("seek_is_first", [True, False])
def test_a_seek_overrides_what_is_passed_during_its_write(seek_is_first: bool) -> None:
    """On disk as in memory, whichever begins first."""

    async def test(topic: MemoryTopic) -> None:
        positions = topic.log.publish("a=1", "b=1", "c=1")
        await subscribed(topic, EXCLUSIVE)
        subscription = topic.subscriptions["s"]
        topic.may_write.clear()
        topic.writing.clear()
        works = [subscription.move(positions[0]), subscription.pass_over_durably(lambda: target)]
        target = positions[1]
        tasks = []
        for work in works if seek_is_first else reversed(works):
            tasks.append(asyncio.create_task(work))
            await topic.writing.wait()
            await settled(topic)
        topic.may_write.set()
        await asyncio.gather(*tasks)
        assert subscription.mark_delete == subscription.durable_mark_delete == positions[0]
        assert topic.written[-1].mark_delete.entry_id == positions[0].entry_id

    run(test)


def test_concurrent_moves_of_a_subscription_are_refused() -> None:
    """A second seek during the write of the first is rejected."""

    async def test(topic: MemoryTopic) -> None:
        positions = topic.log.publish("a=1", "b=1")
        await subscribed(topic, EXCLUSIVE)
        subscription = topic.subscriptions["s"]
        topic.may_write.clear()
        topic.writing.clear()
        moving = asyncio.create_task(subscription.move(positions[0]))
        await topic.writing.wait()
        with pytest.raises(SubscriptionBusy, match="being moved"):
            await subscription.move(positions[1])
        topic.may_write.set()
        await moving
        assert subscription.durable_mark_delete == positions[0]

    run(test)


def test_a_failed_write_is_not_durable() -> None:
    async def test(topic: MemoryTopic) -> None:
        positions = topic.log.publish("a=1")
        await subscribed(topic, EXCLUSIVE)
        subscription = topic.subscriptions["s"]
        before = subscription.durable_mark_delete
        topic.error = DiskFailure("metadata", "write", OSError(28, "No space left on device"))
        subscription.pass_over(positions[0])
        with pytest.raises(DiskFailure):
            await subscription.persist()
        assert subscription.durable_mark_delete == before
        topic.error = None
        await subscription.persist()
        assert subscription.durable_mark_delete == positions[0]

    run(test)


def test_a_durable_subscription_survives_a_later_failed_write() -> None:
    """Two consumers ask for a new subscription at once. The first write of its cursor is durable,
    and the one that the second consumer waits for fails.
    """

    async def test(topic: MemoryTopic) -> None:
        topic.may_write.clear()
        first = asyncio.create_task(create_subscription(topic, "s", StartPosition()))
        await topic.writing.wait()
        second = asyncio.create_task(create_subscription(topic, "s", StartPosition()))
        await settled(topic)
        topic.writing.clear()
        topic.may_write.set()
        topic.may_write.clear()
        await topic.writing.wait()
        # The first write has ended well, and the second one is in progress.
        topic.error = DiskFailure("metadata", "write", OSError(28, "No space left on device"))
        topic.may_write.set()
        subscription = await first
        with pytest.raises(DiskFailure):
            await second
        assert topic.subscriptions["s"] is subscription
        assert not subscription.is_closed

    run(test)


def test_without_a_record_the_mark_delete_counts_as_durable() -> None:
    async def test(topic: MemoryTopic) -> None:
        positions = topic.log.publish("a=1")
        await subscribed(topic, ConsumerOptions(SubscriptionType.EXCLUSIVE, durable=False))
        subscription = topic.subscriptions["s"]
        subscription.pass_over(positions[0])
        assert subscription.durable_mark_delete == positions[0]

    run(test)

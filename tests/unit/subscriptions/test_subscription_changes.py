"""Seek, close, create and delete; statistics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ledgerfold.broker.common.traffic import Peer
from ledgerfold.broker.stats.subscription import describe, describe_cursor
from ledgerfold.broker.subscriptions.consumer import ConsumerOptions
from ledgerfold.broker.subscriptions.dispatcher import SubscriptionType
from ledgerfold.broker.subscriptions.lifecycle import (
    create_subscription,
    delete_subscription,
    seek_subscription,
)
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import (
    DiskFailure,
    Moved,
    SubscriptionBusy,
    SubscriptionNotFound,
)
from tests.support.subscription_lab import (
    COMPACTED,
    EXCLUSIVE,
    FROM_EARLIEST,
    MemoryTopic,
    acknowledge,
    at,
    receive,
    run,
    settled,
    subscribed,
    text,
)


def test_rte_19_seek_below_the_horizon_keeps_its_target() -> None:
    """Consumers are sent away with Moved, refused meanwhile, and find the exact place."""

    async def test(topic: MemoryTopic) -> None:
        positions = topic.log.publish(*(f"k{n}={n}" for n in range(10)))
        topic.log.compact(*positions)
        topic.log.roll()
        topic.log.trim(ledgers_before=1)
        for inclusive, expected in ((False, 5), (True, 4)):
            consumer = await subscribed(topic, COMPACTED)
            topic.may_write.clear()
            topic.writing.clear()
            seek = asyncio.create_task(seek_subscription(topic, "s", at(positions[4], inclusive)))
            await topic.writing.wait()
            with pytest.raises(Moved):
                await consumer.take()
            with pytest.raises(SubscriptionBusy, match="being moved"):
                await subscribed(topic, COMPACTED)
            topic.may_write.set()
            await seek
            again = await subscribed(topic, COMPACTED)
            assert text(await receive(again, 10 - expected)).startswith(f"k{expected}=")
            topic.subscriptions["s"].detach(again)

    run(test)


def test_a_seek_during_a_deletion_is_not_confirmed() -> None:
    """Its write never begins: a crash before the deletion would bring the old position back.

    The simulator found it (in one of 9,000 seeds): a seek during a write of the cursor, then a
    deletion, which stops all writes. Unit tests had each pair of the three, not all of them.
    """

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish("a=1", "b=1")
        await subscribed(topic, EXCLUSIVE)
        subscription = topic.subscriptions["s"]
        topic.may_write.clear()
        topic.writing.clear()
        written = len(topic.written)
        first = asyncio.create_task(subscription.persist())
        await topic.writing.wait()
        seek = asyncio.create_task(seek_subscription(topic, "s", FROM_EARLIEST))
        await settled(topic)
        deletion = asyncio.create_task(delete_subscription(topic, "s", force=True))
        await asyncio.sleep(0)
        topic.may_write.set()
        with pytest.raises(SubscriptionNotFound):
            await seek
        await asyncio.gather(first, deletion)
        assert len(topic.written) == written + 1

    run(test)


@pytest.mark.parametrize("target", [0, 4])
def test_a_seek_that_cannot_be_written_has_no_effect(target: int) -> None:
    """Acknowledgements remain, and are written when there is room."""

    async def test(topic: MemoryTopic) -> None:
        positions = topic.log.publish("a=1", "b=1", "c=1", "d=1", "e=1")
        consumer = await subscribed(topic, EXCLUSIVE)
        received = await receive(consumer, 5)
        await acknowledge(topic, consumer, [*received[:2], received[3]])
        subscription = topic.subscriptions["s"]
        incarnation, cursor = subscription.incarnation, str(topic.written[-1])
        topic.error = DiskFailure("metadata", "write", OSError(28, "No space left on device"))
        with pytest.raises(DiskFailure):
            await seek_subscription(topic, "s", at(positions[target], inclusive=False))
        assert subscription.incarnation == incarnation
        assert text(await receive(await subscribed(topic, EXCLUSIVE), 2)) == "c=1 e=1"
        topic.error = None
        await subscription.persist()
        assert str(topic.written[-1]) == cursor
        assert subscription.durable_mark_delete == positions[1]

    run(test)


def test_seek_to_the_first_entry_of_a_ledger() -> None:
    """It is exact: the mark-delete is the end of the ledger before, not (L, -1)."""

    async def test(topic: MemoryTopic) -> None:
        first = topic.log.publish("a=1", "b=1")
        topic.log.roll()
        second = topic.log.publish("c=1")
        topic.log.compact(*first, *second)
        await subscribed(topic, COMPACTED)
        await seek_subscription(topic, "s", at(second[0], inclusive=True))
        assert topic.subscriptions["s"].mark_delete == first[-1]
        assert text(await receive(await subscribed(topic, COMPACTED), 1)) == "c=1"

    run(test)


def test_rte_01_seek_earliest_applies_to_each_consumers_view() -> None:
    """Read-compacted: the survivors; without: the raw log."""

    async def test(topic: MemoryTopic) -> None:
        positions = topic.log.publish("k=0", "k=1", "k=2")
        topic.log.compact(positions[2])
        for options, expected in ((COMPACTED, "k=2"), (EXCLUSIVE, "k=0 k=1 k=2")):
            consumer = await subscribed(topic, options)
            received = await receive(consumer, len(expected.split()))
            await acknowledge(topic, consumer, received)
            await seek_subscription(topic, "s", FROM_EARLIEST)
            again = await subscribed(topic, options)
            assert text(await receive(again, len(received))) == expected
            topic.subscriptions["s"].detach(again)

    run(test)


def test_a_non_durable_subscription_survives_a_seek_and_ends_with_its_last_consumer() -> None:
    """It writes nothing; a seek sends its consumer away and keeps the place for its return."""

    async def test(topic: MemoryTopic) -> None:
        positions = topic.log.publish("a=1", "b=1", "c=1")
        options = ConsumerOptions(SubscriptionType.EXCLUSIVE, durable=False, read_compacted=True)
        consumer = await subscribed(topic, options)
        received = await receive(consumer, 3)
        await acknowledge(topic, consumer, received)
        subscription = topic.subscriptions["s"]
        await seek_subscription(topic, "s", at(positions[1], inclusive=True))
        assert not subscription.is_abandoned
        again = await subscribed(topic, options)
        assert text(await receive(again, 2)) == "b=1 c=1"
        subscription.detach(again)
        assert subscription.is_abandoned
        assert topic.written == []

    run(test)


def test_close_ends_consumers_and_keeps_the_cursor() -> None:
    """Consumers get the error, or Moved; new ones are refused."""

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish("a=1")
        consumer = await subscribed(topic, EXCLUSIVE)
        received = await receive(consumer, 1)
        subscription = topic.subscriptions["s"]
        subscription.acknowledge(consumer, [received[0].position])
        await subscription.close()
        assert topic.written[-1].mark_delete.entry_id == 0
        with pytest.raises(Moved):
            await consumer.take()
        with pytest.raises(Moved):
            subscription.attach(EXCLUSIVE)

    run(test)


def test_delete_refuses_while_consumers_are_connected_unless_forced() -> None:
    """The cursor is deleted durably, and not written again."""

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish("a=1")
        consumer = await subscribed(topic, EXCLUSIVE)
        received = await receive(consumer, 1)
        with pytest.raises(SubscriptionBusy, match="force"):
            await delete_subscription(topic, "s")
        topic.subscriptions["s"].acknowledge(consumer, [received[0].position])
        written = len(topic.written)
        await delete_subscription(topic, "s", force=True)
        assert (topic.deleted, topic.subscriptions, len(topic.written)) == (["s"], {}, written)
        with pytest.raises(SubscriptionNotFound):
            await delete_subscription(topic, "s")

    run(test)


def test_a_failed_deletion_does_not_affect_the_next_subscription() -> None:
    """Another call may have deleted it, and a third made it again. A disk may refuse the deletion,
    also while others connect.
    """

    class Overtaken(MemoryTopic):
        async def delete_cursor(
            self, subscription: str, check: Callable[[], None], deleted: Callable[[], None]
        ) -> None:
            del self.subscriptions[subscription]
            self.made = await create_subscription(self, subscription, FROM_EARLIEST)
            raise DiskFailure("metadata", "A metadata write", OSError(28, "full"))

    async def test() -> None:
        topic = Overtaken()
        await create_subscription(topic, "s", FROM_EARLIEST)
        with pytest.raises(DiskFailure):
            await delete_subscription(topic, "s")
        assert topic.subscriptions["s"] is topic.made
        await topic.made.close(keep_cursor=False)

    asyncio.run(test())


def test_two_creators_get_one_subscription() -> None:
    """A second request during the first one's write uses the same subscription."""

    async def test(topic: MemoryTopic) -> None:
        both = await asyncio.gather(
            create_subscription(topic, "s", at(Position(0, 0), inclusive=True)),
            create_subscription(topic, "s", at(Position(0, 0), inclusive=True)),
        )
        assert both[0] is both[1]
        topic.error = DiskFailure("metadata", "write", OSError(28, "No space left on device"))
        with pytest.raises(DiskFailure):
            await create_subscription(topic, "other", FROM_EARLIEST)
        assert list(topic.subscriptions) == ["s"]

    run(test)


@pytest.mark.parametrize("fails", [False, True])
def test_a_subscription_deleted_during_its_creation_leaves_no_cursor(fails: bool) -> None:
    """Its creator leaves it to the deletion: the cursor is on disk, or will be.

    Unit tests had deleted subscriptions whose first write had begun, never before that.
    """

    class Slow(MemoryTopic):
        async def delete_cursor(
            self, subscription: str, check: Callable[[], None], deleted: Callable[[], None]
        ) -> None:
            await settled(self)
            await super().delete_cursor(subscription, check, deleted)

    async def test() -> None:
        topic = Slow()
        if fails:
            # It may be on disk nevertheless.
            topic.error = DiskFailure("metadata", "write", OSError(5, "Input/output error"))
        creation = asyncio.create_task(create_subscription(topic, "s", FROM_EARLIEST))
        deletion = asyncio.create_task(delete_subscription(topic, "s"))
        with pytest.raises(DiskFailure if fails else SubscriptionNotFound):
            await creation
        await deletion
        assert (topic.deleted, topic.subscriptions) == (["s"], {})

    asyncio.run(test())


def test_stats_have_pulsars_names() -> None:
    """Backlog in entries, messages out, the consumer's permits, and the cursor's positions."""

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish("a=1 a=2", "b=1", "c=1")
        consumer = await subscribed(topic, ConsumerOptions(SubscriptionType.SHARED, name="me"))
        consumer.peer = Peer("[::1]:99", 1_000, {"team": "prices"})
        received = await receive(consumer, 3)
        consumer.traffic.last_sent_ms = 2_000
        await acknowledge(topic, consumer, [received[0], received[2]])
        subscription = topic.subscriptions["s"]
        stats = describe(subscription)
        size_bytes = sum(len(each.entry) for each in received)
        sent = {
            "msgOutCounter": 4,
            "bytesOutCounter": size_bytes,
            "lastConsumedTimestamp": 2_000,
            "lastAckedTimestamp": 0,
            "lastConsumedFlowTimestamp": 0,
        }
        assert stats == sent | {
            "subscriptionProperties": {},
            "msgBacklog": 1,
            "msgBacklogNoDelayed": 1,
            "msgDelayed": 0,
            "msgInReplay": 0,
            "blockedSubscriptionOnUnackedMsgs": False,
            "unackedMessages": 1,
            "totalMsgExpired": 0,
            "lastExpireTimestamp": 0,
            "lastMarkDeleteAdvancedTimestamp": subscription.recorded.advanced_ms,
            "isDurable": True,
            "type": "Shared",
            "nonContiguousDeletedMessagesRanges": 1,
            "consumers": [
                sent
                | {
                    "consumerName": "me",
                    "availablePermits": 996,
                    "unackedMessages": 1,
                    "blockedConsumerOnUnackedMsgs": False,
                    "avgMessagesPerEntry": 1,
                    "readCompacted": False,
                    # It has requested the entries after them.
                    "unsentBytes": 0,
                    "address": "/[::1]:99",
                    "connectedSince": "1970-01-01T00:00:01.000Z",
                    "metadata": {"team": "prices"},
                }
            ],
        }
        assert describe_cursor(subscription) == {
            "markDeletePosition": "0:0",
            "readPosition": "0:3",
            "numberOfEntriesSinceFirstNotAckedMessage": 3,
            "individuallyDeletedMessages": "[(0:1..0:2]]",
            "totalNonContiguousDeletedMessagesRange": 1,
            "active": True,
            "state": "Open",
            "properties": {},
        }
        subscription.detach(consumer)
        assert describe(subscription).items() >= sent.items()
        assert not describe_cursor(subscription)["active"]

    run(test)

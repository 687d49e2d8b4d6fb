"""The shared parts of tests of subscriptions: a topic in memory, and a consumer's steps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ledgerfold.broker.common.clock import ManualClock
from ledgerfold.broker.common.outgoing import Outgoing
from ledgerfold.broker.common.traffic import Traffic
from ledgerfold.broker.faults.faults import Faults
from ledgerfold.broker.policies.profiles import Emulation
from ledgerfold.broker.subscriptions.consumer import Consumer, ConsumerOptions, Delivery
from ledgerfold.broker.subscriptions.delivery import DeliveryRules
from ledgerfold.broker.subscriptions.dispatcher import SubscriptionType
from ledgerfold.broker.subscriptions.lifecycle import (
    create_subscription,
    load_subscription,
)
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import Position
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import CursorRecord, MessageId
from tests.support.memory_log import MemoryLog
from tests.support.waiting import WAIT_S

EXCLUSIVE = ConsumerOptions(SubscriptionType.EXCLUSIVE)
FAILOVER = ConsumerOptions(SubscriptionType.FAILOVER)
SHARED = ConsumerOptions(SubscriptionType.SHARED)
KEY_SHARED = ConsumerOptions(SubscriptionType.KEY_SHARED)
COMPACTED = ConsumerOptions(SubscriptionType.EXCLUSIVE, read_compacted=True)
FROM_EARLIEST = StartPosition(earliest=True)


class MemoryTopic:
    """A topic whose cursor records are kept in a list; a test may hold writes, or fail them."""

    def __init__(self, name: str = "t") -> None:
        self.name = name
        self.is_loaded = True
        self.profile = Emulation()
        self.log: Any = MemoryLog()
        self.delivery_rules = DeliveryRules()
        self.clock, self.outgoing = ManualClock(1_000), Outgoing()
        self.faults: Faults | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.reader_names: set[str] = set()
        self.written: list[CursorRecord] = []
        self.deleted: list[str] = []
        self.incarnations = 0
        self.sent = Traffic()
        self.error: Exception | None = None
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.writing = asyncio.Event()

    def emulation(self) -> Emulation:
        return self.profile

    def count_out(self, sent: Traffic) -> None:
        self.sent = self.sent.plus(sent)

    def new_incarnation(self) -> int:
        self.incarnations += 1
        return self.incarnations

    async def persist_cursor(self, record: CursorRecord) -> None:
        self.writing.set()
        await self.may_write.wait()
        if self.error is not None:
            raise self.error
        self.written.append(record)

    def recorded_cursor(self, subscription: str) -> CursorRecord | None:
        return self.written[-1] if self.written else None

    async def delete_cursor(
        self, subscription: str, check: Callable[[], None], deleted: Callable[[], None]
    ) -> None:
        check()
        self.deleted.append(subscription)
        deleted()

    async def restart(self, name: str = "s") -> Subscription:
        """Restarts as after a crash: only the last write remains."""
        old = self.subscriptions.pop(name)
        await old.close(keep_cursor=False)
        self.subscriptions[name] = load_subscription(self, self.written[-1])
        return self.subscriptions[name]


def run(test: Callable[[MemoryTopic], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        topic = MemoryTopic()
        async with asyncio.timeout(WAIT_S):
            await test(topic)
            for subscription in topic.subscriptions.values():
                await subscription.close(keep_cursor=False)

    asyncio.run(all_of_it())


async def subscribed(
    topic: MemoryTopic, options: ConsumerOptions, *, permits: int = 1_000
) -> Consumer:
    """Returns a consumer of subscription s, which begins at earliest when it is new."""
    subscription = await create_subscription(
        topic, "s", FROM_EARLIEST, durable=options.durable, read_compacted=options.read_compacted
    )
    consumer = subscription.attach(options)
    subscription.add_permits(consumer, permits)
    return consumer


async def receive(consumer: Consumer, count: int) -> list[Delivery]:
    """The next `count` deliveries, and not one more."""
    received: list[Delivery] = []
    while len(received) < count:
        output = await consumer.take()
        assert output is not None
        received += output.deliveries
    assert len(received) == count
    return received


async def quiet(topic: MemoryTopic, consumer: Consumer) -> None:
    """Returns when the pump has nothing more to do; `consumer` got nothing."""
    await settled(topic)
    assert not consumer._deliveries


async def settled(topic: MemoryTopic) -> None:
    """Lets the loop turn until no read has begun for a while."""
    before = -1
    while before != len(topic.log.read_at):
        before = len(topic.log.read_at)
        for _ in range(20):
            await asyncio.sleep(0)


def text(deliveries: list[Delivery]) -> str:
    """ "a=1 b=2": all messages of the entries."""
    messages = [message for each in deliveries for message in decode(each.entry).messages()]
    return " ".join(f"{(m.key or b'').decode()}={m.value.decode()}" for m in messages)


async def acknowledge(topic: MemoryTopic, consumer: Consumer, deliveries: list[Delivery]) -> None:
    """Durably, one by one."""
    subscription = topic.subscriptions["s"]
    subscription.acknowledge(consumer, [each.position for each in deliveries], request_id=99)
    output = await consumer.take()
    assert output is not None
    assert output.acked_request_ids == [99]


def backlog(topic: MemoryTopic) -> int:
    return topic.subscriptions["s"].backlog_entries()


def at(position: Position, inclusive: bool) -> StartPosition:
    message_id = MessageId(
        ledger_id=position.ledger_id, entry_id=position.entry_id, batch_index=-1, partition=-1
    )
    return StartPosition(message_id=message_id, inclusive=inclusive)

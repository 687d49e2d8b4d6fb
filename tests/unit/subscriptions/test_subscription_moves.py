"""Expiry, skip and clear-backlog: which entries a cursor passes, on a broker moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from ledgerfold.broker.stats.subscription import describe
from ledgerfold.broker.subscriptions.consumer import Consumer, ConsumerOptions
from ledgerfold.broker.subscriptions.cursor import Cursor, Range
from ledgerfold.broker.subscriptions.cursor_operations import (
    clear_backlog,
    closed_before,
    expire_all,
    expire_messages,
    expire_through,
    nth_after,
    skip_messages,
)
from ledgerfold.broker.subscriptions.dispatcher import SubscriptionType
from ledgerfold.broker.subscriptions.lifecycle import create_subscription, seek_subscription
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.storage.entry import EARLIEST, LATEST, Position
from ledgerfold.storage.errors import DiskFailure, InvalidRequest, NothingExpired
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_CLOSED,
    LEDGER_STATE_OPEN,
    CursorRecord,
    LedgerRecord,
    Policies,
)
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.subscription_lab import receive

MINUTE_MS = 60_000


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def publish(lab: BrokerLab, count: int) -> list[Position]:
    return lab.publish([([Message(b"a", b"%d" % number)], False) for number in range(count)])


def subscribe(lab: BrokerLab, name: str = "s") -> Subscription:
    start = StartPosition(earliest=True)
    return lab.run(create_subscription(lab.topic, name, start))


async def connected(subscription: Subscription) -> Consumer:
    return subscription.attach(ConsumerOptions(SubscriptionType.EXCLUSIVE))


def backlog(subscription: Subscription) -> int:
    return subscription.backlog_entries()


# Expiry


def test_only_expired_messages_are_skipped(lab: BrokerLab) -> None:
    """Entries are compared with the limit one by one, across ledgers; stats tell of it."""
    subscription = subscribe(lab)
    old = publish(lab, 4)
    lab.run(lab.topic.log.tail.roll())
    old += publish(lab, 2)
    lab.clock.now_ms()
    lab.run(lab.clock.move_to(lab.clock.now_ms() + MINUTE_MS))
    publish(lab, 3)
    assert lab.run(expire_messages(lab.topic, subscription, MINUTE_MS)) == 6
    assert (subscription.mark_delete, backlog(subscription)) == (old[-1], 3)
    stats = describe(subscription)
    assert stats["totalMsgExpired"] == 6
    assert lab.clock.now_ms() - stats["lastExpireTimestamp"] < 1_000


def test_messages_expire_up_to_a_message(lab: BrokerLab) -> None:
    """Across ledgers, durably, and never backwards."""
    subscription = subscribe(lab)
    first = publish(lab, 3)
    lab.run(lab.topic.log.tail.roll())
    second = publish(lab, 2)

    def expire(through: Position) -> int:
        return lab.run(expire_through(lab.topic, subscription, through))

    # After the end of its ledger.
    assert expire(Position(first[0].ledger_id, 99)) == 3
    assert subscription.mark_delete == first[-1]
    assert expire(first[0]) == expire(EARLIEST) == expire(Position(second[0].ledger_id, -1)) == 0
    assert expire(second[0]) == 1
    (stored,) = lab.metadata.cursors(TOPIC)
    assert (stored.mark_delete.ledger_id, stored.mark_delete.entry_id) == second[0]
    for beyond in (second[-1].next, LATEST):
        with pytest.raises(NothingExpired, match="after the last one"):
            expire(beyond)
    assert (subscription.mark_delete, backlog(subscription)) == (second[0], 1)


def test_expiry_is_durable(lab: BrokerLab) -> None:
    """After the answer, a crash restores none of the entries."""
    subscribe(lab)
    publish(lab, 1)
    lab.advance(MINUTE_MS)
    assert lab.run(expire_all(lab.topic, 1_000)) == 1
    (stored,) = lab.metadata.cursors(TOPIC)
    assert stored.mark_delete.entry_id == 0


@pytest.mark.parametrize(
    ("to", "remaining"), [(StartPosition(earliest=True), 4), (StartPosition(latest=True), 0)]
)
def test_a_seek_during_the_search_wins(
    lab: BrokerLab, to: StartPosition, remaining: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The expiry does not pass again what the cursor had passed before the seek."""
    subscription, topic = subscribe(lab), lab.topic
    positions = publish(lab, 4)
    subscription.pass_over(positions[1])
    found, has_moved = asyncio.Event(), asyncio.Event()
    search = topic.log.search.last_published_before

    async def search_slowly(before_ms: int, passed: Position) -> Position:
        position = await search(before_ms, passed)
        found.set()
        await has_moved.wait()
        return position

    monkeypatch.setattr(topic.log.search, "last_published_before", search_slowly)

    async def body() -> int:
        expiring = asyncio.create_task(expire_all(topic, MINUTE_MS))
        await found.wait()
        await seek_subscription(topic, "s", to)
        has_moved.set()
        return await expiring

    assert lab.run(body()) == 0
    assert backlog(subscription) == remaining


def test_a_closed_ledger_expires_by_its_close_time() -> None:
    """A producer's clock may lie years ahead; an open ledger has no end yet."""

    def ledger(ledger_id: int, closed_ms: int) -> LedgerRecord:
        state = LEDGER_STATE_CLOSED if closed_ms else LEDGER_STATE_OPEN
        record = LedgerRecord(ledger_id=ledger_id, state=state, closed_ms=closed_ms)
        segment = record.segments.add(entries=3)
        segment.last.ledger_id, segment.last.entry_id = ledger_id, 2
        return record

    records = [ledger(1, 100), ledger(2, 200), ledger(5, 300), ledger(6, 0)]
    assert closed_before(records, 100, EARLIEST) == EARLIEST
    assert closed_before(records, 101, EARLIEST) == Position(1, 2)
    assert closed_before(records, 250, Position(1, 1)) == Position(2, 2)
    assert closed_before(records, 250, Position(2, 2)) == Position(2, 2)
    assert closed_before(records, 10_000, EARLIEST) == Position(5, 2)


def test_ttl_applies_to_every_subscription_at_the_check(lab: BrokerLab) -> None:
    """0 is off. Then unneeded ledgers are trimmed."""
    first, second = subscribe(lab, "first"), subscribe(lab, "second")
    publish(lab, 2)
    lab.run(lab.topic.log.tail.roll())
    lab.topic.record.policies.CopyFrom(Policies(message_ttl_ms=0))
    lab.advance(10 * MINUTE_MS)
    assert (backlog(first), backlog(second)) == (2, 2)
    lab.topic.record.policies.CopyFrom(Policies(message_ttl_ms=MINUTE_MS))
    publish(lab, 1)
    lab.advance(1)
    assert (backlog(first), backlog(second)) == (1, 1)
    assert len(lab.topic.log.ledgers.ids) == 1
    lab.advance(MINUTE_MS)
    assert (backlog(first), backlog(second)) == (0, 0)


def test_ret_05_expiry_keeps_what_no_compaction_has_read(lab: BrokerLab) -> None:
    """Compacted K1=V1 K2=V2; then K1=V3 K2=V4 expire: their ledger stays for the next run."""
    subscription = subscribe(lab)

    def send(key: bytes, value: bytes) -> None:
        lab.publish([([Message(key, value)], False)])

    send(b"K1", b"V1")
    send(b"K2", b"V2")
    lab.compact()
    send(b"K1", b"V3")
    send(b"K2", b"V4")
    lab.advance(2_000)
    assert lab.run(expire_all(lab.topic, 1_000)) == 4
    assert backlog(subscription) == 0
    lab.run(lab.broker.unload_topic(lab.topic.name))
    records = lab.topic.log.ledgers.records()
    assert sum(segment.entries for record in records for segment in record.segments) == 4
    send(b"K3", b"V5")
    lab.compact()
    found = [read.message.value for read in lab.read(EARLIEST, read_compacted=True)]
    assert found == [b"V3", b"V4", b"V5"]


def test_expiry_without_effect_is_refused(lab: BrokerLab) -> None:
    """No backlog; or a connected consumer that has nearly caught up, and nothing has expired."""
    subscription = subscribe(lab)
    with pytest.raises(NothingExpired, match="no backlog"):
        lab.run(expire_messages(lab.topic, subscription, MINUTE_MS))
    publish(lab, 1)
    assert lab.run(expire_messages(lab.topic, subscription, MINUTE_MS)) == 0
    consumer = lab.run(connected(subscription))
    with pytest.raises(NothingExpired, match="nearly caught up"):
        lab.run(expire_messages(lab.topic, subscription, MINUTE_MS))
    assert lab.run(expire_all(lab.topic, MINUTE_MS)) == 0
    subscription.detach(consumer)


@pytest.mark.parametrize("limit_ms", [0, -1])
def test_an_invalid_limit_is_refused(lab: BrokerLab, limit_ms: int) -> None:
    subscription = subscribe(lab)
    publish(lab, 1)
    with pytest.raises(InvalidRequest, match="1 ms or more"):
        lab.run(expire_messages(lab.topic, subscription, limit_ms))
    with pytest.raises(InvalidRequest, match="1 ms or more"):
        lab.run(expire_all(lab.topic, limit_ms))


@pytest.mark.parametrize("type_", list(SubscriptionType))
def test_consumers_stay_connected_and_get_later_messages(
    lab: BrokerLab, type_: SubscriptionType
) -> None:
    """The messages that they already hold may be finished; they are not delivered again."""
    subscription, topic = subscribe(lab), lab.topic
    publish(lab, 3)

    async def body() -> None:
        consumer = subscription.attach(ConsumerOptions(type_))
        subscription.add_permits(consumer, 2)
        assert len(await receive(consumer, 2)) == 2
        assert await clear_backlog(topic, subscription) == 3
        subscription.redeliver(consumer, [])
        subscription.add_permits(consumer, 10)
        later = await lab.publishing([([Message(b"b", b"1")], False)])
        assert [each.position for each in await receive(consumer, 1)] == later
        subscription.detach(consumer)

    lab.run(body())


# Skip and clear-backlog


@pytest.mark.parametrize("how", ["skip", "clear", "expire"])
def test_messages_are_not_passed_if_that_cannot_be_written(lab: BrokerLab, how: str) -> None:
    """A client that tries again does not skip twice. Acknowledgements meanwhile count."""
    subscription, topic = subscribe(lab), lab.topic
    positions = publish(lab, 5)
    lab.advance(MINUTE_MS)
    persist, is_full = topic.persist_cursor, True

    async def write(record: CursorRecord) -> None:
        if is_full:
            raise DiskFailure("metadata", "write", OSError(28, "No space left on device"))
        await persist(record)

    subscription.recorded._persist = write

    def passing() -> Coroutine[Any, Any, int]:
        if how == "skip":
            return skip_messages(topic, subscription, 2)
        return clear_backlog(topic, subscription) if how == "clear" else expire_all(topic, 1_000)

    async def passing_twice() -> list[int]:
        return list(await asyncio.gather(passing(), passing()))

    with pytest.raises(DiskFailure):
        lab.run(passing())
    assert (backlog(subscription), subscription.mark_delete) == (5, EARLIEST)
    subscription.cursor.acknowledge(positions[1])
    is_full = False
    assert lab.run(passing_twice()) == ([2, 2] if how == "skip" else [4, 0])
    (stored,) = lab.metadata.cursors(TOPIC)
    assert Cursor.from_record(stored).mark_delete == subscription.mark_delete == positions[-1]


def test_skip_counts_the_entries_of_the_backlog(lab: BrokerLab) -> None:
    """As many as there are, at most; and it is durable."""
    subscription = subscribe(lab)
    positions = publish(lab, 9)
    assert lab.run(skip_messages(lab.topic, subscription, 7)) == 7
    assert subscription.mark_delete == positions[6]
    assert lab.run(skip_messages(lab.topic, subscription, 7)) == 2
    assert (subscription.mark_delete, backlog(subscription)) == (positions[-1], 0)
    assert lab.run(skip_messages(lab.topic, subscription, 7)) == 0
    with pytest.raises(InvalidRequest):
        lab.run(skip_messages(lab.topic, subscription, 0))


def test_acknowledged_messages_are_not_counted(lab: BrokerLab) -> None:
    positions = publish(lab, 6)
    for acknowledged, count, expected in (
        ([], 2, 1),
        ([1], 2, 2),
        ([0, 1], 1, 2),
        ([2, 3], 3, 4),
        ([1, 3], 3, 4),
        ([1, 3], 99, 5),
    ):
        ranges = [Range(_before(positions[each]), positions[each]) for each in acknowledged]
        found = nth_after(lab.topic.log, EARLIEST, ranges, count)
        assert found == positions[expected], (acknowledged, count)


def _before(position: Position) -> Position:
    return Position(position.ledger_id, position.entry_id - 1)

"""Tests the effects of time alone on a topic, on a whole broker with a manual clock."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.log.tail import LogTail
from ledgerfold.broker.subscriptions.cursor_writer import DELAY_MS
from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import DiskFailure, TopicNotFound
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import RUN_TRIGGER_THRESHOLD, Emulation, Policies
from tests.model.broker_lab import DATA, STORE, TOPIC, BrokerLab
from tests.model.log_model import Message

ENTRY = ([Message(b"a", b"1")], False)
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def set_policies(lab: BrokerLab, policies: Policies) -> None:
    lab.topic.record.policies.CopyFrom(policies)


def test_an_open_ledger_reaches_its_age_limit_without_publishing(lab: BrokerLab) -> None:
    """At its maximum age it is closed and another begins; an empty one stays."""
    lab.publish([ENTRY])
    first = lab.topic.log.ledgers.ids[-1]
    lab.advance(STORE.ledger_age_max_ms - MINUTE_MS)
    assert lab.topic.log.ledgers.ids[-1] == first
    lab.advance(MINUTE_MS)
    second = lab.topic.log.ledgers.ids[-1]
    assert second != first
    lab.advance(10 * STORE.ledger_age_max_ms)
    assert list(lab.topic.log.ledgers.ids) == [first, second]
    assert len(lab.read(EARLIEST, read_compacted=False)) == 1


def test_retention_by_time_counts_from_the_close_of_the_ledger(lab: BrokerLab) -> None:
    """Unneeded ledgers stay until they are older than the limit, and are deleted then."""
    set_policies(
        lab,
        Policies(
            retention_ms=HOUR_MS,
            retention_bytes=-1,
            emulation=Emulation(trim_without_cursor=True),
        ),
    )
    lab.publish([ENTRY])
    lab.run(lab.topic.log.tail.roll())
    lab.advance(HOUR_MS - MINUTE_MS)
    assert len(lab.read(EARLIEST, read_compacted=False)) == 1
    lab.advance(2 * MINUTE_MS)
    assert lab.read(EARLIEST, read_compacted=False) == []


def test_the_checks_run_at_their_interval_by_the_brokers_clock(lab: BrokerLab) -> None:
    """Moving the clock by the interval is enough."""
    interval_ms = BrokerSettings(data_dir=DATA).retention_check_interval_ms
    lab.publish([ENTRY])
    lab.run(lab.topic.log.tail.roll())
    set_policies(lab, Policies(emulation=Emulation(trim_without_cursor=True)))
    assert len(lab.read(EARLIEST, read_compacted=False)) == 1
    lab.run(lab.clock.move_to(lab.clock.now_ms() + interval_ms))
    assert lab.read(EARLIEST, read_compacted=False) == []


def test_the_threshold_is_checked_by_the_brokers_clock(lab: BrokerLab) -> None:
    """Not before the monitor's interval, and then without a request."""
    interval_ms = BrokerSettings(data_dir=DATA).compaction_monitor_interval_ms
    lab.publish([ENTRY])
    set_policies(lab, Policies(compaction_threshold_bytes=1))
    lab.run(lab.clock.move_to(lab.clock.now_ms() + interval_ms // 2))
    assert lab.metadata.runs(TOPIC) == []
    lab.run(lab.clock.move_to(lab.clock.now_ms() + interval_ms))
    lab.settle()
    assert [run.trigger for run in lab.metadata.runs(TOPIC)] == [RUN_TRIGGER_THRESHOLD]


def test_a_cursor_is_written_after_its_delay_by_the_brokers_clock(lab: BrokerLab) -> None:
    """A crash before that means redelivery, as if so much time had not passed."""
    start = StartPosition(earliest=True)
    subscription = lab.run(create_subscription(lab.topic, "s", start))
    lab.publish([ENTRY])

    def stored() -> int:
        (cursor,) = lab.metadata.cursors(TOPIC)
        return cursor.mark_delete.entry_id

    async def skip() -> None:
        subscription.pass_over(subscription.log.positions.last())

    lab.run(skip())
    lab.settle()
    assert stored() == -1
    lab.advance(DELAY_MS)
    assert stored() == 0


def test_a_failure_in_one_topic_does_not_stop_the_checks(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the other checks of the topic, nor the other topics, nor the next time."""
    interval_ms = BrokerSettings(data_dir=DATA).retention_check_interval_ms
    done: list[str] = []

    async def roll(tail: LogTail) -> bool:
        raise RuntimeError("nobody thought of it")

    async def trimmed(topic: Topic) -> int:
        done.append(topic.name)
        return 0

    names = [lab.topic.name, "persistent://public/default/other"]
    lab.run(lab.broker.topic(names[1]))
    monkeypatch.setattr(LogTail, "roll_if_due", roll)
    monkeypatch.setattr(Topic, "trim", trimmed)
    for _ in range(3):
        lab.run(lab.clock.move_to(lab.clock.now_ms() + interval_ms))
    assert done == names * 3


def test_a_log_that_failed_is_not_rolled(lab: BrokerLab) -> None:
    """However old its ledger: no check fails, time after time. No log had failed and got old."""
    lab.publish([ENTRY])
    topic = lab.topic
    lab.files.fail_at(1)
    with pytest.raises(DiskFailure):
        lab.publish([ENTRY])
    lab.files.fail_at(0)
    lab.run(lab.clock.move_to(lab.clock.now_ms() + STORE.ledger_age_max_ms))
    lab.run(topic.log.tail.roll_if_due())
    assert topic.log.state.failure is not None


def test_the_reserve_is_renewed_when_there_is_space(lab: BrokerLab) -> None:
    """Tests any other use of the room in between."""
    reserve = lab.store.reserve
    reserve.keep()
    reserve.empty()
    assert not reserve.is_there
    lab.advance(MINUTE_MS)
    assert reserve.is_there


def test_locks_are_removed_with_their_last_holder(lab: BrokerLab) -> None:
    """Unknown names leave nothing; all waiters for a lock wait for the same one."""

    async def ask() -> list[str]:
        for n in range(100):
            with pytest.raises(TopicNotFound):
                await lab.broker.topic(f"persistent://public/default/{n}", create=False)
        order: list[str] = []
        name = lab.broker.topics[TOPIC].name

        async def second() -> None:
            async with lab.broker.held(name):
                order.append("second")

        async with lab.broker.held(name):
            waiting = asyncio.create_task(second())
            await asyncio.sleep(0)
            gc.collect()
            order.append("first")
        await waiting
        return order

    lab.topic  # noqa: B018 - loads it
    assert lab.run(ask()) == ["first", "second"]
    assert len(lab.broker.locks) == 0


def test_without_the_compaction_cursor_the_slowest_durable_one_counts(lab: BrokerLab) -> None:
    """Nothing behind it: nothing to compact; no durable cursor: all that is stored."""
    topic = lab.topic
    lab.publish([ENTRY])
    lab.run(topic.log.tail.roll())
    lab.publish([ENTRY])
    first, last = topic.log.positions.first(), topic.log.positions.last()
    stored = topic.compaction_backlog_bytes()
    assert stored == sum(
        each.size_bytes for r in topic.log.ledgers.records() for each in r.segments
    )
    subscription = lab.run(create_subscription(topic, "s", StartPosition()))
    lab.run(create_subscription(topic, "away", StartPosition(earliest=True), durable=False))
    assert topic.compaction_backlog_bytes() == 0

    async def move(to: Position) -> None:
        await subscription.move(to)

    lab.run(move(first))
    assert topic.compaction_backlog_bytes() == stored // 2
    lab.run(move(last))
    lab.run(topic.enable_compaction_cursor())
    assert topic.compaction_backlog_bytes() == stored

"""Tests events between the steps of a compaction's snapshot and of other seals and rolls.

Flushes wait until the test lets them go, so that publishing, rolls, cancellations and trimming fall
between any two of them. In every order, no acknowledged message is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from ledgerfold.broker.compaction.commit import commit
from ledgerfold.broker.compaction.snapshot import check_coverage, snapshot
from ledgerfold.broker.topics.operations import truncate_topic
from ledgerfold.broker.topics.producer import Producer
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import (
    CompactionFailed,
    CompactionFenced,
    DiskFailure,
    LedgerfoldError,
)
from ledgerfold.storage.ledger import LedgerWriter
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.compactor_pb2 import Manifest
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_CLOSED,
    LedgerRecord,
    RunRecord,
    SegmentRecord,
    TopicRecord,
)
from ledgerfold.v1.records_pb2 import Position as PositionRecord
from tests.model.broker_lab import STORE, TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.held_executor import HeldExecutor

# A few more than a ledger takes, so that a roll happens in every case.
ROLLS = STORE.ledger_entries_max + 2
STEPS = range(1, 11)
# At the log's disk, and at the topic's record.
MOST_AT_ONCE = 2


class Race:
    """A lab whose disk waits. All messages have distinct keys: none may disappear."""

    def __init__(self) -> None:
        self.lab = BrokerLab()
        self.held = HeldExecutor()
        self.lab.broker.executor = self.held
        self.keys: list[bytes] = []
        # The loop is at it: no other publishing begins in the middle.
        self.is_publishing = False
        self.producer: Producer = self.lab.run(self._attach())

    async def _attach(self) -> Producer:
        topic = await self.lab.broker.topic(TOPIC)
        return await topic.attach_producer("p")

    def publish(self, count: int) -> None:
        """Not waited for."""
        self.is_publishing = True
        for _ in range(count):
            key = b"k%d" % len(self.keys)
            self.producer.append_all(
                [memoryview(self.lab.entry([Message(key, b"v")], is_batch=False))]
            )
            self.keys.append(key)
        self.is_publishing = False

    async def turn(self, count: int = 20) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    def check(self) -> None:
        """All that was published is acknowledged, and readable in both ways."""

        async def finish() -> int:
            self.held.free()
            self.producer.finish()
            acknowledged = 0
            while receipts := await self.producer.receipts():
                acknowledged += len(receipts)
            await self.turn()
            return acknowledged

        assert self.lab.run(finish()) == len(self.keys)
        self.lab.run(self.lab.topic.trim())
        assert self._keys(read_compacted=True) == self.keys
        self.lab.compact()
        assert self._keys(read_compacted=True) == self.keys
        self.lab.crash()
        assert not self.lab.report.damaged
        assert self._keys(read_compacted=True) == self.keys
        self.lab.stop()

    def _keys(self, *, read_compacted: bool) -> list[bytes]:
        read = self.lab.read(EARLIEST, read_compacted=read_compacted)
        return [each.message.key or b"" for each in read]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("before", [1, 3])
def test_messages_published_during_a_snapshot_are_not_lost(step: int, before: int) -> None:
    """Also if it rolls the ledger, at every disk call of the snapshot."""
    race = Race()
    race.lab.run(_publish(race, before))
    calls = 0

    def during(call: str) -> None:
        nonlocal calls
        if race.held.is_working and not race.is_publishing:
            calls += 1
            if calls < step:
                race.publish(1)
            elif calls == step:
                race.publish(ROLLS)

    async def scenario() -> None:
        race.publish(1)
        race.lab.files.during = during
        compaction = asyncio.ensure_future(race.lab.compaction())
        while not compaction.done():
            await race.turn()
            race.held.let_go(1)

    race.held.holds = True
    race.lab.run(scenario())
    race.check()


def seal(lab: BrokerLab) -> Coroutine[Any, Any, object]:
    return lab.broker.topics[TOPIC].log.commit.seal()


def roll(lab: BrokerLab) -> Coroutine[Any, Any, object]:
    return lab.broker.topics[TOPIC].log.tail.roll()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("work", [seal, roll])
def test_a_caller_that_waits_for_the_disk_may_be_cancelled(
    work: Callable[[BrokerLab], Coroutine[Any, Any, object]], step: int
) -> None:
    """The thread continues: nothing else may use the disk meanwhile, and its effect counts."""
    race = Race()

    async def scenario() -> None:
        race.held.holds = True
        race.publish(ROLLS + 3)
        task = asyncio.ensure_future(work(race.lab))
        for _ in range(step):
            await race.turn()
            race.held.let_go(1)
        await race.turn()
        assert race.held.waiting <= MOST_AT_ONCE
        task.cancel()
        race.publish(1)
        await race.turn()
        assert race.held.waiting <= MOST_AT_ONCE
        race.held.free()
        with suppress(asyncio.CancelledError):
            await task

    race.lab.run(scenario())
    race.check()


def test_a_failed_log_gets_no_new_view_from_a_run() -> None:
    """The run's input may exceed the durable entries."""
    race = Race()

    async def scenario() -> None:
        race.publish(1)
        topic = race.lab.broker.topics[TOPIC]
        taken = await snapshot(topic)
        assert taken is not None
        topic.log.state.fail(DiskFailure("1/0.log", "A sync", OSError(5, "I/O error")))
        run, manifest = RunRecord(ledger_id=77), Manifest(ledger_id=77)
        with pytest.raises(CompactionFenced, match="its disk failed"):
            await commit(topic, run, manifest, taken)
        assert not topic.record.HasField("compacted")

    race.lab.run(scenario())
    race.lab.stop()


def test_a_run_of_an_earlier_load_commits_nothing() -> None:
    """Independent of the view: the run's input belongs to a log that no longer exists."""
    race = Race()

    def edit(record: TopicRecord, batch: MetadataBatch) -> None:
        record.epoch += 1

    async def scenario() -> None:
        race.publish(1)
        topic = race.lab.broker.topics[TOPIC]
        taken = await snapshot(topic)
        assert taken is not None
        await topic.stored.change(edit)
        run, manifest = RunRecord(ledger_id=77), Manifest(ledger_id=77)
        with pytest.raises(CompactionFenced, match="was reloaded"):
            await commit(topic, run, manifest, taken)

    race.lab.run(scenario())
    race.check()


@pytest.mark.parametrize("step", STEPS)
def test_a_truncation_removes_the_entries_present_at_its_start(step: int) -> None:
    """And no ledger that is still being written."""
    race = Race()

    async def scenario() -> int:
        race.publish(3)
        await race.turn()
        race.held.holds = True
        truncation = asyncio.ensure_future(truncate_topic(race.lab.broker, TOPIC))
        await race.turn()
        for _ in range(step):
            race.held.let_go(1)
            await race.turn()
        before = len(race.keys)
        race.publish(ROLLS)
        await race.turn()
        race.held.let_go(1)
        await race.turn()
        race.publish(ROLLS)
        race.held.free()
        await truncation
        await race.turn()
        return before

    del race.keys[: race.lab.run(scenario())]
    # After the boundary, entries may be missing only at the front.
    found = race.lab.read(EARLIEST, read_compacted=False)
    keys = [each.message.key for each in found]
    assert keys == race.keys[len(race.keys) - len(keys) :]
    assert len(keys) >= ROLLS
    ledgers = {record.ledger_id for record in race.lab.metadata.ledgers()}
    assert ledgers == set(race.lab.topic.record.ledger_ids)
    race.lab.crash()
    assert [each.message.key for each in race.lab.read(EARLIEST, read_compacted=False)] == keys
    race.lab.stop()


def test_a_snapshot_without_one_of_its_segments_is_refused() -> None:
    """The run fails and names the missing segment."""
    race = Race()
    race.lab.run(_publish(race, ROLLS))
    topic = race.lab.topic
    first = topic.record.ledger_ids[0]
    kept = topic.log.ledgers.closed_record(first)
    assert kept is not None
    kept.segments[0].sealed = False
    run = race.lab.compact()
    assert run is not None
    assert not race.lab.succeeded(run)
    assert f"{first}:0" in run.error_message
    assert topic.log.views.horizon is None
    kept.segments[0].sealed = True
    race.check()


def test_a_run_reads_no_ledger_beyond_its_range() -> None:
    """Entries published since are the next run's. Every ledger had been in the range."""
    ledgers = [
        LedgerRecord(
            ledger_id=each,
            state=LEDGER_STATE_CLOSED,
            segments=[
                SegmentRecord(
                    first=PositionRecord(ledger_id=each, entry_id=0),
                    last=PositionRecord(ledger_id=each, entry_id=4),
                    entries=5,
                    sealed=True,
                )
            ],
        )
        for each in (1, 2)
    ]
    first, second = (each.segments[0] for each in ledgers)
    check_coverage(ledgers, [first], after=EARLIEST, through=Position(1, 4))
    check_coverage(ledgers, [first, second], after=EARLIEST, through=Position(2, 4))
    with pytest.raises(CompactionFailed, match="entry 2:0"):
        check_coverage(ledgers, [first], after=EARLIEST, through=Position(2, 4))


async def _publish(race: Race, count: int) -> None:
    race.publish(count)
    await race.turn()


def test_a_defect_in_a_flush_disconnects_the_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No producer waits for receipts for ever after any defect."""
    race = Race()

    def broken(writer: LedgerWriter) -> Position:
        raise ZeroDivisionError("a test")

    monkeypatch.setattr(LedgerWriter, "flush", broken)

    async def publish() -> None:
        race.publish(1)
        await race.producer.receipts()

    with pytest.raises(LedgerfoldError, match="a test"):
        race.lab.run(publish())
    monkeypatch.undo()
    race.lab.stop()

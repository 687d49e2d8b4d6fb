"""One compaction by a broker that does nothing by itself, with a compactor in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ledgerfold.broker.server.one_run import run_once
from ledgerfold.storage.entry import EARLIEST
from ledgerfold.storage.errors import TopicNotFound
from ledgerfold.v1.admin_pb2 import COMPACTION_STATUS_SUCCESS, GetCompactionStatusResponse
from ledgerfold.v1.records_pb2 import (
    RUN_STATE_CANCELLED,
    CompactionStrategy,
    Policies,
    RunRecord,
)
from tests.model.broker_lab import DATA, TOPIC, BrokerLab
from tests.model.log_model import Message

EVENT_TIME = CompactionStrategy(name="event-time")


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    made = BrokerLab()
    made.publish(
        [([Message(b"a", b"1"), Message(b"b", b"1")], True), ([Message(b"a", b"2")], False)]
    )
    yield made
    made.stop()


def ignore(status: GetCompactionStatusResponse) -> None:
    """Ignores progress."""


def view(lab: BrokerLab) -> list[object]:
    return list(lab.read(EARLIEST, read_compacted=True))


def runs(lab: BrokerLab) -> list[RunRecord]:
    return lab.broker.compaction.history.oldest_first(TOPIC)


def test_a_run_is_recorded(lab: BrokerLab) -> None:
    """Its progress is reported, and it is in the history as any other; then there is nothing
    new.
    """
    seen: list[GetCompactionStatusResponse] = []
    status = lab.run(run_once(lab.broker, TOPIC, None, seen.append))
    assert status is not None
    assert status.status == COMPACTION_STATUS_SUCCESS
    assert seen[-1] == status
    assert runs(lab) == [status.run]
    assert lab.run(run_once(lab.broker, TOPIC, None, ignore)) is None


def test_adm_17_a_strategy_for_one_run(lab: BrokerLab) -> None:
    """The view is rebuilt up to the same horizon; the topic's strategy rebuilds it again."""
    first = lab.compact()
    before = view(lab)
    assert first is not None
    status = lab.run(run_once(lab.broker, TOPIC, EVENT_TIME, ignore))
    assert status is not None
    assert (status.run.strategy, status.run.horizon) == ("event-time", first.horizon)
    assert status.run.counts.messages_in == first.counts.messages_out
    assert view(lab) == before
    again = lab.compact()
    assert again is not None
    assert (again.strategy, again.horizon) == ("publishing-order", first.horizon)
    lab.restart()
    assert view(lab) == before
    assert lab.compact() is None


def test_every_partition_is_compacted(lab: BrokerLab) -> None:
    """Also of those that are empty."""
    name = "persistent://public/default/p"
    lab.run(lab.broker.create_partitioned_topic(name, 2))
    lab.publish([([Message(b"a", b"1")], False)], f"{name}-partition-1")
    status = lab.run(run_once(lab.broker, name, EVENT_TIME, ignore))
    assert status is not None
    assert [each.run.strategy for each in status.partitions] == ["event-time"] * 2
    assert status.status == COMPACTION_STATUS_SUCCESS


def test_a_missing_topic_is_not_created(lab: BrokerLab) -> None:
    """It is not made."""
    with pytest.raises(TopicNotFound):
        lab.run(run_once(lab.broker, "persistent://public/default/none", None, ignore))


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 40])
def test_a_run_can_be_cancelled_at_any_time(lab: BrokerLab, turns: int) -> None:
    """The run is cancelled, and nothing of it is left."""

    async def cancel() -> None:
        lab.compactor.may_go.clear()
        work = asyncio.ensure_future(run_once(lab.broker, TOPIC, None, ignore))
        for _ in range(turns):
            await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    ledgers = set(lab.files.listdir(DATA / "ledgers"))
    lab.run(cancel())
    assert {run.state for run in runs(lab)} <= {RUN_STATE_CANCELLED}
    assert set(lab.files.listdir(DATA / "ledgers")) == ledgers


def test_an_idle_broker_starts_no_run(lab: BrokerLab) -> None:
    """A threshold that is passed fires nothing."""
    policies = Policies(compaction_threshold_bytes=1)
    topic, compaction = lab.topic, lab.broker.compaction
    lab.run(topic.stored.change(lambda record, batch: record.policies.CopyFrom(policies)))

    async def runs_after(monitors: bool) -> int:
        compaction.start(monitors=monitors)
        compaction.consider(topic)
        for _ in range(20):
            await asyncio.sleep(0)
        return len(runs(lab))

    assert lab.run(runs_after(monitors=False)) == 0
    assert lab.run(runs_after(monitors=True)) == 1

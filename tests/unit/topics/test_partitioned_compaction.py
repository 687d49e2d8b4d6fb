"""Compaction by the name of a partitioned topic: each request goes to each partition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from ledgerfold.broker.topics.partitioned_compaction import PartitionedCompaction, combined_status
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import CompactionFailed, CompactionRunning, TopicNotFound
from ledgerfold.storage.partition_names import partition_name
from ledgerfold.v1.admin_pb2 import (
    COMPACTION_PHASE_ONE,
    COMPACTION_PHASE_QUEUED,
    COMPACTION_STATUS_ERROR,
    COMPACTION_STATUS_NOT_RUN,
    COMPACTION_STATUS_RUNNING,
    COMPACTION_STATUS_SUCCESS,
    CompactionProgress,
    CompactionStatus,
    GetCompactionStatusResponse,
)
from ledgerfold.v1.records_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_SUCCESS,
    RUN_TRIGGER_ADMIN,
    Policies,
)
from tests.support.compaction_lab import Lab, LabTopic
from tests.support.waiting import WAIT_S

T = "persistent://public/default/t"
NOT_RUN, RUNNING = COMPACTION_STATUS_NOT_RUN, COMPACTION_STATUS_RUNNING
SUCCESS, ERROR = COMPACTION_STATUS_SUCCESS, COMPACTION_STATUS_ERROR


class PartitionsLab:
    """A Lab with a topic of three partitions, all loaded."""

    def __init__(self, partitions: int = 3) -> None:
        self.lab = Lab()
        self.partitions = self.lab.partitions
        self.partitions_wanted = partitions
        # Those that were asked for to be written.
        self.writable = list[str]()

    async def open(self) -> None:
        await self.partitions.create(T, self.partitions_wanted)
        names = self.partitions.names(T)
        self.topics: list[Any] = [self.lab.topic(name) for name in names]
        self.compaction = self.lab.scheduler
        self.compactor = self.lab.compactor

    async def topic(self, name: str, create: bool = True, *, to_write: bool = False) -> LabTopic:
        if name not in self.lab.topics:
            raise TopicNotFound(name)
        if to_write:
            self.writable.append(name)
        return self.lab.topics[name]

    async def finish_all(self, runs: int) -> None:
        for _ in range(runs):
            await self.compactor.started()
            self.compactor.finish()
        for topic in self.topics:
            await self.lab.ended(topic)


def run(test: Callable[[PartitionsLab, PartitionedCompaction], Awaitable[Any]]) -> None:
    async def body() -> None:
        lab = PartitionsLab()
        await lab.open()
        try:
            await test(lab, PartitionedCompaction(cast(Any, lab)))
        finally:
            await lab.compaction.stop()

    asyncio.run(body())


def test_adm_07_and_09_a_trigger_compacts_every_partition() -> None:
    """Each has its run, horizon and ledger."""

    async def test(lab: PartitionsLab, compaction: PartitionedCompaction) -> None:
        assert await compaction.trigger(T) == 1
        assert (await compaction.status(T)).status == RUNNING
        await lab.finish_all(3)
        status = await compaction.status(T)
        assert (status.status, len(status.partitions)) == (SUCCESS, 3)
        assert [each.run.topic for each in status.partitions] == lab.partitions.names(T)
        assert {each.run.state for each in status.partitions} == {RUN_STATE_SUCCESS}
        assert len({each.run.ledger_id for each in status.partitions}) == 3
        assert all(topic.log.views.horizon == Position(1, 4) for topic in lab.topics)

    run(test)


def test_a_refusing_partition_does_not_stop_the_others() -> None:
    """The answer is the refusal (HTTP 409 in Pulsar), and the others run."""

    async def test(lab: PartitionsLab, compaction: PartitionedCompaction) -> None:
        await lab.compaction.trigger(lab.topics[1], RUN_TRIGGER_ADMIN)
        with pytest.raises(CompactionRunning) as caught:
            await compaction.trigger(T)
        assert caught.value.topic == lab.topics[1].name
        await lab.finish_all(3)
        assert (await compaction.status(T)).status == SUCCESS
        assert len(lab.compaction.history.runs(*lab.partitions.names(T))) == 3

    run(test)


def test_no_new_entries_in_any_partition_means_no_run() -> None:
    async def test(lab: PartitionsLab, compaction: PartitionedCompaction) -> None:
        await compaction.trigger(T)
        await lab.finish_all(3)
        assert await compaction.trigger(T) == 0
        lab.topics[2].log.entries += 1
        assert await compaction.trigger(T) == 2
        await lab.finish_all(1)

    run(test)


def test_only_a_trigger_needs_writable_topics() -> None:
    """A topic whose log has failed is loaded again for a trigger, and not for its status. Checks
    the requests that the broker received.
    """

    async def test(lab: PartitionsLab, compaction: PartitionedCompaction) -> None:
        await compaction.status(T)
        async for _ in compaction.watch(T):
            pass
        assert lab.writable == []
        await compaction.trigger(T)
        assert lab.writable == lab.partitions.names(T)
        await lab.finish_all(3)

    run(test)


def test_a_missing_partition_is_not_found() -> None:
    async def test(lab: PartitionsLab, compaction: PartitionedCompaction) -> None:
        del lab.lab.topics[lab.topics[1].name]
        with pytest.raises(TopicNotFound, match=partition_name(T, 1)):
            await compaction.trigger(T)
        assert lab.compactor.plans == []

    run(test)


def test_cancelling_ends_every_run_before_another_starts() -> None:
    async def test(lab: PartitionsLab, compaction: PartitionedCompaction) -> None:
        await compaction.trigger(T)
        await lab.compactor.started()
        assert await compaction.cancel(lab.partitions.names(T)) == 1
        assert len(lab.compactor.plans) == 1
        states = {each.run.state for each in (await compaction.status(T)).partitions}
        assert states == {RUN_STATE_CANCELLED}
        assert await compaction.cancel(lab.partitions.names(T)) == 0

    run(test)


def test_a_watch_covers_every_partition_until_the_last_has_ended() -> None:
    async def test(lab: PartitionsLab, compaction: PartitionedCompaction) -> None:
        await compaction.trigger(T)

        async def watch() -> list[GetCompactionStatusResponse]:
            return [status async for status in compaction.watch(T)]

        watching = asyncio.create_task(watch())
        await lab.finish_all(3)
        async with asyncio.timeout(WAIT_S):
            seen = await watching
        assert {each.status for each in seen[:-1]} == {RUNNING}
        assert seen[-1].status == SUCCESS
        async with asyncio.timeout(WAIT_S):
            assert [each.status async for each in compaction.watch(T)] == [SUCCESS]

    run(test)


def test_a_topic_without_partitions_answers_itself() -> None:
    async def test(lab: PartitionsLab, compaction: PartitionedCompaction) -> None:
        plain = lab.lab.topic("plain")
        assert await compaction.trigger(plain.name) == 1
        await lab.compactor.started()
        lab.compactor.fail(CompactionFailed("phase one", "broken"))
        await lab.lab.ended(plain)
        status = await compaction.status(plain.name)
        assert (status.status, status.run.topic, len(status.partitions)) == (ERROR, plain.name, 0)
        assert [each.status async for each in compaction.watch(plain.name)] == [ERROR]

    run(test)


def test_a_threshold_of_the_topic_applies_to_every_partition() -> None:
    """Each partition's backlog is compared separately; a partition's record does not count."""

    async def test(lab: PartitionsLab, compaction: PartitionedCompaction) -> None:
        policies = Policies(compaction_threshold_bytes=150)
        await lab.partitions.change_record(T, lambda record: record.policies.CopyFrom(policies))
        lab.topics[0].record.policies.compaction_threshold_bytes = 1
        lab.topics[1].backlog_bytes = 200
        decisions = [lab.compaction.monitor.decide(topic) for topic in lab.topics]
        assert [decision.fire for decision in decisions] == [False, True, False]
        assert {(each.threshold_bytes, each.source) for each in decisions} == {(150, "topic")}

    run(test)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([NOT_RUN, NOT_RUN], NOT_RUN),
        ([NOT_RUN, SUCCESS], SUCCESS),
        ([SUCCESS, ERROR, NOT_RUN], ERROR),
        ([ERROR, SUCCESS, RUNNING], RUNNING),
    ],
)
def test_the_combined_status_of_the_partitions(
    found: list[CompactionStatus], expected: CompactionStatus
) -> None:
    """Running before failed before successful before never."""
    whole = combined_status([GetCompactionStatusResponse(status=each) for each in found])
    assert whole.status == expected


def test_the_combined_status_has_the_first_error_and_the_furthest_progress() -> None:
    failed = GetCompactionStatusResponse(status=ERROR, last_error="no space")
    failed.run.topic = "t-partition-1"
    fine = GetCompactionStatusResponse(status=SUCCESS)
    assert combined_status([fine, failed, failed]).last_error == "t-partition-1: no space"
    queued, at_work = (
        GetCompactionStatusResponse(
            status=RUNNING, progress=CompactionProgress(phase=phase, messages=messages, left_ms=9)
        )
        for phase, messages in ((COMPACTION_PHASE_QUEUED, 0), (COMPACTION_PHASE_ONE, 7))
    )
    progress = combined_status([queued, at_work, fine]).progress
    assert progress.messages == 7
    assert not progress.HasField("left_ms")

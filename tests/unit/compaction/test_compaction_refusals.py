"""Triggers that the scheduler refuses: nothing is queued, recorded or lost."""

from __future__ import annotations

import asyncio

import pytest

from ledgerfold.storage.errors import (
    CompactionFenced,
    CompactionQueueFull,
    CompactorUnavailable,
    DiskFailure,
    Unavailable,
)
from ledgerfold.v1.admin_pb2 import (
    COMPACTION_STATUS_NOT_RUN,
)
from ledgerfold.v1.records_pb2 import (
    RUN_STATE_ERROR,
    RUN_TRIGGER_ADMIN,
    RUN_TRIGGER_THRESHOLD,
)
from tests.support.compaction_lab import Lab

DISK_FULL = DiskFailure("file", "write", OSError(28, "No space left on device"))


def test_a_full_queue_refuses_and_records_nothing() -> None:
    """One run is in the worker, three wait; the fifth topic is refused for now."""

    async def body() -> None:
        lab = Lab()
        topics = [lab.topic(name) for name in "abcde"]
        for topic in topics[:4]:
            await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
        with pytest.raises(CompactionQueueFull):
            await lab.scheduler.trigger(topics[4], RUN_TRIGGER_ADMIN)
        assert topics[4].record.last_run_number == 0
        assert lab.scheduler.status(topics[4]).status == COMPACTION_STATUS_NOT_RUN
        await lab.scheduler.stop()

    asyncio.run(body())


def test_adm_14_a_trigger_during_a_deletion_starts_nothing() -> None:
    """Neither does a run's end bring a deleted topic's records back."""

    async def body() -> None:
        lab = Lab()
        topic, other = lab.topic("t"), lab.topic("u")
        trigger = asyncio.create_task(lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN))
        await asyncio.sleep(0)
        await lab.scheduler.fence(topic.name)
        with pytest.raises(CompactionFenced):
            await trigger
        assert lab.metadata.runs(topic.name) == []
        await lab.scheduler.trigger(other, RUN_TRIGGER_ADMIN)
        await lab.compactor.started()
        with lab.metadata.batch() as batch:
            batch.delete_topic(other.name)
        await lab.scheduler.fence(other.name)
        assert lab.metadata.runs(None) == []

    asyncio.run(body())


def test_stopping_ends_all_runs_and_refuses_new_ones() -> None:
    """Queued or running, each record says that the broker stopped."""

    async def body() -> None:
        lab = Lab()
        topics = [lab.topic(name) for name in "abc"]
        lab.scheduler.start()
        for topic in topics:
            await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
        await lab.compactor.started()
        await lab.scheduler.stop()
        runs = lab.metadata.runs(None)
        assert [run.state for run in runs] == [RUN_STATE_ERROR] * 3
        assert all("broker stopped" in run.error_message for run in runs)
        with pytest.raises(Unavailable):
            await lab.scheduler.trigger(topics[0], RUN_TRIGGER_ADMIN)

    asyncio.run(body())


def test_adm_14_a_trigger_on_a_closed_topic_does_nothing() -> None:
    """The caller holds a topic that was closed, and perhaps loaded again since."""

    async def body() -> None:
        lab = Lab()
        unloaded = lab.topic("t")
        lab.topic("t")
        assert await lab.scheduler.trigger(unloaded, RUN_TRIGGER_ADMIN) == 0
        del lab.topics[unloaded.name]
        assert await lab.scheduler.trigger(unloaded, RUN_TRIGGER_ADMIN) == 0
        assert lab.metadata.runs(None) == []

    asyncio.run(body())


def test_without_a_compactor_a_trigger_is_refused() -> None:
    """With `--compactor off`, nothing is queued that no worker will run."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t")
        lab.compactor.is_disabled = True
        with pytest.raises(CompactorUnavailable):
            await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
        assert topic.record.last_run_number == 0

    asyncio.run(body())


def test_an_admin_trigger_wakes_an_unavailable_compactor() -> None:
    """After installing Java, an administrator need not wait for the next automatic attempt."""

    async def body() -> None:
        lab = Lab()
        await lab.scheduler.trigger(lab.topic("t"), RUN_TRIGGER_THRESHOLD)
        assert lab.compactor.retries == 0
        await lab.scheduler.trigger(lab.topic("u"), RUN_TRIGGER_ADMIN)
        assert lab.compactor.retries == 1
        await lab.scheduler.stop()

    asyncio.run(body())


def test_a_failed_metadata_write_assigns_no_run_number() -> None:
    """The trigger fails, and the live record is as before."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t")
        topic.record.compaction_cursor = True
        lab.pairs.failure = DISK_FULL
        with pytest.raises(DiskFailure):
            await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
        assert topic.record.last_run_number == 0
        lab.pairs.failure = None
        assert await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN) == 1
        await lab.scheduler.stop()

    asyncio.run(body())

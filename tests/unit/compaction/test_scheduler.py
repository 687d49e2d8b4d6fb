"""The scheduler and its runs: triggers, order, ends, history, status."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ledgerfold.broker.compaction.history import RUNS_KEPT
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import (
    CompactionFailed,
    CompactionFenced,
    CompactionRunning,
    Corruption,
    DiskFailure,
)
from ledgerfold.strategies.catalogue import DEFAULT, LISTED
from ledgerfold.v1.admin_pb2 import (
    COMPACTION_PHASE_COMMIT,
    COMPACTION_PHASE_ONE,
    COMPACTION_PHASE_QUEUED,
    COMPACTION_PHASE_TWO,
    COMPACTION_STATUS_ERROR,
    COMPACTION_STATUS_NOT_RUN,
    COMPACTION_STATUS_RUNNING,
    COMPACTION_STATUS_SUCCESS,
)
from ledgerfold.v1.compactor_pb2 import Manifest
from ledgerfold.v1.records_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_ERROR,
    RUN_STATE_QUEUED,
    RUN_STATE_RUNNING,
    RUN_STATE_SUCCESS,
    RUN_TRIGGER_ADMIN,
    RUN_TRIGGER_THRESHOLD,
    CompactionStrategy,
    RunRecord,
)
from tests.support.compaction_lab import FIRST_LEDGER_ID, Lab, position

DISK_FULL = DiskFailure("file", "write", OSError(28, "No space left on device"))


def test_adm_01_a_never_compacted_topic_has_status_not_run() -> None:
    """NOT_RUN, and no error text."""
    lab = Lab()
    status = lab.scheduler.status(lab.topic("t"))
    assert (status.status, status.last_error) == (COMPACTION_STATUS_NOT_RUN, "")


def test_a_run_passes_its_states_and_ends_with_the_commit() -> None:
    """Queued and running are durable before the worker starts; success is durable with the view."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t", entries=5)
        assert await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN) == 1
        assert lab.run_of(topic, 1).state == RUN_STATE_QUEUED
        assert lab.topic_record(topic).last_run_number == 1
        assert topic.record.compaction_cursor
        plan = await lab.compactor.started()
        assert (plan.topic, plan.strategy, plan.ledger_id) == (
            topic.name,
            "publishing-order",
            FIRST_LEDGER_ID,
        )
        assert plan.strategy_version == LISTED[DEFAULT].version
        assert plan.horizon == position(1, 4)
        assert not plan.HasField("horizon_previous")
        running = lab.run_of(topic, 1)
        assert (running.state, running.ledger_id) == (RUN_STATE_RUNNING, FIRST_LEDGER_ID)
        assert lab.scheduler.status(topic).status == COMPACTION_STATUS_RUNNING
        lab.compactor.finish(removed_events=4)
        await lab.ended(topic)
        done = lab.run_of(topic, 1)
        assert (done.state, done.counts.removed_events) == (RUN_STATE_SUCCESS, 4)
        assert done.queued_ms < done.started_ms < done.ended_ms
        assert topic.log.views.horizon == Position(1, 4)
        assert lab.store.removed == []
        assert lab.scheduler.status(topic).status == COMPACTION_STATUS_SUCCESS

    asyncio.run(body())


def test_a_second_run_builds_on_the_first() -> None:
    """Its plan names the horizon before, its record the ledger it replaces."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t")
        for entries in (5, 8):
            topic.log.entries = entries
            await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
            await lab.compactor.started()
            lab.compactor.finish()
            await lab.ended(topic)
        plan, record = lab.compactor.plans[-1], lab.run_of(topic, 2)
        assert (plan.horizon_previous, plan.horizon) == (position(1, 4), position(1, 7))
        assert record.previous_ledger_id == FIRST_LEDGER_ID
        assert record.ledger_id == FIRST_LEDGER_ID + 1

    asyncio.run(body())


def test_a_run_keeps_segments_only_of_a_run_with_equal_settings() -> None:
    """The plan says so if strategy, settings and policy are those of the view's run."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t")
        keeps = []
        for entries, strategy in ((5, None), (8, None), (9, "event-time"), (10, None), (11, None)):
            topic.log.entries = entries
            asked = None if strategy is None else CompactionStrategy(name=strategy)
            await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN, strategy=asked)
            await lab.compactor.started()
            lab.compactor.finish()
            await lab.ended(topic)
            keeps.append(lab.compactor.plans[-1].keeps_segments)
        assert keeps == [False, True, False, False, True]

    asyncio.run(body())


def test_adm_02_an_empty_topic_succeeds_without_ledger_or_worker() -> None:
    """Pulsar's compaction of an empty topic: success, ledger -1, nothing published."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t", entries=0, backlog_bytes=0)
        assert await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN) == 1
        await lab.ended(topic)
        assert lab.compactor.plans == []
        assert lab.run_of(topic, 1).ledger_id == -1
        assert lab.scheduler.status(topic).status == COMPACTION_STATUS_SUCCESS
        assert topic.log.views.horizon is None

    asyncio.run(body())


def test_an_empty_topic_is_compacted_once_until_something_is_published() -> None:
    """Unless the profile wants a run, or forgets the last run with a load."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t", entries=0, backlog_bytes=0)

        async def numbers() -> int:
            number = await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
            await lab.ended(topic)
            return number

        assert [await numbers() for _ in range(3)] == [1, 0, 0]
        topic.record.policies.emulation.skip_run_without_new_data = False
        assert await numbers() == 2
        topic.record.policies.emulation.skip_run_without_new_data = True
        topic.record.compaction_cursor = False
        assert [await numbers() for _ in range(2)] == [3, 0]
        topic.record.policies.emulation.status_survives_unload = False
        topic.last_run_before_load = 3
        assert [await numbers() for _ in range(2)] == [4, 0]
        topic.log.entries = 1
        assert await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN) == 5
        await lab.scheduler.stop()

    asyncio.run(body())


def test_inc_a_trigger_without_new_entries_starts_no_run() -> None:
    """A trigger without anything beyond the horizon answers 0 (apache/pulsar#24449)."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t", entries=5)
        topic.log.views.horizon = Position(1, 4)
        assert await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN) == 0
        assert lab.scheduler.status(topic).status == COMPACTION_STATUS_NOT_RUN
        assert topic.record.last_run_number == 0
        topic.record.policies.emulation.skip_run_without_new_data = False
        assert await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN) == 1
        assert (await lab.compactor.started()).horizon == position(1, 4)
        lab.compactor.finish()
        await lab.ended(topic)

    asyncio.run(body())


def test_adm_11_status_and_stats_survive_a_load_unless_the_profile_resets_them() -> None:
    """Pulsar keeps both with the loaded topic; the history of runs stays in either case."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t", entries=5)
        assert await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN) == 1
        await lab.compactor.started()
        lab.compactor.finish()
        await lab.ended(topic)
        topic.last_run_before_load = 1
        assert lab.scheduler.status(topic).status == COMPACTION_STATUS_SUCCESS
        assert lab.scheduler.stats(topic).succeeded_ms > 0
        topic.record.policies.emulation.status_survives_unload = False
        assert lab.scheduler.status(topic).status == COMPACTION_STATUS_NOT_RUN
        assert lab.scheduler.stats(topic).succeeded_ms == 0
        assert len(lab.scheduler.history.runs(topic.name)) == 1

    asyncio.run(body())


def test_adm_04_a_trigger_during_a_run_is_refused_and_only_one_run_counts() -> None:
    """Pulsar's 409, for a queued run as for one in the worker."""

    async def body() -> None:
        lab = Lab()
        topic, other = lab.topic("t"), lab.topic("u")
        await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
        await lab.scheduler.trigger(other, RUN_TRIGGER_ADMIN)
        await lab.compactor.started()
        for each in (topic, other):
            with pytest.raises(CompactionRunning):
                await lab.scheduler.trigger(each, RUN_TRIGGER_THRESHOLD)
            assert lab.scheduler.status(each).status == COMPACTION_STATUS_RUNNING
        lab.compactor.finish()
        await lab.ended(topic)
        assert len(lab.metadata.runs(topic.name)) == 1
        await lab.scheduler.stop()

    asyncio.run(body())


def test_two_triggers_at_once_start_one_run() -> None:
    """The second arrives while the first waits for its cursor to be durable."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t")
        answers = await asyncio.gather(
            lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN),
            lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN),
            return_exceptions=True,
        )
        assert answers[0] == 1
        assert isinstance(answers[1], CompactionRunning)
        await lab.scheduler.stop()

    asyncio.run(body())


def test_adm_19_topics_are_compacted_one_at_a_time_the_dirtiest_first() -> None:
    """Dirtiness is looked at when a place becomes free, not when the run was queued."""

    async def body() -> None:
        lab = Lab()
        first, small, large = lab.topic("first"), lab.topic("small"), lab.topic("large")
        for topic in (first, small, large):
            await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
        large.backlog_bytes = 10_000
        order = []
        for _ in range(3):
            order.append((await lab.compactor.started()).topic)
            lab.compactor.finish()
        assert order == [first.name, large.name, small.name]
        await lab.ended(small)

    asyncio.run(body())


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (CompactionFailed("phase one", "the worker died (signal SIGKILL)"), "COMPACTION_FAILED"),
        (Corruption("1/0.log", 72, "CRC", "another"), "DATA_CORRUPT"),
        (DISK_FULL, "DISK_FAILURE"),
        (ZeroDivisionError("a defect"), "COMPACTION_FAILED"),
    ],
)
def test_a_failure_in_the_worker_leaves_the_old_view_and_no_files(
    error: Exception, reason: str
) -> None:
    """FLT-01, FLT-27: the record says why, the horizon stays, another run succeeds."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t")
        await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
        await lab.compactor.started()
        lab.compactor.fail(error)
        await lab.ended(topic)
        failed = lab.run_of(topic, 1)
        assert (failed.state, failed.error_reason) == (RUN_STATE_ERROR, reason)
        assert lab.store.removed == [FIRST_LEDGER_ID]
        assert topic.log.views.horizon is None
        status = lab.scheduler.status(topic)
        assert status.status == COMPACTION_STATUS_ERROR
        assert str(error) in status.last_error
        assert await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN) == 2
        await lab.compactor.started()
        lab.compactor.finish()
        await lab.ended(topic)
        assert lab.scheduler.status(topic).status == COMPACTION_STATUS_SUCCESS

    asyncio.run(body())


def test_a_manifest_of_another_run_is_not_committed() -> None:
    """The topic does not serve it."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t")
        await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
        await lab.compactor.started()
        lab.compactor.answer(Manifest(run_id="another", ledger_id=FIRST_LEDGER_ID))
        await lab.ended(topic)
        assert "another run" in lab.run_of(topic, 1).error_message
        assert lab.store.removed == [FIRST_LEDGER_ID]

    asyncio.run(body())


@pytest.mark.parametrize(
    ("failure", "removed"),
    [
        (CompactionFenced("unloaded"), [FIRST_LEDGER_ID]),
        (Corruption("100/0.log", 0, "its size", "another"), [FIRST_LEDGER_ID]),
        # The write may have reached the disk after all: only the next start knows.
        (DISK_FULL, []),
    ],
)
def test_a_failed_commit_changes_nothing(failure: Exception, removed: list[int]) -> None:
    """Its files are deleted, unless a partly failed metadata write may refer to them."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t")
        lab.store.verify_failure = failure
        await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
        await lab.compactor.started()
        lab.compactor.finish()
        await lab.ended(topic)
        assert lab.run_of(topic, 1).state == RUN_STATE_ERROR
        assert lab.store.removed == removed

    asyncio.run(body())


def test_an_error_after_the_commit_does_not_take_the_published_ledger_away() -> None:
    """Files that the metadata name are kept after any later error."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t")

        def fail() -> None:
            raise RuntimeError("while the view was swapped")

        topic.after_commit = fail
        await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
        await lab.compactor.started()
        lab.compactor.finish()
        await lab.ended(topic)
        assert lab.store.removed == []
        assert lab.run_of(topic, 1).state == RUN_STATE_SUCCESS
        assert lab.scheduler.status(topic).status == COMPACTION_STATUS_SUCCESS

    asyncio.run(body())


def test_cancelling_a_run_in_the_worker() -> None:
    """The call returns once the run has ended and its files are removed; the status is
    cancelled.
    """

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t")
        await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
        plan = await lab.compactor.started()
        assert await lab.scheduler.cancel(topic.name) == 1
        assert lab.compactor.cancelled == [plan.run_id]
        assert lab.run_of(topic, 1).state == RUN_STATE_CANCELLED
        assert lab.store.removed == [FIRST_LEDGER_ID]
        status = lab.scheduler.status(topic)
        assert (status.status, status.last_error) == (COMPACTION_STATUS_ERROR, "cancelled")
        assert await lab.scheduler.cancel(topic.name) == 0

    asyncio.run(body())


def test_cancelling_a_queued_run_does_not_affect_others() -> None:
    """It never reaches the worker."""

    async def body() -> None:
        lab = Lab()
        topic, queued = lab.topic("t"), lab.topic("u")
        await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
        await lab.scheduler.trigger(queued, RUN_TRIGGER_ADMIN)
        await lab.compactor.started()
        assert await lab.scheduler.cancel(queued.name) == 1
        assert lab.run_of(queued, 1).state == RUN_STATE_CANCELLED
        lab.compactor.finish()
        await lab.ended(topic)
        assert [plan.topic for plan in lab.compactor.plans] == [topic.name]
        assert lab.run_of(topic, 1).state == RUN_STATE_SUCCESS

    asyncio.run(body())


def test_a_cancel_right_after_the_trigger() -> None:
    """The run's task exists but has not begun; it still ends cancelled."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t")
        await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
        assert await lab.scheduler.cancel(topic.name) == 1
        assert lab.compactor.plans == []
        assert lab.run_of(topic, 1).state == RUN_STATE_CANCELLED

    asyncio.run(body())


def test_a_cancel_during_the_commit_returns_0() -> None:
    """With the manifest in hand the run is committed."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t")
        await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
        await lab.compactor.started()
        lab.compactor.finish()
        async for status in lab.scheduler.watch(topic):
            if status.progress.phase == COMPACTION_PHASE_COMMIT:
                break
        assert await lab.scheduler.cancel(topic.name) == 0
        assert lab.run_of(topic, 1).state == RUN_STATE_SUCCESS

    asyncio.run(body())


def test_flt_16_an_unload_fences_the_run() -> None:
    """The old run ends without an effect, and the topic can be compacted again."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t")
        await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
        await lab.compactor.started()
        await lab.scheduler.fence(topic.name)
        assert lab.run_of(topic, 1).error_reason == "COMPACTION_FENCED"
        assert lab.store.removed == [FIRST_LEDGER_ID]
        assert await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN) == 2
        await lab.scheduler.stop()

    asyncio.run(body())


def test_a_start_marks_interrupted_runs_as_failed() -> None:
    """Queued and running runs become errors; ended ones stay."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t")
        states = (RUN_STATE_SUCCESS, RUN_STATE_RUNNING, RUN_STATE_QUEUED)
        with lab.metadata.batch() as batch:
            for number, state in enumerate(states, start=1):
                batch.put(RunRecord(topic=topic.name, number=number, state=state))
        lab.scheduler.start()
        runs = lab.metadata.runs(topic.name)
        assert [run.state for run in runs] == [RUN_STATE_SUCCESS, RUN_STATE_ERROR, RUN_STATE_ERROR]
        assert [run.error_reason for run in runs] == ["", "BROKER_RESTARTED", "BROKER_RESTARTED"]
        assert lab.scheduler.status(topic).status == COMPACTION_STATUS_ERROR
        await lab.scheduler.stop()

    asyncio.run(body())


def test_a_start_does_not_mark_runs_triggered_before_it() -> None:
    """The server may answer a trigger a moment before the scheduler has started."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t")
        await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
        lab.scheduler.start()
        await lab.compactor.started()
        lab.compactor.finish()
        await lab.ended(topic)
        assert lab.run_of(topic, 1).state == RUN_STATE_SUCCESS
        await lab.scheduler.stop()

    asyncio.run(body())


def test_the_history_is_bounded() -> None:
    """The record of run n is deleted when run n + RUNS_KEPT is queued."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t")
        for _ in range(RUNS_KEPT + 2):
            topic.log.views.horizon = None
            await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
            await lab.compactor.started()
            lab.compactor.finish()
            await lab.ended(topic)
        numbers = [run.number for run in lab.metadata.runs(topic.name)]
        assert numbers == list(range(3, RUNS_KEPT + 3))
        newest = lab.scheduler.history.runs(topic.name, limit=2)
        assert [run.number for run in newest] == [RUNS_KEPT + 2, RUNS_KEPT + 1]

    asyncio.run(body())


def test_a_fence_waits_for_a_trigger_in_progress() -> None:
    """It may have recorded a run already, which must be ended before what the fence is for."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t")
        may_write = asyncio.Event()
        change = topic.stored.change

        async def held(edit: Any) -> None:
            await change(edit)
            await may_write.wait()

        topic.stored.change = held
        trigger = asyncio.create_task(lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN))
        await asyncio.sleep(0)
        fence = asyncio.create_task(lab.scheduler.fence(topic.name))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not fence.done()
        may_write.set()
        await fence
        assert trigger.done()
        with pytest.raises(CompactionFenced):
            await trigger
        assert not lab.scheduler.has_run(topic.name)
        assert all(run.state == RUN_STATE_ERROR for run in lab.metadata.runs(topic.name))

    asyncio.run(body())


def test_a_watcher_sees_the_phases_and_the_end() -> None:
    """Slow watchers get the latest; the last status is the end of the run they began with."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t")
        await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
        watch = lab.scheduler.watch(topic)
        first = await anext(watch)
        assert first.progress.phase == COMPACTION_PHASE_QUEUED
        await lab.compactor.started()
        await anext(watch)
        lab.compactor.progress(phase=COMPACTION_PHASE_ONE, tasks_done=1, tasks_total=4)
        lab.compactor.progress(phase=COMPACTION_PHASE_TWO, tasks_done=2, tasks_total=4)
        latest = await anext(watch)
        assert (latest.progress.phase, latest.progress.tasks_done) == (COMPACTION_PHASE_TWO, 2)
        lab.compactor.finish()
        rest = [status async for status in watch]
        assert rest[-1].status == COMPACTION_STATUS_SUCCESS
        assert rest[-1].run.number == 1
        assert [s.status async for s in lab.scheduler.watch(topic)] == [COMPACTION_STATUS_SUCCESS]

    asyncio.run(body())

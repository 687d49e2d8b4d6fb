"""A run always ends, after any error and any number of interruptions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from ledgerfold.broker.worker.compactor import OnProgress
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import (
    CompactionFailed,
    CompactionFenced,
    CompactorUnavailable,
    DiskFailure,
)
from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest
from ledgerfold.v1.records_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_ERROR,
    RUN_STATE_RUNNING,
    RUN_STATE_SUCCESS,
    RUN_TRIGGER_ADMIN,
    RunRecord,
)
from tests.support.compaction_lab import FIRST_LEDGER_ID, HeldCompactor, Lab, LabTopic
from tests.support.waiting import WAIT_S

DISK_FULL = DiskFailure("file", "write", OSError(28, "No space left on device"))
GONE = FileNotFoundError(2, "No such file or directory", "100/0.log.tmp")


class TheEnd(BaseException):
    """A BaseException that ends a task from outside."""


def in_a_run(body: Callable[[Lab, LabTopic], Awaitable[None]], lab: Lab | None = None) -> None:
    """`body` gets a topic whose run is in the worker."""

    async def main() -> None:
        made = lab or Lab()
        topic = made.topic("t")
        await made.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
        await made.compactor.started()
        async with asyncio.timeout(WAIT_S):
            await body(made, topic)

    asyncio.run(main())


async def compact(lab: Lab, topic: LabTopic) -> RunRecord:
    """Another run, to its success."""
    number = await lab.scheduler.trigger(cast(Any, topic), RUN_TRIGGER_ADMIN)
    await lab.compactor.started()
    lab.compactor.finish()
    await lab.ended(topic)
    return lab.run_of(topic, number)


@pytest.mark.parametrize("failure", [GONE, DISK_FULL, ZeroDivisionError("a defect")])
def test_a_failed_removal_is_repeated_before_the_next_run(failure: Exception) -> None:
    """FLT-01: the killed worker's tasks still wrote; the run ends with its first error."""

    async def body(lab: Lab, topic: LabTopic) -> None:
        lab.store.failure = failure
        lab.compactor.fail(CompactionFailed("phase two", "the worker died (signal SIGKILL)"))
        await lab.ended(topic)
        failed = lab.run_of(topic, 1)
        assert (failed.state, failed.error_reason) == (RUN_STATE_ERROR, "COMPACTION_FAILED")
        assert "SIGKILL" in failed.error_message
        lab.store.failure = None
        assert (await compact(lab, topic)).state == RUN_STATE_SUCCESS
        assert lab.store.removed == [FIRST_LEDGER_ID]

    in_a_run(body)


@pytest.mark.parametrize("failure", [DISK_FULL, OSError(5, "Input/output error")])
def test_a_run_ends_though_its_record_cannot_be_written(failure: Exception) -> None:
    """Also when it is interrupted, and also when it never began."""

    async def body(lab: Lab, topic: LabTopic) -> None:
        queued = lab.topic("queued")
        await lab.scheduler.trigger(queued, RUN_TRIGGER_ADMIN)
        lab.pairs.failure = failure
        await lab.scheduler.fence(queued.name)
        await lab.scheduler.fence(topic.name)
        assert not lab.scheduler.has_run(topic.name)
        assert not lab.scheduler.has_run(queued.name)
        lab.pairs.failure = None
        assert (await compact(lab, topic)).state == RUN_STATE_SUCCESS

    in_a_run(body)


@pytest.mark.parametrize("step", ["snapshot", "worker", "commit", "removal"])
def test_a_run_ends_with_its_task(step: str) -> None:
    """An error that is no Exception is passed on, and no waiter hangs."""

    async def main() -> None:
        lab, end = Lab(), asyncio.CancelledError("from outside")
        topic = lab.topic("t")
        topic.log.seal_failure = end if step == "snapshot" else None
        lab.store.verify_failure = end if step == "commit" else None
        await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
        if step != "snapshot":
            await lab.compactor.started()
        if step == "removal":
            lab.store.failure = TheEnd()
        if step == "commit":
            lab.compactor.finish()
        elif step != "snapshot":
            lab.compactor.fail(TheEnd() if step == "worker" else CompactionFailed("a", "b"))
        async with asyncio.timeout(WAIT_S):
            await lab.scheduler.ended(topic.name)
        assert lab.run_of(topic, 1).state == RUN_STATE_ERROR
        assert not lab.scheduler.has_run(topic.name)
        topic.log.seal_failure = lab.store.verify_failure = lab.store.failure = None
        assert (await compact(lab, topic)).state == RUN_STATE_SUCCESS

    asyncio.run(main())


def test_a_commit_interrupted_after_its_write_is_a_success() -> None:
    """The view is published: neither its files nor its record may say otherwise."""

    def cut_off() -> None:
        raise asyncio.CancelledError

    async def body(lab: Lab, topic: LabTopic) -> None:
        topic.after_commit = cut_off
        lab.compactor.finish()
        await lab.scheduler.ended(topic.name)
        assert lab.run_of(topic, 1).state == RUN_STATE_SUCCESS
        assert lab.store.removed == []
        assert topic.log.views.horizon == Position(1, 4)

    in_a_run(body)


def test_files_are_kept_if_their_publication_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next start decides."""

    async def body(lab: Lab, topic: LabTopic) -> None:
        def unreadable(ledger_id: int) -> None:
            raise DISK_FULL

        lab.store.verify_failure = CompactionFenced("unloaded")
        monkeypatch.setattr(lab.metadata, "ledger", unreadable)
        lab.compactor.finish()
        await lab.ended(topic)
        assert lab.store.removed == []

    in_a_run(body)


def test_a_failing_listener_does_not_stop_the_others() -> None:
    """The next run begins, and the other listeners are called."""

    async def body(lab: Lab, topic: LabTopic) -> None:
        told: list[int] = []

        def fail(record: RunRecord) -> None:
            told.append(record.number)
            raise RuntimeError("a defect")

        lab.scheduler.on_ended = {fail, lambda record: told.append(record.number)}
        other = lab.topic("other")
        await lab.scheduler.trigger(other, RUN_TRIGGER_ADMIN)
        lab.compactor.finish()
        assert (await lab.compactor.started()).topic == other.name
        assert told == [1, 1]
        assert await lab.scheduler.cancel(other.name) == 1
        assert told == [1, 1, 1, 1]

    in_a_run(body)


def test_a_topic_whose_backlog_is_unreadable_does_not_stop_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It comes last; its run reports the error."""

    async def body(lab: Lab, topic: LabTopic) -> None:
        broken, other = lab.topic("broken"), lab.topic("other")

        def unreadable() -> int:
            raise DISK_FULL

        monkeypatch.setattr(broken, "compaction_backlog_bytes", unreadable)
        for each in (broken, other):
            await lab.scheduler.trigger(each, RUN_TRIGGER_ADMIN)
        order = []
        for _ in range(2):
            lab.compactor.finish()
            order.append((await lab.compactor.started()).topic)
        assert order == [other.name, broken.name]
        await lab.scheduler.stop()

    in_a_run(body)


def test_two_interruptions_end_a_run_once() -> None:
    """The first one counts; the second waits for the same end."""

    async def body(lab: Lab, topic: LabTopic) -> None:
        cancelled, _ = await asyncio.gather(
            lab.scheduler.cancel(topic.name), lab.scheduler.fence(topic.name)
        )
        assert cancelled == 1
        assert lab.run_of(topic, 1).state == RUN_STATE_CANCELLED
        assert lab.store.removed == [FIRST_LEDGER_ID]

    in_a_run(body)


def test_an_interruption_is_handled_at_each_step() -> None:
    """After any number of turns of the loop, before the worker has it and with it."""

    async def main(turns: int) -> None:
        lab = Lab()
        topic = lab.topic("t")
        await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(WAIT_S):
            assert await lab.scheduler.cancel(topic.name) == 1
            assert lab.run_of(topic, 1).state == RUN_STATE_CANCELLED
            assert (await compact_after(lab, topic)).state == RUN_STATE_SUCCESS

    async def compact_after(lab: Lab, topic: LabTopic) -> RunRecord:
        while not lab.compactor._arrivals.empty():
            lab.compactor._arrivals.get_nowait()
        return await compact(lab, topic)

    for turns in range(12):
        asyncio.run(main(turns))


class Deaf(HeldCompactor):
    """A worker's call that answers a cancellation with something else than CancelledError."""

    def __init__(self, answer: Exception | None) -> None:
        super().__init__()
        self.answer_to_cancel = answer

    async def run(self, plan: CompactionPlan, on_progress: OnProgress) -> Manifest:
        try:
            return await super().run(plan, on_progress)
        except asyncio.CancelledError:
            if self.answer_to_cancel is not None:
                raise self.answer_to_cancel from None
            return Manifest(run_id=plan.run_id, ledger_id=plan.ledger_id, horizon=plan.horizon)


@pytest.mark.parametrize("answer", [CompactorUnavailable("gone"), ZeroDivisionError("a"), None])
def test_an_interrupted_run_is_cancelled_whatever_the_worker_answers(
    answer: Exception | None,
) -> None:
    """A late manifest is ignored, too: a cancelled run has no effect."""

    async def body(lab: Lab, topic: LabTopic) -> None:
        assert await lab.scheduler.cancel(topic.name) == 1
        assert lab.run_of(topic, 1).state == RUN_STATE_CANCELLED
        assert lab.store.removed == [FIRST_LEDGER_ID]
        assert topic.log.views.horizon is None

    in_a_run(body, Lab(compactor=Deaf(answer)))


def test_run_ids_are_unique() -> None:
    """Two brokers that share a worker have topics of the same names, and runs of one number."""

    async def run_id() -> str:
        lab = Lab()
        await lab.scheduler.trigger(lab.topic("t"), RUN_TRIGGER_ADMIN)
        return str((await lab.compactor.started()).run_id)

    assert asyncio.run(run_id()) != asyncio.run(run_id())


def test_a_start_closes_no_run_of_this_process() -> None:
    """One is triggered before the scheduler has started: tests had had runs of dead processes."""

    async def body(lab: Lab, topic: LabTopic) -> None:
        lab.scheduler.start(monitors=False)
        assert lab.run_of(topic, 1).state == RUN_STATE_RUNNING
        lab.compactor.finish()
        await lab.ended(topic)
        assert lab.run_of(topic, 1).state == RUN_STATE_SUCCESS

    in_a_run(body)

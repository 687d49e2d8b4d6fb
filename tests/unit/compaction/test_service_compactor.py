"""A user's compaction service, as the broker sees it: errors are reported, waits bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ledgerfold.broker.worker.compactor import OnProgress
from ledgerfold.broker.worker.connection import mark_vectors
from ledgerfold.broker.worker.service_compactor import ServiceCompactor, load_service
from ledgerfold.compaction_service import CompactionService
from ledgerfold.compactor.job.plan_check import check_input, check_plan
from ledgerfold.storage.errors import (
    CompactionFailed,
    CompactorUnavailable,
    InvalidRequest,
    InvalidStrategy,
    MissingFile,
)
from ledgerfold.v1.admin_pb2 import (
    COMPACTOR_STATE_DISABLED,
    COMPACTOR_STATE_READY,
    CompactionProgress,
)
from ledgerfold.v1.compactor_pb2 import AnalyzeRequest, CompactionPlan, Manifest, RunRequest
from ledgerfold.v1.records_pb2 import CompactionStrategy, SegmentRecord
from tests.support.memory_service import Copying, Knowing, Strange, Stuck
from tests.support.waiting import WAIT_S

PLAN = CompactionPlan(run_id="t#1")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Copying", "use module:Factory"),
        ("nowhere:Copying", "ModuleNotFoundError: No module named 'nowhere'"),
        ("tests.support.memory_service:Gone", "has no attribute 'Gone'"),
        ("tests.support.memory_service:Broken", r"cannot be created \(RuntimeError: no licence\)"),
        ("tests.support.memory_service:NoService", "NoService, has no `async def run`"),
    ],
)
def test_an_invalid_service_is_refused_before_the_start(name: str, why: str) -> None:
    """The broker reports it before it serves, and names the option."""
    with pytest.raises(InvalidRequest, match=f"^--compaction-service {name}: .*{why}"):
        load_service(name)


@asynccontextmanager
async def serving(
    name: str, service: CompactionService, end_seconds: float = 10
) -> AsyncIterator[ServiceCompactor]:
    compactor = ServiceCompactor(name, service, end_seconds)
    compactor.start()
    try:
        yield compactor
    finally:
        await compactor.stop()


def test_invalid_manifests() -> None:
    """A service may be of any code."""

    async def main() -> None:
        async with serving("m:Strange", Strange()) as compactor:
            with pytest.raises(
                CompactionFailed, match="at m:Strange: it returned dict, not a Mani"
            ):
                await compactor.run(PLAN, lambda _: None)

    asyncio.run(main())


def test_an_exception_of_the_service_is_reported() -> None:
    """It is reported by name and text; Ledgerfold's errors unchanged, after progress."""

    class Failing(Copying):
        async def run(self, plan: CompactionPlan, on_progress: OnProgress) -> Manifest:
            on_progress(CompactionProgress(tasks_total=7))
            if plan.topic:
                raise MissingFile("1/0.log", "the plan")
            raise LookupError("no such table")

    async def main() -> None:
        heard: list[CompactionProgress] = []
        async with serving("m:Failing", Failing()) as compactor:
            with pytest.raises(CompactionFailed, match="at m:Failing: LookupError: no such table"):
                await compactor.run(PLAN, heard.append)
            with pytest.raises(MissingFile):
                await compactor.run(CompactionPlan(topic="t"), heard.append)
        assert [each.tasks_total for each in heard] == [7, 7]

    asyncio.run(main())


def test_a_hanging_service_gets_no_other_run() -> None:
    """Nor does the broker's stop wait for it for ever; once it is done, so is its thread."""

    async def main() -> None:
        service = Stuck()
        async with serving("m:Stuck", service, end_seconds=0.05) as compactor:
            assert compactor.state == COMPACTOR_STATE_READY
            has_begun = asyncio.Event()
            run = asyncio.create_task(compactor.run(PLAN, lambda _: has_begun.set()))
            await has_begun.wait()
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            with pytest.raises(CompactorUnavailable, match="m:Stuck did not end a cancelled run"):
                await compactor.run(PLAN, lambda _: None)
            await compactor.stop()
            assert compactor.state == COMPACTOR_STATE_DISABLED
            assert compactor.is_disabled
            # It ends now, however slow the machine is.
            compactor._end_seconds = WAIT_S
            compactor._loop.call_soon_threadsafe(service.may_end.set)
        assert not compactor._thread.is_alive()

    asyncio.run(main())


def test_the_service_decides_whether_strategies_can_be_set() -> None:
    """The service says; one that has no word for it has none."""

    async def main() -> None:
        one, other = (CompactionStrategy(name=f"known:{name}") for name in ("One", "Other"))
        async with serving("m:Knowing", Knowing()) as compactor:
            await compactor.check_strategy(one)
            with pytest.raises(InvalidStrategy, match="LookupError: never heard of it"):
                await compactor.check_strategy(other)
        async with serving("m:Copying", Copying()) as compactor:
            with pytest.raises(InvalidStrategy, match="m:Copying does not check strategies"):
                await compactor.check_strategy(one)

    asyncio.run(main())


@pytest.mark.parametrize("knows", [False, True])
def test_dead_messages_require_a_service_that_supports_them(knows: bool) -> None:
    """Another one would bring them back to life. The error says what to do."""

    class Any(Copying):
        reads_deletion_vectors = knows

        async def run(self, plan: CompactionPlan, on_progress: OnProgress) -> Manifest:
            return Manifest(run_id=plan.run_id)

    plan = CompactionPlan(run_id="t#2", segments=[SegmentRecord(dead={"messages": 1})])

    async def main() -> None:
        async with serving("m:Any", Any()) as compactor:
            if knows:
                assert (await compactor.run(plan, lambda _: None)).run_id == "t#2"
                return
            with pytest.raises(CompactionFailed, match="with the worker and --compaction-segment"):
                await compactor.run(plan, lambda _: None)

    asyncio.run(main())


def test_a_worker_of_the_first_version_refuses_a_newer_plan() -> None:
    """It looks at another field, and finds an empty plan."""
    dead = CompactionPlan(run_id="t#2", segments=[SegmentRecord(dead={"messages": 1})])
    by_pulsar = CompactionPlan(run_id="t#2", has_pulsar_entries=True)
    plans = (dead, by_pulsar)
    for plan, kind in ((plan, kind) for plan in plans for kind in (RunRequest, AnalyzeRequest)):
        request = kind(plan=plan)
        mark_vectors(request)
        assert request.plan_with_vectors == plan
        for check in (check_plan, check_input):
            with pytest.raises(InvalidRequest):
                check(request.plan)
    without = RunRequest(plan=PLAN)
    mark_vectors(without)
    assert without == RunRequest(plan=PLAN)

"""The engines of a worker: another one takes the place of one that fails before it is warm."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from ledgerfold.compactor import worker
from ledgerfold.compactor.job.engine import Engine
from ledgerfold.compactor.job.inline import InlineEngine
from ledgerfold.compactor.starting import EngineStart, InlineStart, local_cores
from ledgerfold.compactor.strategies.watch import Limits
from ledgerfold.compactor.worker import EXIT_DONE, EXIT_FAILED, Worker, WorkerSettings
from ledgerfold.storage.errors import CompactorUnavailable
from ledgerfold.strategies.allowed import AllowedStrategies
from ledgerfold.v1.compactor_pb2 import GetCompactorInfoResponse
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.process


@dataclass
class FakeSpark(EngineStart):
    """Fails where a test says so: "start", "hang", "warm-up", "end" or nowhere."""

    fails_at: str
    name = "spark"
    steps: list[str] = field(default_factory=list)
    _is_over: threading.Event = field(default_factory=threading.Event)
    _cleaned: threading.Event = field(default_factory=threading.Event)

    def info(self) -> GetCompactorInfoResponse:
        return GetCompactorInfoResponse(engine=self.name)

    def start(self) -> Engine:
        if self.fails_at == "hang":
            self._is_over.wait()
        if self.fails_at == "start":
            raise CompactorUnavailable("Java does not start.")
        return InlineEngine()

    def warm_up(self, engine: Engine) -> None:
        if self.fails_at == "warm-up":
            raise OSError("no Python worker")
        if self.fails_at == "end":
            self._is_over.wait()

    def after_start(self, engine: Engine) -> None:
        self.steps.append("after_start")

    def ended(self, engine: Engine) -> str:
        if self.fails_at != "end":
            self._is_over.wait()
        return "its JVM ended"

    def abandon(self) -> None:
        self._is_over.set()
        # If the worker did not wait, it would clean up in this time.
        self._cleaned.wait(0.1)
        self.steps.append("abandon")

    def clean_up(self) -> None:
        self.steps.append("clean_up")
        self._is_over.set()
        self._cleaned.set()


async def _until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_true():  # noqa: ASYNC110 - threads change it
            await asyncio.sleep(0.01)


def _run(
    spark: FakeSpark, has_fallback: bool, until: Callable[[Worker], bool]
) -> tuple[int, list[dict[str, object]]]:
    """Returns the exit code and the events of a worker that is stopped when `until` is true."""
    events: list[dict[str, object]] = []
    settings = WorkerSettings(
        listen="127.0.0.1:0",
        engine=spark,
        fallback=InlineStart() if has_fallback else None,
        why="",
        announce=events.append,
        secret=b"secret",
        limits=Limits(1.0, 1 << 20),
        allowed=AllowedStrategies((), "test"),
    )

    async def body() -> int:
        served = Worker(settings)
        running = asyncio.create_task(served.run())
        await _until(lambda: running.done() or until(served))
        served._stopping.set()
        return await running

    return asyncio.run(body()), events


@pytest.mark.parametrize(
    ("fails_at", "why"),
    [
        ("start", "Java does not start."),
        ("hang", "spark did not start within 0.1 s"),
        ("warm-up", "spark runs no job"),
        ("end", "its JVM ended"),
    ],
)
def test_another_engine_replaces_one_that_fails_to_start(
    fails_at: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The events name it, with the reason; the worker says it of itself, too.

    The first engine's temporary files are removed after its processes have ended.
    """
    monkeypatch.setattr(worker, "_START_SECONDS", 0.1)
    spark = FakeSpark(fails_at)
    code, events = _run(
        spark,
        has_fallback=True,
        until=lambda served: (
            served._service.engine is not None and served._service.info.engine == "inline"
        ),
    )
    assert code == EXIT_DONE
    assert events[0]["engine"] == "spark"
    assert events[1:] == [{"event": "engine", "engine": "inline", "why": why}]
    assert spark.steps[-1] == "clean_up"


@pytest.mark.parametrize("fails_at", ["start", "warm-up", "end"])
def test_without_another_engine_the_worker_ends(fails_at: str) -> None:
    code, events = _run(FakeSpark(fails_at), has_fallback=False, until=lambda _: False)
    assert code == EXIT_FAILED
    assert [each["event"] for each in events[1:]] == ["unavailable"] * (fails_at == "start")


def test_a_working_engine_is_not_replaced() -> None:
    """Once it is warm, its end is the worker's: the next worker tries it again."""
    spark = FakeSpark("")
    code, events = _run(spark, has_fallback=True, until=lambda _: "after_start" in spark.steps)
    assert (code, len(events)) == (EXIT_DONE, 1)


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local[3]", 3), ("local[ 5 , 2 ]", 5), ("local", 1), ("local[0]", 1), ("spark://a:1", 2)],
)
def test_the_inline_engine_divides_work_as_spark_would(master: str, cores: int) -> None:
    assert local_cores(master) == cores
    assert InlineStart(local_cores(master)).start().cores == cores

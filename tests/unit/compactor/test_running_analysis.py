"""An analysis stops for runs, begins again after them, and ends when it is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from ledgerfold.compactor.what_if.run import AnalysisRun
from ledgerfold.compactor.what_if.work import ATTEMPTS, RunningAnalysis
from ledgerfold.storage.errors import CompactionCancelled, CompactorUnavailable
from ledgerfold.v1.what_if_pb2 import TopicWhatIf

FOUND = TopicWhatIf(topic="found")


class HeldAnalysis:
    """Runs until it is cancelled or released."""

    def __init__(self, has_begun: Callable[[], None]) -> None:
        self._has_begun, self.may_end = has_begun, threading.Event()
        self._is_cancelled = False

    def execute(self) -> TopicWhatIf:
        self._has_begun()
        self.may_end.wait()
        if self._is_cancelled:
            raise CompactionCancelled("The analysis was cancelled.")
        return FOUND

    def cancel(self, why: str = "") -> None:
        self._is_cancelled = True
        self.may_end.set()


class Lab:
    """Records the analyses that are made; `begun` reports each."""

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self.made: list[HeldAnalysis] = []
        self.begun: asyncio.Queue[int] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self.running = RunningAnalysis(self._make, executor)

    def _make(self) -> AnalysisRun:
        number = len(self.made)

        def has_begun() -> None:
            self._loop.call_soon_threadsafe(self.begun.put_nowait, number)

        self.made.append(HeldAnalysis(has_begun))
        return cast(AnalysisRun, self.made[-1])


def test_an_analysis_restarts_after_a_run() -> None:
    """The run does not wait, and the analysis still returns."""

    async def check() -> None:
        with ThreadPoolExecutor(1) as executor:
            lab = Lab(executor)
            result = asyncio.create_task(lab.running.result())
            await lab.begun.get()
            order: list[str] = []
            run = executor.submit(order.append, "run")
            lab.running.preempt()
            assert await lab.begun.get() == 1
            order.append("analysis")
            lab.made[1].may_end.set()
            assert await result == FOUND
            assert run.done()
            assert order == ["run", "analysis"]

    asyncio.run(check())


def test_an_analysis_gives_up_if_runs_never_end() -> None:
    """It says so."""

    async def check() -> None:
        with ThreadPoolExecutor(1) as executor:
            lab = Lab(executor)
            result = asyncio.create_task(lab.running.result())
            for _ in range(ATTEMPTS):
                await lab.begun.get()
                lab.running.preempt()
            with pytest.raises(CompactorUnavailable, match="interrupted the analysis"):
                await result

    asyncio.run(check())


def test_a_cancelled_analysis_ends() -> None:
    """On its way, and in the queue."""

    async def check() -> None:
        with ThreadPoolExecutor(1) as executor:
            first, second = Lab(executor), Lab(executor)
            results = [asyncio.create_task(each.running.result()) for each in (first, second)]
            await first.begun.get()
            for lab in (second, first):
                lab.running.cancel()
            for result in results:
                with pytest.raises(CompactionCancelled):
                    await result
            assert second.begun.empty()

    asyncio.run(check())

"""The simulated loop: the death of a process."""

from __future__ import annotations

import asyncio
import contextvars
from random import Random

from ledgerfold.broker.common.shielding import run_to_completion
from tests.simulation.executor import JOBS_MAX, SimExecutor
from tests.simulation.jobs import Process
from tests.simulation.loop import PROCESS, Pace, SimLoop


def test_a_task_that_is_created_by_the_end_of_another_dies_too() -> None:
    """A client waited for ever for a cleaning whose files a new task deletes when it is cancelled:
    its job waited for a thread of the dead process.
    """
    loop, process = SimLoop(Random(1), Pace()), Process("broker")
    executor = SimExecutor(loop.jobs, process)

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            job = loop.run_in_executor(executor, int)
            await run_to_completion(_wait_for(job))
            raise

    async def die() -> asyncio.Task[None]:
        for _ in range(JOBS_MAX):
            loop.run_in_executor(executor, loop.jobs.sleep, 60)
        context = contextvars.Context()
        context.run(PROCESS.set, process)
        task = loop.create_task(work(), context=context)
        loop.call_later(1, loop.kill, process)
        await asyncio.wait({task})
        return task

    assert loop.run_until_complete(die()).cancelled()
    loop.close()


async def _wait_for(job: asyncio.Future[int]) -> None:
    await job

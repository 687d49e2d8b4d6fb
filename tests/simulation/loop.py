"""An event loop without a selector: a seed determines the next step and the time.

* Ready work is a step of a task, a plain callback, or a step of a job (tests/simulation/jobs.py).
  One is picked at random; for some stretches the oldest is preferred, or one is delayed.
* asyncio's guarantees are kept: plain callbacks run in the order in which they were scheduled. A
  task never has two steps ready.
* Time advances only a little at each step; if nothing is ready it jumps to the next timer.
* Picks are by creation number, never by address or hash, so that a seed repeats the same run.

    >>> async def an_hour() -> float:
    ...     await asyncio.sleep(3_600)
    ...     return asyncio.get_running_loop().time()
    >>> loop = SimLoop(Random(1), Pace())
    >>> loop.run_until_complete(an_hour()) >= 3_600
    True
    >>> loop.close()
"""

from __future__ import annotations

import asyncio
import heapq
from bisect import insort
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.simulation.jobs import Jobs, Process

STEPS_MAX = 60_000
# The approximate duration of a step.
STEP_S = 0.001
# The process whose code runs now. None: a client, or the simulator itself.
PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)


class Hang(AssertionError):
    """Nothing can continue, or there is no end."""


@dataclass(frozen=True)
class Pace:
    """The rule that picks the next step. Shares are probabilities."""

    # A step of a job rather than one of the loop, if there are both.
    jobs: float = 0.5
    # The oldest rather than any.
    in_order: float = 0.2
    # For this number of steps one task, or one job, is skipped.
    starve_steps: int = 60
    starve: float = 0.01


class SimLoop(asyncio.BaseEventLoop):
    """`on_step` is called between two steps: crashes happen there."""

    # asyncio's own queues, which its call_soon and call_at fill.
    _ready: deque[Any]
    _scheduled: list[Any]

    def __init__(self, random: Random, pace: Pace) -> None:
        super().__init__()
        self.random, self.pace = random, pace
        self.steps = 0
        self._now_s = 0.0
        self.jobs = Jobs(self)
        self.on_step: Callable[[], None] = lambda: None
        self.errors: list[dict[str, Any]] = []
        self._task_numbers: dict[asyncio.Task[Any], int] = {}
        self._processes: dict[asyncio.Task[Any], Process | None] = {}
        self._last_task = 0

        self._task_steps: dict[int, asyncio.Handle] = {}
        self._numbers: list[int] = []
        self._callbacks: deque[asyncio.Handle] = deque()
        self._starved = -1
        self._starved_until = 0
        # The clock stops until that step.
        self._held_until = 0
        self.set_exception_handler(lambda _, context: self.errors.append(context))

    # The methods that asyncio requires of a loop

    def time(self) -> float:
        return self._now_s

    def _process_events(self, event_list: Any) -> None:
        """There are no events."""

    def _write_to_self(self) -> None:
        """No thread sleeps."""

    def create_task(
        self, coro: Any, *, name: object = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)  # type: ignore[arg-type]
        self._last_task += 1
        self._task_numbers[task] = self._last_task
        self._processes[task] = PROCESS.get() if context is None else context.get(PROCESS)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        del self._task_numbers[task], self._processes[task]

    def advance(self, by_s: float) -> None:
        """Advances time at once; due work runs in any order."""
        self._now_s += by_s

    @property
    def is_idle(self) -> bool:
        """Returns whether only the caller has a step to take now."""
        return not (self._task_steps or self._callbacks or self._ready or self.jobs.runnable())

    def stop_at(self, time_s: float) -> None:
        """As advance(), to that time; never backwards."""
        self._now_s = max(self._now_s, time_s)

    def hold(self, steps: int) -> None:
        """Stops the clock for this number of steps, or until nothing else is ready."""
        self._held_until = self.steps + steps

    def let_go(self) -> None:
        self._held_until = 0

    # Steps

    def _run_once(self) -> None:
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise Hang(f"no end after {STEPS_MAX} steps\n{self.stacks()}")
        if self.steps >= self._held_until:
            self._now_s += self.random.random() * 2 * STEP_S
        self._take_in()
        jobs = self.jobs.runnable(self._starved if self.steps < self._starved_until else -1)
        has_handles = bool(self._numbers or self._callbacks)
        if not (jobs or has_handles):
            self._jump()
        elif jobs and (not has_handles or self.random.random() < self.pace.jobs):
            self.jobs.step(self._pick_job(jobs))
        else:
            self._run_handle(self._pick_handle())
        self.on_step()

    def _take_in(self) -> None:
        while self._scheduled and self._scheduled[0]._when <= self._now_s:
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False
            if not timer._cancelled:
                self._ready.append(timer)
        arrived: dict[int, asyncio.Handle] = {}
        while self._ready:
            handle = self._ready.popleft()
            if handle._cancelled:
                continue
            owner = getattr(handle._callback, "__self__", None)
            number = self._task_numbers.get(owner) if isinstance(owner, asyncio.Task) else None
            if number is None or number in self._task_steps or number in arrived:
                self._callbacks.append(handle)
            else:
                arrived[number] = handle
        # Those that arrive together may arrive in the order of a set: their numbers decide.
        for number in sorted(arrived):
            self._task_steps[number] = arrived[number]
            insort(self._numbers, number)

    def _jump(self) -> None:
        """Jumps to the next timer, or to the end of a slow disk call."""
        while self._scheduled and self._scheduled[0]._cancelled:
            heapq.heappop(self._scheduled)._scheduled = False
        times = [self._scheduled[0]._when] if self._scheduled else []
        times += self.jobs.wake_times()
        if self.steps < self._starved_until:
            self._starved_until = 0
        elif self.steps < self._held_until:
            self._held_until = 0
        elif not times:
            raise Hang(f"nothing is left to do, and the scenario is not over\n{self.stacks()}")
        else:
            self._now_s = max(self._now_s, min(times))

    def _pick_job(self, jobs: list[Any]) -> Any:
        return jobs[0] if len(jobs) == 1 else jobs[int(self.random.random() * len(jobs))]

    def _pick_handle(self) -> asyncio.Handle:
        pick = self.random.random
        count = len(self._numbers) + bool(self._callbacks)
        at = int(pick() * count)
        if at >= len(self._numbers):
            return self._callbacks.popleft()
        if pick() < self.pace.in_order:
            at = self._numbers.index(next(iter(self._task_steps)))
        number = self._numbers[at]
        if number == self._starved and self.steps < self._starved_until and count > 1:
            at = (at + 1) % len(self._numbers)
            number = self._numbers[at]
        elif pick() < self.pace.starve:
            self._starved = number
            self._starved_until = self.steps + self.pace.starve_steps
        del self._numbers[at]
        return self._task_steps.pop(number)

    def _run_handle(self, handle: asyncio.Handle) -> None:
        if not handle._cancelled:
            handle._run()

    # The end of a process

    def kill(self, process: Process) -> None:
        """Kills its tasks and jobs, which have no further effect; no other process takes a step."""
        process.is_dead = True
        self.jobs.kill(process)
        cancelled = set[asyncio.Task[Any]]()
        for _ in range(1000):
            # Tasks that end may create others, which would wait for threads that are dead.
            for task in self._tasks_of(process):
                if task not in cancelled:
                    cancelled.add(task)
                    task.cancel()
            self._take_in()
            handles = self._handles_of(process)
            if not handles:
                break
            for handle in handles:
                self._run_handle(handle)
        for task in self._tasks_of(process):
            # Whatever it waits for no longer matters.
            _forget_pending(task)
        for timer in self._scheduled:
            if timer._context is not None and timer._context.get(PROCESS) is process:
                timer.cancel()

    def kill_clients(self) -> None:
        """Kills the tasks that remain at the end of a simulation."""
        for task in self._processes:
            task.cancel()
        for _ in range(1000):
            self._take_in()
            if not (self._task_steps or self._callbacks):
                break
            for handle in [*self._task_steps.values(), *self._callbacks]:
                self._run_handle(handle)
            self._task_steps.clear()
            self._numbers.clear()
            self._callbacks.clear()
        for task in self._processes:
            _forget_pending(task)

    def _tasks_of(self, process: Process | None) -> list[asyncio.Task[Any]]:
        return [task for task, each in self._processes.items() if each is process]

    def _handles_of(self, process: Process) -> list[asyncio.Handle]:
        found = []
        for number in tuple(self._numbers):
            handle = self._task_steps[number]
            if _process_of(handle) is process:
                self._numbers.remove(number)
                found.append(self._task_steps.pop(number))
        for handle in tuple(self._callbacks):
            if _process_of(handle) is process:
                self._callbacks.remove(handle)
                found.append(handle)
        return found

    def stacks(self) -> str:
        """Returns where each task and job waits."""
        lines = []
        for task in self._task_numbers:
            frames = _await_chain(task)
            lines.append(f"  task {task.get_coro().__qualname__}: {' < '.join(reversed(frames))}")  # type: ignore[union-attr]
        return "\n".join(lines + self.jobs.stacks())


def _forget_pending(task: Any) -> None:
    """Forgets a pending task without waiting for it, or a warning."""
    task._log_destroy_pending = False


def _process_of(handle: Any) -> Process | None:
    process: Process | None = handle._context.get(PROCESS)
    return process


def _await_chain(task: asyncio.Task[Any]) -> list[str]:
    coroutine: Any = task.get_coro()
    frames: list[str] = []
    while coroutine is not None and hasattr(coroutine, "cr_frame"):
        frame = coroutine.cr_frame
        if frame is not None:
            name = frame.f_code.co_filename.rsplit("/", 1)[-1]
            frames.append(f"{name}:{frame.f_lineno} {frame.f_code.co_name}")
        coroutine = coroutine.cr_await
    return frames

"""Jobs in threads of which one runs at a time, the one with the baton.

A job of an executor has a separate thread, and gives the baton back at each call of the file system
and of the metadata store (tests/simulation/disk.py, key_value.py): so a flush can be half done
while the loop continues. The loop's seed determines which job takes the next step, and when its
result arrives. While the loop's own thread is in such a call, jobs may take steps, too.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from tests.simulation.loop import SimLoop

# How often jobs take steps while the loop's thread is in a call, and how many.
_MEANWHILE_SHARE, _MEANWHILE_STEPS_MAX = 0.4, 6
# How often a job continues at a seam where others might have run in between.
_GO_ON_SHARE = 0.4


class Crash(BaseException):
    """The process is dead. Not an Exception, because no code may handle it."""


class Deadlock(AssertionError):
    """The loop's thread waits for a lock that will never be released."""


class Lock(Protocol):
    """A lock that jobs may wait for."""

    is_held: bool


class Process:
    """A broker, or a worker, which dies as a unit.

    `crash_in`: the number of seam calls until it does; `crash_at`: the kind of call before which it
    dies.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.crash_in = -1
        self.crash_at = ""

    @property
    def is_doomed(self) -> bool:
        return self.crash_in >= 0 or bool(self.crash_at)


class Job:
    """A call of an executor, from its submission to the arrival of its result."""

    def __init__(self, number: int, process: Process | None, call: Callable[[], Any]) -> None:
        self.number, self.process, self.call = number, process, call
        self.future: Future[Any] = Future()
        self.outcome: tuple[Any, BaseException | None] | None = None
        self.wakes_at_s = 0.0
        self.waits_for: Lock | None = None
        self.thread: _Thread | None = None
        self.on_done: Callable[[], None] = lambda: None


class _Thread:
    """Runs one job after the other; waits for the baton in between."""

    idle: ClassVar[deque[_Thread]] = deque()

    def __init__(self) -> None:
        self.baton = threading.Lock()
        self.baton.acquire()
        self.job: Job | None = None
        self.jobs: Jobs | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="simulated")
        self._thread.start()

    def _run(self) -> None:
        while True:
            self.baton.acquire()
            job, jobs = self.job, self.jobs
            assert job is not None
            assert jobs is not None
            try:
                job.outcome = (job.call(), None)
            except BaseException as error:
                job.outcome = (None, error)
            self.job = self.jobs = None
            jobs.give_back()

    def frame(self) -> Any:
        return sys._current_frames().get(self._thread.ident or 0)


class Jobs:
    """All jobs of one simulation."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._last = 0
        self._jobs: list[Job] = []
        self._current: Job | None = None
        self._back = threading.Lock()
        self._back.acquire()

    def now_s(self) -> float:
        return self._loop.time()

    # Submitting

    def submit(self, process: Process | None, call: Callable[[], Any]) -> Job:
        self._last += 1
        job = Job(self._last, process, call)
        self._jobs.append(job)
        return job

    # Scheduling, in the loop's thread

    def runnable(self, starved: int = -1) -> list[Job]:
        now_s = self._loop.time()
        return [
            job
            for job in self._jobs
            if job.wakes_at_s <= now_s
            and (job.waits_for is None or not job.waits_for.is_held)
            and job.number != starved
        ]

    def wake_times(self) -> list[float]:
        now_s = self._loop.time()
        return [job.wakes_at_s for job in self._jobs if job.wakes_at_s > now_s]

    def step(self, job: Job) -> None:
        """Runs to its next seam call, to its end, or until its result arrives."""
        if job.outcome is not None:
            self._deliver(job)
            return
        if job.thread is None:
            if not job.future.set_running_or_notify_cancel():
                self._jobs.remove(job)
                job.on_done()
                return
            job.thread = _Thread.idle.pop() if _Thread.idle else _Thread()
            job.thread.job, job.thread.jobs = job, self
        self._resume(job)

    def _resume(self, job: Job) -> None:
        thread = job.thread
        assert thread is not None
        self._current = job
        thread.baton.release()
        self._back.acquire()
        self._current = None
        if job.outcome is not None:
            job.thread = None
            _Thread.idle.append(thread)

    def _deliver(self, job: Job) -> None:
        self._jobs.remove(job)
        job.on_done()
        assert job.outcome is not None
        result, error = job.outcome
        if error is None:
            job.future.set_result(result)
        else:
            job.future.set_exception(error)

    def kill(self, process: Process) -> None:
        """Kills the jobs, which unwind without any effect."""
        for job in [each for each in self._jobs if each.process is process]:
            while job.thread is not None:
                self._resume(job)
            self._jobs.remove(job)

    def is_busy(self, process: Process) -> bool:
        return any(job.process is process for job in self._jobs)

    def stacks(self) -> list[str]:
        lines = []
        for job in self._jobs:
            names = []
            frame = job.thread.frame() if job.thread is not None else None
            while frame is not None:
                name = frame.f_code.co_filename.rsplit("/", 1)[-1]
                names.append(f"{name}:{frame.f_lineno}")
                frame = frame.f_back
            lines.append(f"  job {job.number}: {' < '.join(names[:8])}")
        return lines

    # At a seam, in any thread

    def reach(self, process: Process, operation: str) -> None:
        """Called before the effect of a call. Raises Crash if the process is to die here."""
        if process.crash_at == operation and not process.is_dead:
            process.is_dead = True
            raise Crash(process.name)

    @property
    def current(self) -> Job | None:
        """The job that runs; None in the loop's thread."""
        return self._current

    @property
    def in_job(self) -> bool:
        return self._current is not None

    def switch(self, process: Process) -> None:
        """Lets other jobs run. Raises Crash if the process is dead, or dies here."""
        if process.is_dead:
            raise Crash(process.name)
        if process.crash_in >= 0:
            process.crash_in -= 1
            if process.crash_in < 0:
                process.is_dead = True
                raise Crash(process.name)
        if self._current is not None:
            # The baton often returns at once, and passing it costs more than most steps.
            if self._loop.random.random() >= _GO_ON_SHARE:
                self.pause()
        elif self._loop.random.random() < _MEANWHILE_SHARE:
            for _ in range(1 + int(self._loop.random.random() * _MEANWHILE_STEPS_MAX)):
                self._step_any()
        if process.is_dead:
            raise Crash(process.name)

    def pause(self) -> None:
        """In a job: gives the baton back until the job's next turn."""
        job = self._current
        assert job is not None
        assert job.thread is not None
        self._back.release()
        job.thread.baton.acquire()

    def give_back(self) -> None:
        self._back.release()

    def sleep(self, delay_s: float) -> None:
        """Simulates a slow disk: the job is not scheduled for this time. (The loop's thread cannot
        be slow.)
        """
        if self._current is not None:
            self._current.wakes_at_s = self._loop.time() + delay_s
            self.pause()

    def _step_any(self) -> bool:
        running = [job for job in self.runnable() if job.outcome is None]
        if not running:
            return False
        self.step(running[int(self._loop.random.random() * len(running))])
        return True

    def wait_for(self, lock: Lock) -> None:
        """Waits until it is released."""
        while lock.is_held:
            job = self._current
            if job is not None:
                job.waits_for = lock
                self.pause()
                job.waits_for = None
                if job.process is not None and job.process.is_dead:
                    raise Crash(job.process.name)
            elif not self._step_any():
                times = self.wake_times()
                if not times:
                    raise Deadlock("\n".join(self.stacks()))
                self._loop._now_s = max(self._loop.time(), min(times))

"""The broker's thread pool and the storage's locks, controlled by a seed.

`cooperative_locks` replaces locks and conditions of the storage by those that pass the baton on
(tests/simulation/jobs.py) instead of blocking; `SimExecutor` runs jobs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tests.simulation.jobs import Job, Jobs, Process

# As the broker's own pool.
JOBS_MAX = 8


class CooperativeLock:
    """A threading.Lock that passes the baton on. `jobs`: of the current simulation."""

    jobs: Jobs | None = None

    def __init__(self) -> None:
        self.is_held = False

    def acquire(self, blocking: bool = True) -> bool:
        if self.is_held:
            if not blocking:
                return False
            _jobs().wait_for(self)
        self.is_held = True
        return True

    def release(self) -> None:
        self.is_held = False

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class CooperativeCondition:
    """A threading.Condition that passes the baton on. Its lock may be acquired again by its holder,
    which waits only if it has acquired it once.
    """

    def __init__(self) -> None:
        self._lock = CooperativeLock()
        self._holder: Job | None = None
        self._depth = 0
        # Held until they are notified.
        self._waiting: list[CooperativeLock] = []

    def __enter__(self) -> None:
        job = _jobs().current
        if not (self._depth and self._holder is job):
            self._lock.acquire()
            self._holder = job
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._lock.release()

    def wait(self) -> None:
        assert self._depth == 1
        notice = CooperativeLock()
        notice.acquire()
        self._waiting.append(notice)
        self.__exit__()
        try:
            _jobs().wait_for(notice)
        finally:
            self.__enter__()

    def notify_all(self) -> None:
        for each in self._waiting:
            each.release()
        self._waiting.clear()


def _jobs() -> Jobs:
    assert CooperativeLock.jobs is not None
    return CooperativeLock.jobs


@contextmanager
def cooperative_locks(jobs: Jobs) -> Iterator[None]:
    """Replaces locks in the storage during a simulation."""
    CooperativeLock.jobs = jobs
    stand_in = SimpleNamespace(Lock=CooperativeLock, Condition=CooperativeCondition)
    with (
        patch("ledgerfold.storage.append_files.threading", stand_in),
        patch("ledgerfold.storage.ledger.threading", stand_in),
        patch("ledgerfold.storage.metadata.threading", stand_in),
        patch("ledgerfold.storage.reader.threading", stand_in),
        patch("ledgerfold.storage.lru_cache.threading", stand_in),
        patch("ledgerfold.storage.shared_lock.threading", stand_in),
        patch("ledgerfold.storage.shared_sync.threading", stand_in),
    ):
        yield


class SimExecutor(ThreadPoolExecutor):
    """Runs JOBS_MAX at once, the others in order. `process` None: that of the submitter."""

    def __init__(self, jobs: Jobs, process: Process | None = None) -> None:
        super().__init__(max_workers=1)
        self._sim_jobs, self._process = jobs, process
        self._running = 0
        self._queue: deque[tuple[Job, Callable[[], Any]]] = deque()
        self.current_process: Callable[[], Process | None] = lambda: None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        process = self._process or self.current_process()
        jobs = self._sim_jobs

        def call() -> Any:
            return fn(*args, **kwargs)

        if self._running >= JOBS_MAX:
            # It waits for a place as in the real pool; it becomes a job when there is one.
            waiting = Job(0, process, call)
            self._queue.append((waiting, call))
            return waiting.future
        job = jobs.submit(process, call)
        self._begin(job)
        return job.future

    def _begin(self, job: Job) -> None:
        self._running += 1
        job.on_done = self._ended

    def _ended(self) -> None:
        self._running -= 1
        if self._queue:
            waiting, call = self._queue.popleft()
            job = self._sim_jobs.submit(waiting.process, call)
            job.future = waiting.future
            self._begin(job)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Does nothing: threads are shared."""

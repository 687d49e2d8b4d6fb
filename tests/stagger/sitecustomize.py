"""Pauses threads where they hand work over, at random, to find what assumes an order of threads.

`scripts/test --stagger SEED` pauses the tests' threads (tests/conftest.py). The processes that they
start are paused too: Python imports this module when it starts, because its folder is in
PYTHONPATH.

A thread pauses around each hand-over: `submit` of an executor, the start and the end of a thread,
and `call_soon_threadsafe`. An event loop pauses before steps of tasks: other threads and processes
may see what is only half done. Nothing is reordered: the operating system may make each of these
pauses, too. So a failure is a defect of the test or of the product, unless a time limit expired.

The seed, the test and the place determine whether a place is slow, and how long each pause takes.
So a test has the same pauses alone as in the whole suite. Most places never pause; a few pause for
up to 300 ms, so that everything else overtakes them.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

VARIABLE = "LEDGERFOLD_STAGGER"
# The shares of places with long and with short pauses: of hand-overs, and of steps on event loops.
_HAND_OVERS, _STEPS = (0.2, 0.25), (0.03, 0.1)
_LONG_S, _SHORT_S = (0.03, 0.3), (0.001, 0.005)
# The probability of the first pause of such a place. It becomes rare: some are passed a thousand
# times.
_CALLS = 0.7
# Bound here, since tests replace it.
_sleep = time.sleep


class _Place:
    def __init__(self, seed: str, shares: tuple[float, float]) -> None:
        self._random = Random(seed)
        self._range_s: tuple[float, float] | None = None
        if self._random.random() < shares[0]:
            self._range_s = _LONG_S
        elif self._random.random() < shares[1]:
            self._range_s = _SHORT_S
        self._pauses = 0

    def pause(self) -> None:
        if self._range_s is None:
            return
        if self._random.random() < _CALLS / (1 + self._pauses / 4) ** 2:
            self._pauses += 1
            _sleep(self._random.uniform(*self._range_s))


class Stagger:
    """The places of one process. As a pytest plugin, it forgets them before each test."""

    def __init__(self, seed: str, process: str = "") -> None:
        self._seed, self._process = seed, process
        self._places: dict[str, _Place] = {}
        self._is_installed = False

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Child processes of the test get the same seed."""
        self._process = nodeid
        self._places = {}
        os.environ[VARIABLE] = f"{self._seed} {nodeid}"

    def pause(self, place: str, shares: tuple[float, float] = _HAND_OVERS) -> None:
        known = self._places.get(place)
        if known is None:
            known = _Place(f"{self._seed} {self._process} {place}", shares)
            known = self._places.setdefault(place, known)
        known.pause()

    def begin(self) -> None:
        """Threads pause from now on; executors and event loops as soon as they are used."""
        threads: Any = threading.Thread
        start, run = threads.start, threads.run

        def paused_start(thread: threading.Thread) -> None:
            self._install()
            start(thread)
            self.pause(f"started {_name(getattr(thread, '_target', None))}")

        def paused_run(thread: threading.Thread) -> None:
            name = _name(getattr(thread, "_target", None))
            self.pause(f"runs {name}")
            try:
                run(thread)
            finally:
                self.pause(f"ran {name}")

        threads.start, threads.run = paused_start, paused_run

    def _install(self) -> None:
        """Only once the process has a thread: most child processes need not import asyncio."""
        if self._is_installed:
            return
        self._is_installed = True
        from asyncio import BaseEventLoop, Handle, SelectorEventLoop
        from concurrent.futures import ThreadPoolExecutor

        executors: Any = ThreadPoolExecutor
        loops: Any = BaseEventLoop
        handles: Any = Handle
        submit, call_soon, step = executors.submit, loops.call_soon_threadsafe, handles._run

        def paused_submit(
            executor: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
        ) -> Any:
            name = _name(fn, *args)
            future = submit(executor, self._paused(name, fn), *args, **kwargs)
            self.pause(f"submitted {name}")
            return future

        def paused_call_soon(
            loop: BaseEventLoop, callback: Callable[..., Any], *args: Any, context: Any = None
        ) -> Any:
            name = _name(callback, *args)
            self.pause(f"calls {name}")
            handle = call_soon(loop, self._paused(name, callback), *args, context=context)
            self.pause(f"called {name}")
            return handle

        def paused_step(handle: Any) -> None:
            # Other loops, and loops without threads, run alone.
            if isinstance(handle._loop, SelectorEventLoop) and threading.active_count() > 1:
                self.pause(f"steps {_step_name(handle._callback)}", _STEPS)
            step(handle)

        executors.submit, loops.call_soon_threadsafe = paused_submit, paused_call_soon
        handles._run = paused_step

    def _paused(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def paused(*args: Any, **kwargs: Any) -> Any:
            self.pause(f"before {name}")
            try:
                return work(*args, **kwargs)
            finally:
                self.pause(f"after {name}")

        return paused


def _name(work: Any, *args: Any) -> str:
    """Returns the name of the function that is called in the end.

    >>> _name(functools.partial(os.getcwd))
    'getcwd'
    """
    if isinstance(work, functools.partial):
        return _name(work.func, *work.args, *args)
    name = str(getattr(work, "__qualname__", type(work).__qualname__))
    # asyncio.to_thread calls the function in a context.
    return _name(*args) if name == "Context.run" and args else name


def _step_name(callback: Any) -> str:
    """Returns the name of the coroutine, for a step of a task."""
    task: Any = getattr(callback, "__self__", None)
    return _name(task.get_coro() if hasattr(task, "get_coro") else callback)


def staggered(seed: str) -> Stagger:
    """Pauses this process's threads, and those of the processes that it starts."""
    # A worker of pytest-xdist has imported this module when it started, under that name.
    begun: Stagger | None = getattr(sys.modules.get("sitecustomize"), "of_process", None)
    if begun is not None:
        return begun
    folder = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    os.environ[VARIABLE] = seed
    stagger = Stagger(seed)
    stagger.begin()
    return stagger


of_process: Stagger | None = None
if __name__ == "sitecustomize" and VARIABLE in os.environ:
    of_process = Stagger(os.environ[VARIABLE], " ".join(sys.orig_argv[1:3]))
    of_process.begin()

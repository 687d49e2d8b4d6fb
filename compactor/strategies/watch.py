"""Holds a strategy of one's own to its bounds, in the process that asks it: time and memory.

**Time**: a question that is not answered within the timeout. A timer looks at it a few times within
that, so that asking costs an assignment and no call of the system. Python code is interrupted;
what does not heed that (a loop in C, one that catches everything) ends with its process, by a
thread that needs no interpreter, and the traceback goes to standard error.

**Memory**: what the process may take in addition to what it has, by the kernel's count of private
memory (RLIMIT_DATA; Linux only). Code that cannot take a MemoryError ends with its process. What is
only reserved counts there, too: a process that is held must be started with ENVIRONMENT.

    >>> watch = Watch(Limits(timeout_seconds=0.05))
    >>> with watch.held(), watch.asking("the first question"):
    ...     while True:
    ...         pass
    Traceback (most recent call last):
      ...
    ledgerfold.compactor.strategies.watch.Exceeded: it did not answer within 0.05 s
"""

from __future__ import annotations

import faulthandler
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

# Arrow's own allocator reserves 1 GiB at its first allocation, however small that is.
ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system"}

# How often a timeout is looked at.
_LOOKS = 4
# For code that was interrupted to come out, before its process ends.
_GRACE_SECONDS = 5.0
_STATUS = Path("/proc/self/status")
_STDERR = 2


class Limits(NamedTuple):
    """Of a strategy of one's own. `memory_bytes`: what a task takes with it, all in all."""

    timeout_seconds: float = 60.0
    memory_bytes: int = 1024 * 1024 * 1024


DEFAULT_LIMITS = Limits()


class Exceeded(BaseException):
    """A bound was. No Exception: the strategy's own code might well catch one."""


class Unwatched:
    """Where questions are written down and nobody looks."""

    # What is being asked; None between questions.
    question: object = None
    # The last one: what an error is about.
    last: object = None

    def done(self) -> None:
        """With questions that were written down one after the other."""
        if self.question is not None:
            self.last, self.question = self.question, None


class Watch(Unwatched):
    """`held` around everything, `asking` around each question; one in a process at a time.

    Where questions are many, each an object of its own, writing it to `question` costs the least.
    Only the main thread can be interrupted: on another one the bounds are not kept.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        # The question at the last look.
        self._seen: object = None
        self._looks = self._holders = 0
        # As they were before.
        self._handler: Any = signal.SIG_DFL
        self._timer = (0.0, 0.0)
        self._rlimit = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Raises Exceeded. Tasks of one process may be held within each other."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._holders += 1
        if self._holders == 1:
            self._begin()
        try:
            yield
        except MemoryError as error:
            raise self._too_much() from error
        finally:
            self._holders -= 1
            if self._holders == 0:
                self._end()

    @contextmanager
    def asking(self, question: object) -> Iterator[None]:
        """Raises Exceeded."""
        self._seen = None
        self.question = self.last = question
        try:
            yield
        except MemoryError as error:
            raise self._too_much() from error
        finally:
            self.question = None

    def _too_much(self) -> Exceeded:
        most = self.limits.memory_bytes / (1024 * 1024)
        return Exceeded(f"a task takes more than {most:g} MiB of memory with it")

    def _begin(self) -> None:
        self._handler = signal.signal(signal.SIGALRM, self._look)
        self._rlimit = resource.getrlimit(resource.RLIMIT_DATA)
        _, hard = self._rlimit
        most = _data_bytes() + self.limits.memory_bytes
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
        interval = self.limits.timeout_seconds / _LOOKS
        self._timer = signal.setitimer(signal.ITIMER_REAL, interval, interval)
        self._arm()

    def _end(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        resource.setrlimit(resource.RLIMIT_DATA, self._rlimit)
        signal.signal(signal.SIGALRM, self._handler)
        signal.setitimer(signal.ITIMER_REAL, *self._timer)

    def _look(self, number: int, frame: FrameType | None) -> None:
        if self.question is None or self.question is not self._seen:
            self._seen, self._looks = self.question, 0
            self._arm()
            return
        self._looks += 1
        if self._looks >= _LOOKS:
            raise Exceeded(f"it did not answer within {self.limits.timeout_seconds:g} s")

    def _arm(self) -> None:
        """Until the next look that finds it getting on."""
        seconds = self.limits.timeout_seconds * (1 + 2 / _LOOKS) + _GRACE_SECONDS
        faulthandler.dump_traceback_later(seconds, exit=True, file=_STDERR)


def _data_bytes() -> int:
    """What counts against RLIMIT_DATA. 0 where there is no /proc."""
    try:
        status = _STATUS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0

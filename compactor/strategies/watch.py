"""Time and memory limits for a user-defined strategy, in the process that runs it.

**Time**: each question must be answered within the timeout. A timer checks this a few times per
timeout, so that asking costs an assignment and no system call. Python code is interrupted. Code
that ignores the interruption (a loop in C, a handler that catches everything) is ended with its
process, by a thread that does not need the GIL; the traceback goes to standard error.

**Memory**: the limit applies to memory in addition to that in use at the start, by the kernel's
count of private memory (RLIMIT_DATA; Linux only). Code that does not handle a MemoryError ends with
its process. Reserved memory counts, too: such a process must be started with ENVIRONMENT.

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
from types import FrameType
from typing import Any, NamedTuple

from ledgerfold.compactor.memory import status_bytes

# Arrow's own allocator reserves 1 GiB at its first allocation, even for a small one.
ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system"}

# The number of checks per timeout.
_CHECKS = 4
# The time in which interrupted code must return before its process is ended.
_GRACE_SECONDS = 5.0
_STDERR = 2


class Limits(NamedTuple):
    """The limits of a user-defined strategy. `memory_bytes`: for a task, in addition to the memory
    that the task itself uses.
    """

    timeout_seconds: float = 60.0
    memory_bytes: int = 1024 * 1024 * 1024


DEFAULT_LIMITS = Limits()


class Exceeded(BaseException):
    """The error for an exceeded limit. Not an Exception, which the strategy's code might catch."""


class Unwatched:
    """A record of questions without limits."""

    # The current question; None between questions.
    question: object = None
    # The last question, which an error message names.
    last: object = None

    def done(self) -> None:
        """Ends a series of questions that were assigned to `question`."""
        if self.question is not None:
            self.last, self.question = self.question, None


class Watch(Unwatched):
    """A watch: `held` around a task, `asking` around each question. One per process at a time.

    For many questions, each a separate object, assigning to `question` is cheapest. Only the main
    thread can be interrupted: on other threads the limits do not apply.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        # The question at the last check.
        self._last_question: object = None
        self._checks = self._holders = 0
        # The previous settings of the process.
        self._handler: Any = signal.SIG_DFL
        self._timer = (0.0, 0.0)
        self._rlimit = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Applies the limits inside the block, which may be nested. Raises Exceeded."""
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
        """Records a question around its answer. Raises Exceeded."""
        self._last_question = None
        self.question = self.last = question
        try:
            yield
        except MemoryError as error:
            raise self._too_much() from error
        finally:
            self.question = None

    def _too_much(self) -> Exceeded:
        most = self.limits.memory_bytes / (1024 * 1024)
        return Exceeded(f"a task with it takes more than {most:g} MiB of memory")

    def _begin(self) -> None:
        self._handler = signal.signal(signal.SIGALRM, self._check)
        self._rlimit = resource.getrlimit(resource.RLIMIT_DATA)
        _, hard = self._rlimit
        # VmData is what counts against RLIMIT_DATA.
        most = status_bytes("self", "VmData") + self.limits.memory_bytes
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
        interval = self.limits.timeout_seconds / _CHECKS
        self._timer = signal.setitimer(signal.ITIMER_REAL, interval, interval)
        self._arm()

    def _end(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        resource.setrlimit(resource.RLIMIT_DATA, self._rlimit)
        signal.signal(signal.SIGALRM, self._handler)
        signal.setitimer(signal.ITIMER_REAL, *self._timer)

    def _check(self, number: int, frame: FrameType | None) -> None:
        if self.question is None or self.question is not self._last_question:
            try:
                self._arm()
            except RuntimeError as error:
                # No memory is left for its thread. The next check tries again.
                raise self._too_much() from error
            self._last_question, self._checks = self.question, 0
            return
        self._checks += 1
        if self._checks >= _CHECKS:
            raise Exceeded(f"it did not answer within {self.limits.timeout_seconds:g} s")

    def _arm(self) -> None:
        """Arms the forced end of the process, unless the next check finds progress."""
        seconds = self.limits.timeout_seconds * (1 + 2 / _CHECKS) + _GRACE_SECONDS
        faulthandler.dump_traceback_later(seconds, exit=True, file=_STDERR)

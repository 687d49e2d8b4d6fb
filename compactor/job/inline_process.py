"""A process for the tasks of one job, if they run a user-defined strategy without Spark.

The strategy's limits need the main thread of a process (compactor/strategies/watch.py); and code
that hangs, uses all memory or ends its process must not end the worker. The process gets the job
pickled on standard input, and writes pickled messages to its standard output: the progress of its
tasks, then the rows. What tasks print goes to standard error.

The job ends with its process, and so do all processes that the strategy has started, although they
may hold the same standard output open. The process ends with its worker.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol

from ledgerfold.compactor.job.progress import Parts
from ledgerfold.compactor.strategies.watch import ENVIRONMENT
from ledgerfold.marked_processes import end_marked

# This is not run with -m, because pickled objects must name this module, not __main__.
_MAIN = f"from {__name__} import main; main()"
# Marks the process, and those that it starts.
_VARIABLE = "LEDGERFOLD_TASKS"
_END_SECONDS = 10.0


class Computed(Protocol):
    """A stage of a job (inline.py)."""

    def lists_of(self, check: Callable[[], None]) -> list[list[Any]]: ...


class ProcessEnded(Exception):
    """The process of the tasks has ended before its result."""


class TaskFailed(Exception):
    """A task raised an error that is not one of our own. Its text is the error's last line."""


class InlineProgress:
    """The sum of finished parts. In a task's process, it sends them to the worker."""

    def __init__(self) -> None:
        self.value = Parts()
        self._lock = threading.Lock()

    def add(self, parts: Parts, /) -> None:
        with self._lock:
            self.value = self.value.plus(parts)

    def __reduce__(self) -> tuple[Callable[[], _SentProgress], tuple[()]]:
        return _SentProgress, ()


class _SentProgress:
    value = Parts()

    def add(self, parts: Parts, /) -> None:
        _send(("progress", parts))


class TaskProcess:
    """A started process. Use as a context manager; another thread may kill it."""

    def __init__(self, progress: InlineProgress) -> None:
        self._progress, self._token = progress, uuid.uuid4().hex
        # Not a pipe: this end can be shut while other processes hold the other one.
        self._answers, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                (sys.executable, "-c", _MAIN),
                start_new_session=True,
                stdin=subprocess.PIPE,
                stdout=theirs.fileno(),
                env={**os.environ, **ENVIRONMENT, _VARIABLE: self._token},
            )
        self._waiting = threading.Thread(target=self._end_with_process, name="tasks", daemon=True)
        self._waiting.start()

    def __enter__(self) -> TaskProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.kill()
        self._waiting.join()
        self._answers.close()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def kill(self) -> None:
        # Another process may have the pid of one that has ended.
        if self._process.returncode is None:
            self._kill_group()

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _end_with_process(self) -> None:
        """Waits for the process, on a thread; then ends what it has started, and the answers."""
        self._process.wait()
        # Its group has the same number as long as one of them is left.
        self._kill_group()
        end_marked(f"{_VARIABLE}={self._token}", _END_SECONDS)
        # Messages sent before are still read. On some systems the other end has disconnected it.
        with suppress(OSError):
            self._answers.shutdown(socket.SHUT_RDWR)

    def computed(self, stage: Computed) -> list[list[Any]]:
        """Returns the partitions of a stage. Raises ProcessEnded, TaskFailed."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            pickle.dump(stage, stdin)
            stdin.flush()
            with self._answers.makefile("rb") as answers:
                while True:
                    kind, content = pickle.load(answers)
                    if kind == "progress":
                        self._progress.add(content)
                    elif kind == "failed":
                        raise TaskFailed(content)
                    else:
                        results: list[list[Any]] = content
                        return results
        except (BrokenPipeError, EOFError, pickle.UnpicklingError) as error:
            raise ProcessEnded("the process of its tasks ended (out of memory?)") from error


_answers = 1


def _send(message: tuple[str, object]) -> None:
    with os.fdopen(os.dup(_answers), "wb") as stream:
        pickle.dump(message, stream)


def _unchecked() -> None:
    """Checks nothing: the process is killed when its work is cancelled."""


def _end_with_worker() -> None:
    """Waits for the end of standard input: the worker was killed."""
    while sys.stdin.buffer.read(1):
        continue
    os._exit(1)


def main() -> None:
    global _answers  # noqa: PLW0603 - tasks send their progress there
    _answers = os.dup(1)
    os.dup2(2, 1)
    stage = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_worker, daemon=True).start()
    try:
        _send(("rows", stage.lists_of(_unchecked)))
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        _send(("failed", f"{type(error).__name__}: {error}".partition("\n")[0][:300]))
    # The strategy may have started threads that do not end.
    sys.stderr.flush()
    os._exit(0)

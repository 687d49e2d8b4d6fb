"""Checks the executors of a remote Spark cluster, with a small Spark job.

An executor needs a Python of the worker's minor version, the same code, and write access to the
run's folder under the same path. The error for a missing requirement says what to do. The job has
several tasks for each core; an executor that joins later is checked by the next run.
"""

from __future__ import annotations

import functools
import hashlib
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from ledgerfold.storage.errors import CompactorUnavailable
from ledgerfold.version import __version__

_ROOMS = ("compactor", "kafka", "storage", "strategies")
_TASKS_MIN = 8
_TASKS_PER_CORE = 2
# Part of what Spark reports -> what to do.
_REMEDIES = {
    "Cannot run program": "Install that Python under the same path on each executor's machine.",
    "PYTHON_VERSION_MISMATCH": "Install Python {python} under {executable} on each executor's "
    "machine.",
    "No module named": "Install ledgerfold {version} with its extra `spark` for {executable} on "
    "each executor's machine.",
    "Can't get attribute": "Install ledgerfold {version} on each executor's machine.",
}


class Executor(NamedTuple):
    """The findings of a task on its machine. `problem`: of the folder, empty if there is none."""

    host: str
    version: str
    code: str
    problem: str = ""


@dataclass(frozen=True)
class ExecutorCheck:
    """A task that describes its executor. `folder`: must exist, and be writable."""

    folder: str | None = None

    def __call__(self, _: Iterable[int]) -> Iterator[Executor]:
        yield Executor(socket.gethostname(), __version__, code_digest(), self._problem())

    def _problem(self) -> str:
        if self.folder is None:
            return ""
        try:
            with tempfile.TemporaryFile(dir=self.folder):
                return ""
        except OSError as error:
            return str(error)


@functools.cache
def code_digest() -> str:
    """Returns a digest of the code that runs in tasks: an equal version may hide a change."""
    digest = hashlib.blake2b(digest_size=8)
    root = Path(__file__).parents[2]
    for room in _ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def check_executors(context: SparkContext, folder: Path | None = None) -> None:
    """Raises CompactorUnavailable unless executors can run tasks that write into `folder`."""
    tasks = max(_TASKS_MIN, _TASKS_PER_CORE * context.defaultParallelism)
    look = ExecutorCheck(None if folder is None else str(folder))
    try:
        executors = context.parallelize(range(tasks), tasks).mapPartitions(look).collect()
    except Py4JJavaError as error:
        advice = advice_on(str(error.java_exception.getMessage() or ""))
        if advice is None:
            raise
        raise CompactorUnavailable(advice) from error
    for executor in executors:
        if executor.version != __version__ or executor.code != code_digest():
            raise CompactorUnavailable(
                f"The executor on {executor.host} has ledgerfold {executor.version}, code "
                f"{executor.code}; the worker has {__version__}, code {code_digest()}. Install the "
                "worker's on each executor's machine."
            )
        if executor.problem:
            raise CompactorUnavailable(
                f"The executor on {executor.host} cannot write into {folder}: {executor.problem}. "
                "Mount the data directory under this path on each executor's machine, writable by "
                "the user that runs executors."
            )


def advice_on(text: str) -> str | None:
    """Returns what to do about an error of Spark; None if it has another cause."""
    for part, remedy in _REMEDIES.items():
        if part in text:
            line = next(line for line in text.splitlines() if part in line).strip()
            python = f"{sys.version_info.major}.{sys.version_info.minor}"
            todo = remedy.format(python=python, executable=sys.executable, version=__version__)
            return f"An executor cannot run Python tasks: {line[:200]}. {todo}"
    return None

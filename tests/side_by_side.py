"""The whole suite, as `scripts/test` without arguments runs it: five concurrent pytests.

Tests with Spark run in two, tests that start other processes in two, most others in the fifth. Then
the tests marked `last`, which work against the clock, run with one pytest beside them, whose tests
start no process. Five suit two cores: tests wait for disks and processes half of their time. On one
core, or with little memory, they run one after the other.

Each line begins with the name of its part. The failures and the last line of each part follow at
the end. The exit code is the worst of all. Ctrl-C (and SIGTERM) interrupts the parts once, each
ends the processes that it started, and no further part begins.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType
from typing import TextIO

# The folders of tests/ whose tests all start processes. Other tests cannot use Spark.
PROCESS_FOLDERS = ("conformance", "crash", "grpc", "pulsar", "spark")
PART_MARKS = ("spark", "process", "last")
# Folders whose brokers share one worker on Spark.
_ONE_WORKER = ("conformance", "crash", "grpc", "pulsar")
# Folders that run beside the tests marked `last`, which leave a core idle.
_BESIDE_LAST = ("model", "simulation")
_SPARK = "spark and not last"
_PROCESS = "process and not spark and not last"
_REST = "not process and not spark and not last"
# The arguments of each pytest. Importing all test modules takes ten seconds, so each imports only
# the folders that may have tests for it. The folders are divided so that all parts end at about the
# same time. tests/conftest.py checks that no part leaves a test out.
STAGES = (
    {
        "spark": ["-m", _SPARK, "tests/spark"],
        "brokers": ["-m", _SPARK, *(f"tests/{each}" for each in _ONE_WORKER)],
        "grpc": ["-m", _PROCESS, "tests/crash", "tests/grpc"],
        "process": ["-m", _PROCESS, "--ignore=tests/crash", "--ignore=tests/grpc"],
        "rest": [
            *("-m", _REST),
            *(f"--ignore=tests/{each}" for each in (*PROCESS_FOLDERS, *_BESIDE_LAST)),
        ],
    },
    {
        "last": ["-m", "last", "tests/torture"],
        "beside": ["-m", _REST, *(f"tests/{each}" for each in _BESIDE_LAST)],
    },
)
# For one pytest and its children: a Spark, another one in a separate process, brokers.
PART_BYTES = 3 * 1024**3
_NAME_WIDTH = max(len(name) for stage in STAGES for name in stage)
_SEPARATOR = " | "


@functools.cache
def parts_of(folder: str, held: frozenset[str]) -> list[str]:
    """Returns the parts that run a test in this folder of tests/ with these of PART_MARKS.

    >>> parts_of("crash", frozenset({"process"}))
    ['grpc']
    """
    marks = {each: each in held for each in PART_MARKS}
    found = []
    for name, (_, expression, *where) in ChainMap(*STAGES).items():
        paths = [each for each in where if not each.startswith("--ignore=")]
        is_collected = not paths or f"tests/{folder}" in paths
        if is_collected and f"--ignore=tests/{folder}" not in where and eval(expression, {}, marks):
            found.append(name)
    return found


class Part:
    """One pytest, in a separate process group: a Ctrl-C reaches it once, through `interrupt`."""

    def __init__(self, name: str, arguments: Sequence[str], said: TextIO) -> None:
        self.name, self.said = name, said
        self.failures: list[str] = []
        self.last_line = ""
        columns = shutil.get_terminal_size().columns - _NAME_WIDTH - len(_SEPARATOR)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,
            env={**os.environ, "COLUMNS": str(columns)},
        )
        self._reader = threading.Thread(target=self._pass_on)
        self._reader.start()

    def wait(self) -> int:
        """Returns the exit code, once all output was printed."""
        code = self._process.wait()
        self._reader.join()
        # Ended by a signal: the code as in a shell.
        return code if code >= 0 else 128 - code

    def interrupt(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def _pass_on(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.said.write(f"{self.name:{_NAME_WIDTH}}{_SEPARATOR}{line}")
                self.said.flush()
                if line.startswith(("FAILED ", "ERROR ")):
                    self.failures.append(line.rstrip())
                self.last_line = line.strip() or self.last_line


def run(stages: Iterable[Mapping[str, Sequence[str]]], said: TextIO) -> int:
    """Runs each stage's parts concurrently; returns the worst exit code."""
    began_s = time.monotonic()
    parts: list[Part] = []
    codes = [0]
    try:
        for stage in stages:
            running = [Part(name, arguments, said) for name, arguments in stage.items()]
            parts += running
            codes += [part.wait() for part in running]
    except KeyboardInterrupt:
        for part in parts:
            part.interrupt()
        codes += [*(part.wait() for part in parts), 128 + signal.SIGINT]
    for part in parts:
        for line in part.failures:
            print(line, file=said)
    for part in parts:
        print(f"{part.name:{_NAME_WIDTH}}{_SEPARATOR}{part.last_line}", file=said)
    minutes, seconds = divmod(round(time.monotonic() - began_s), 60)
    print(f"{'failed' if any(codes) else 'passed'} in {minutes} min {seconds} s", file=said)
    return max(codes)


def has_room() -> bool:
    """Returns whether there are two cores, and memory for each part."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return cores >= 2 and memory >= len(STAGES[0]) * PART_BYTES


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    signal.signal(signal.SIGTERM, _interrupted)
    color = ["--color=yes"] if sys.stdout.isatty() else []
    stages = [{name: [*color, *each] for name, each in stage.items()} for stage in STAGES]
    if not has_room():
        stages = [{name: arguments} for stage in stages for name, arguments in stage.items()]
    return run(stages, sys.stdout)


if __name__ == "__main__":
    sys.exit(main())

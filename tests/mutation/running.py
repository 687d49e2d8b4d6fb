"""Runs mutants and stories, several concurrently, each in a separate copy."""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from tests.mutation.operators import Mutant
from tests.mutation.results import Fate, Result
from tests.mutation.rooms import Room, room_of
from tests.mutation.tree import Done, Tree, copied

UNIT_TIMEOUT_S = 300.0
# The rest of the fast tests, beyond the room's own tests and the simulator.
REST = ("--fast", "tests")
REST_TIMEOUT_S = 900.0
# For all seeds of a mutant.
SEEDS_TIMEOUT_S = 600.0
# pytest's exit codes for a usage error, and for no tests. Any other code except 0 is a noticed
# defect.
_NOT_RUN = (4, 5)
T = TypeVar("T")
R = TypeVar("R")


class Broken(Exception):
    """The tests give no answer: they fail without a defect, or did not run."""


def judge(tree: Tree, mutant: Mutant, source: bytes, seeds: int, *, rest: bool) -> Result:
    """`rest`: the other fast tests may notice it, too. Raises Broken."""
    room, began_s = room_of(mutant.path), time.monotonic()
    with tree.changed({Path(mutant.path): mutant.applied_to(source)}):
        fate, by = _judged(tree, room, seeds, rest=rest)
    return Result(mutant, fate, by, time.monotonic() - began_s)


def _judged(tree: Tree, room: Room, seeds: int, *, rest: bool) -> tuple[Fate, str]:
    done = run_unit_tests(tree, room)
    if done.code != 0:
        return Fate.UNIT, failed_test(done)
    if seeds:
        done = run_seeds(tree, room.seeds(seeds))
        if done.code != 0:
            return Fate.SEEDS, found_by(done)
    if rest:
        done = run_tests(tree, REST, REST_TIMEOUT_S)
        if done.code != 0:
            return Fate.REST, failed_test(done)
    return Fate.ALIVE, ""


def check_without_defect(tree: Tree, room: Room, seeds: int) -> None:
    """Raises Broken if tests or seeds fail without a change."""
    done = run_unit_tests(tree, room)
    if done.code != 0:
        raise Broken(f"The unit tests of {room.name} fail without a defect:\n{done.output[-2000:]}")
    done = run_seeds(tree, room.seeds(seeds))
    if done.code != 0:
        raise Broken(f"The seeds of {room.name} fail without a defect:\n{done.output[-2000:]}")


def run_unit_tests(tree: Tree, room: Room) -> Done:
    return run_tests(tree, ("-m", "not spark", *room.tests), UNIT_TIMEOUT_S)


def run_tests(tree: Tree, arguments: Sequence[str], timeout_s: float) -> Done:
    options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider"]
    done = tree.run(["-m", "pytest", *options, *arguments], timeout_s)
    if done.code in _NOT_RUN:
        raise Broken(f"{' '.join(arguments)} did not run:\n{done.output[-2000:]}")
    return done


def run_seeds(tree: Tree, plans: Sequence[str], says: str = "") -> Done:
    told = ["--says", says] if says else []
    done = tree.run(["-m", "tests.mutation.seeds", *plans, *told], SEEDS_TIMEOUT_S)
    if done.code == 2:
        raise Broken(done.output[-2000:])
    return done


def failed_test(done: Done) -> str:
    if done.code is None:
        return "no end in sight"
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.output, re.MULTILINE)
    return found[1] if found else f"exit code {done.code}"


def found_by(done: Done) -> str:
    """Returns the seed that failed, and its message."""
    if done.code is None:
        return f"no end after {SEEDS_TIMEOUT_S:.0f} s"
    found = re.search(r"^found after \d+ seeds: .*", done.output, re.MULTILINE)
    lines = done.output.strip().splitlines()
    return found[0] if found else f"exit code {done.code}: {lines[-1] if lines else ''}"


def beside_each_other(
    work: Iterable[T], do: Callable[[Tree, T], R], jobs: int
) -> Iterator[tuple[T, R]]:
    """Yields results in any order. Each of `jobs` threads has a copy of the tree."""
    waiting: queue.SimpleQueue[T] = queue.SimpleQueue()
    count = 0
    for each in work:
        waiting.put(each)
        count += 1
    done: queue.SimpleQueue[tuple[T, R] | BaseException] = queue.SimpleQueue()
    is_over = threading.Event()

    def serve(tree: Tree) -> None:
        while not is_over.is_set():
            try:
                each = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((each, do(tree, each)))
            except BaseException as error:
                done.put(error)
                return

    with ExitStack() as stack:
        jobs = min(jobs, max(1, count))
        trees = [stack.enter_context(copied()) for _ in range(jobs)]
        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        for tree in trees:
            pool.submit(serve, tree)
        try:
            for _ in range(count):
                found = done.get()
                if isinstance(found, BaseException):
                    raise found
                yield found
        finally:
            is_over.set()

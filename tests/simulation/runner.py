"""Many scenarios, in several processes."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Iterator
from typing import NamedTuple

from tests.simulation.scenario import Scenario, run
from tests.simulation.shrink import kind_of

# Seeds that a process takes at once.
CHUNK = 10


class Failure(NamedTuple):
    """`kind`: what failed, without names and numbers."""

    seed: int
    kind: str
    words: str


class Job(NamedTuple):
    """Seeds for one process."""

    seeds: range
    without: frozenset[str]
    kind: str


def failures_of(job: Job) -> list[Failure]:
    found = []
    for seed in job.seeds:
        outcome = run(Scenario.draw(seed, job.without, job.kind))
        if outcome.failure is not None:
            found.append(Failure(seed, kind_of(outcome), str(outcome.failure)))
    gc.collect()
    return found


def simulate(
    first: int,
    count: int,
    *,
    jobs: int,
    without: frozenset[str] = frozenset(),
    kind: str = "faults",
) -> Iterator[list[Failure]]:
    """The failures of `count` seeds, chunk by chunk in any order."""
    ends = range(first, first + count, CHUNK)
    work = [Job(range(at, min(at + CHUNK, first + count)), without, kind) for at in ends]
    if jobs == 1:
        yield from map(failures_of, work)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs) as pool:
        yield from pool.imap_unordered(failures_of, work)

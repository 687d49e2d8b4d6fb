"""Many scenarios, in several processes."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from itertools import islice
from typing import NamedTuple

from tests.simulation.coverage import Coverage
from tests.simulation.drawing import draw
from tests.simulation.scenario import run
from tests.simulation.shrink import kind_of

# Seeds that a process runs at once.
CHUNK = 10


class Failure(NamedTuple):
    """`kind`: the failure, without names and numbers."""

    seed: int
    kind: str
    words: str


class Job(NamedTuple):
    """Seeds for one process."""

    seeds: range
    without: frozenset[str]
    kind: str


class Done(NamedTuple):
    """The results of some seeds."""

    failures: list[Failure]
    coverage: Coverage


def failures_of(job: Job) -> list[Failure]:
    return carry_out(job).failures


def carry_out(job: Job) -> Done:
    done = Done([], Coverage())
    for seed in job.seeds:
        outcome = run(draw(seed, job.without, job.kind))
        done.coverage.add(outcome.coverage)
        if outcome.failure is not None:
            done.failures.append(Failure(seed, kind_of(outcome), str(outcome.failure)))
    gc.collect()
    return done


def simulate(
    first: int,
    count: int,
    *,
    jobs: int,
    without: frozenset[str] = frozenset(),
    kind: str = "faults",
) -> Iterator[Done]:
    """Returns the results of `count` seeds, chunk by chunk in any order.

    Bound: two chunks per process are distributed at a time, so `count` may be unlimited.
    """
    end = first + count
    chunks = (range(at, min(at + CHUNK, end)) for at in range(first, end, CHUNK))
    work = (Job(chunk, without, kind) for chunk in chunks)
    if jobs == 1:
        yield from map(carry_out, work)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        running = {pool.submit(carry_out, job) for job in islice(work, 2 * jobs)}
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                running |= {pool.submit(carry_out, job) for job in islice(work, len(done))}
                for each in done:
                    yield each.result()
        finally:
            # A caller that has seen enough need not wait for chunks that have not begun.
            pool.shutdown(wait=False, cancel_futures=True)

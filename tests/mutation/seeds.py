"""Runs seeds of several kinds, in turn, until one fails: in a copy of the tree that has a defect.

    python -m tests.mutation.seeds faults:1:350 partitions:1:150
    python -m tests.mutation.seeds faults:1:500 --says "is trimmed"

Exit codes: 0 no seed failed, 1 one did (with that text), 2 usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from tests.simulation.runner import Job, failures_of

# Consecutive seeds of a kind.
_TURN = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.seeds")
    parser.add_argument("plans", nargs="+", metavar="KIND:FIRST:COUNT")
    parser.add_argument("--says", default="", help="what the failure must say")
    options = parser.parse_args()
    done = 0
    for job in _turns(options.plans):
        for failure in failures_of(job):
            words = f"{job.kind} seed {failure.seed}: {failure.words}"
            if options.says in failure.words:
                print(f"found after {done} seeds: {words[:400]}")
                return 1
            print(f"passed over: {words[:400]}")
        done += len(job.seeds)
    print(f"{done} seeds, nothing found")
    return 0


def _turns(plans: list[str]) -> Iterator[Job]:
    """Yields a few seeds of each kind in rotation, until all are used up."""
    left = []
    for plan in plans:
        kind, first, count = plan.split(":")
        left.append((kind, int(first), int(first) + int(count)))
    while left:
        following = []
        for kind, at, end in left:
            upto = min(at + _TURN, end)
            yield Job(range(at, upto), frozenset(), kind)
            if upto < end:
                following.append((kind, upto, end))
        left = following


if __name__ == "__main__":
    sys.exit(main())

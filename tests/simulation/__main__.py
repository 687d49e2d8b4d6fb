"""`scripts/simulate`: runs scenarios from seeds, in parallel, and reports failures.

    scripts/simulate --seed 1 --count 500
    scripts/simulate --count 100000 --minutes 60      stops at the first limit
    scripts/simulate --seed 17 --count 1 --trace

For each kind of failure it prints the seed, the shortest scenario that fails in the same way, and
the steps of that run. Exit codes: 0 no seed failed, 1 at least one failed, 2 usage error.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.simulation.coverage import Coverage
from tests.simulation.drawing import KINDS, draw
from tests.simulation.runner import CHUNK, Failure, simulate
from tests.simulation.scenario import Outcome, Scenario, run
from tests.simulation.shrink import shrink

EXIT_FAILED = 1
_COUNT, _COUNT_ENDLESS = 100, 10**9


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    without = frozenset(filter(None, options.without.split(",")))
    began_s = time.perf_counter()
    done, kinds, firsts = 0, Counter[str](), dict[str, Failure]()
    coverage = Coverage()
    count = options.count or (_COUNT if options.minutes is None else _COUNT_ENDLESS)
    for chunk in simulate(
        options.seed, count, jobs=options.jobs, without=without, kind=options.kind
    ):
        failures = chunk.failures
        coverage.add(chunk.coverage)
        done += min(CHUNK, count)
        for failure in failures:
            kinds[failure.kind] += 1
            if failure.kind not in firsts or options.all:
                print(f"seed {failure.seed}: {failure.words[:400]}", flush=True)
            firsts.setdefault(failure.kind, failure)
        took_s = time.perf_counter() - began_s
        if options.until and any(options.until in each.words for each in failures):
            print(f"found: {options.until}")
            break
        if options.minutes is not None and took_s > options.minutes * 60:
            break
    done = min(done, count)
    took_s = time.perf_counter() - began_s
    speed, failed = done / took_s, sum(kinds.values())
    print(f"{done} seeds in {took_s:.0f} s, {speed:.1f} a second, {failed} failed")
    for kind, number in kinds.most_common():
        print(f"  {number:5d}  {kind} (first: seed {firsts[kind].seed})")
    if options.coverage:
        print(coverage.told(options.kind))
    if options.shrink:
        for failure in firsts.values():
            print(_shrunk(failure.seed, without, options.kind), flush=True)
    elif options.trace:
        for seed in range(options.seed, options.seed + count):
            scenario = draw(seed, without, options.kind)
            print(_told(scenario, run(scenario)))
    return EXIT_FAILED if kinds else 0


def _shrunk(seed: int, without: frozenset[str], kind: str) -> str:
    scenario = draw(seed, without, kind)
    outcome = run(scenario)
    if outcome.failure is None:
        return f"seed {seed} does not fail again: the run is not deterministic"
    return _told(*shrink(scenario, outcome))


def _told(scenario: Scenario, outcome: Outcome) -> str:
    lines = [
        f"\nseed {scenario.seed}, schedule {scenario.schedule}, {scenario.profile}, "
        f"{scenario.store.ledger_entries_max} entries a ledger, {scenario.pace}",
        *(f"    {step}" for step in scenario.steps),
        *outcome.trace,
        f"{type(outcome.failure).__name__}: {outcome.failure}",
    ]
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/simulate",
        description="Runs the broker on a simulated disk, clock and scheduler. A seed determines a "
        "run. Exit codes: 0 no seed failed, 1 at least one failed, 2 usage error.",
    )
    parser.add_argument("--seed", type=int, default=1, help="the first seed; default 1")
    parser.add_argument(
        "--count",
        type=int,
        help=f"the number of seeds; default {_COUNT}, or no limit with --minutes",
    )
    parser.add_argument("--minutes", type=float, help="stop after this time")
    parser.add_argument("--jobs", type=int, default=2, help="the number of processes; default 2")
    parser.add_argument(
        "--kind",
        choices=KINDS,
        default="faults",
        help="the kind of scenario; default faults. codecs: with entries of Pulsar's clients; "
        "damage: bits flip on the disk; partitions: a partitioned topic grows; metadata: writes "
        "of the metadata are lost; kafka: a Kafka topic; truncation: a Kafka topic whose log is "
        "also truncated",
    )
    parser.add_argument(
        "--without",
        default="",
        metavar="NAMES",
        help="leave out these operations, separated by commas",
    )
    parser.add_argument(
        "--until", metavar="TEXT", help="stop at the first failure whose message contains this text"
    )
    parser.add_argument(
        "--coverage",
        action="store_true",
        help="count how often each combination of events occurred",
    )
    parser.add_argument(
        "--all", action="store_true", help="print every failure, not only the first of each kind"
    )
    parser.add_argument(
        "--trace", action="store_true", help="print the steps and events of each run"
    )
    parser.add_argument(
        "--no-shrink", dest="shrink", action="store_false", help="do not shorten failing scenarios"
    )
    return parser


if __name__ == "__main__":
    # As Ctrl-C does: the processes that run seeds end, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of strings must be ordered in the same way.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    sys.exit(main())

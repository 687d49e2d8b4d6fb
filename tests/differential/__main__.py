"""`scripts/differential`: random scenarios on our broker and on another one, and their differences.

The other one may be ours as well, through the ports of Pulsar's clients (tests/cases/doors.py).
Each scenario's answers are compared step by step. A scenario that differs is minimized, and printed
with both answers; explain.py identifies known differences. Exit codes: 0 no unexplained difference,
1 an unexplained difference, 2 usage.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.cases.doors import DoorBrokers, DoorTarget, names_addresses
from tests.cases.ledgerfold import Brokers
from tests.cases.oracle import OWN_ORDER, OracleTarget
from tests.cases.protocol import Target
from tests.differential import kafka_run
from tests.differential.explain import explanation
from tests.differential.generate import KINDS, scenario
from tests.differential.replay import Transcript, case_of, first_difference, replay
from tests.differential.shrink import shrink
from tests.model.kafka.cleaner import DOCUMENTED, KAFKA
from tests.support.processes import clean_up_when_terminated

EXIT_DIFFERS = 1
# Many times as long as the longest scenario: a target that is silent for so long has stopped.
SILENCE_S = 300.0


class Difference(NamedTuple):
    """The first step at which the answers differ, with both. `why`: empty if unexplained."""

    steps: list[str]
    at: int
    ours: str
    theirs: str
    why: str

    def __str__(self) -> str:
        before = "\n".join(f"    {step}" for step in self.steps[: self.at + 1])
        return f"{before}\n      ours   {self.ours}\n      theirs {self.theirs}"


class Duel:
    """Two targets, each answering on a separate thread, for which an end does not wait."""

    def __init__(
        self, ours: Target, theirs: Target, profile: str, silence_s: float = SILENCE_S
    ) -> None:
        self._targets = (ours, theirs)
        self._profile, self._silence_s = profile, silence_s
        self._is_one_broker = isinstance(theirs, DoorTarget)

    def compare(self, steps: list[str]) -> Difference | None:
        """Raises TimeoutError if one of them does not end."""
        running = [self._start(target, steps) for target in self._targets]
        ours, theirs = (each.result(self._silence_s) for each in running)
        at = first_difference(ours, theirs)
        if at is None:
            return None
        why = explanation(steps[: at + 1], ours[at], theirs[at], self._is_one_broker)
        return Difference(steps, at, ours[at], theirs[at], why)

    def _start(self, target: Target, steps: list[str]) -> Future[Transcript]:
        transcript: Future[Transcript] = Future()

        def run() -> None:
            try:
                transcript.set_result(replay(target, steps, self._profile))
            except BaseException as error:
                transcript.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return transcript

    def repeated(self, steps: list[str]) -> Difference | None:
        """Returns a difference that occurs twice: in Pulsar, trimming and reconnecting continue in
        the background.
        """
        return self.compare(steps) and self.compare(steps)

    def smallest(self, found: Difference) -> Difference:
        """Returns the same difference in fewer steps, or in as many."""
        kept = [found]

        def differs(steps: list[str]) -> bool:
            smaller = self.repeated(steps)
            if smaller is None or smaller.why != found.why:
                return False
            kept.append(smaller)
            return True

        shrink(found.steps[: found.at + 1], differs)
        return kept[-1]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    options.kinds = options.kinds or list(KINDS)
    if options.kafka_oracle:
        return kafka_run.run(options)
    with (
        tempfile.TemporaryDirectory(prefix="ledgerfold-differential-") as folder,
        _targets(Path(folder), options) as (ours, theirs),
    ):
        return _run(Duel(ours, theirs, options.profile), options)


@contextmanager
def _targets(folder: Path, options: argparse.Namespace) -> Iterator[tuple[Target, Target]]:
    """Starts two brokers; or one, for gRPC and for the ports of Pulsar's clients."""
    any_case = case_of(["RC-read"])
    if names_addresses(options.oracle):
        with DoorBrokers(folder, options.oracle) as doors, doors.target(any_case) as door:
            assert isinstance(door, DoorTarget)
            yield door.ours, door
        return
    with (
        closing(OracleTarget(options.oracle, options.own_order)) as theirs,
        Brokers(folder) as brokers,
        brokers.target(any_case) as ours,
    ):
        yield ours, theirs


def _run(duel: Duel, options: argparse.Namespace) -> int:
    counts: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.count):
        try:
            found = duel.repeated(scenario(seed, options.kinds))
        except TimeoutError:
            print(f"seed {seed}: one of the two does not come to an end", flush=True)
            return EXIT_DIFFERS
        if found is None:
            counts["same"] += 1
            continue
        counts[found.why or "UNEXPLAINED"] += 1
        print(f"seed {seed}: {found.why or 'UNEXPLAINED'}", flush=True)
        if not found.why:
            print(duel.smallest(found) if options.shrink else found, flush=True)
    print(f"{options.count} scenarios: " + ", ".join(f"{n} {why}" for why, n in counts.items()))
    return EXIT_DIFFERS if counts["UNEXPLAINED"] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/differential", description="Random scenarios on two brokers; docs/CASES.md."
    )
    other = parser.add_mutually_exclusive_group(required=True)
    other.add_argument(
        "--oracle",
        metavar="COMMAND",
        help="the other broker; with {pulsar} and {admin} in it, our own at these addresses",
    )
    other.add_argument(
        "--kafka-oracle", metavar="COMMAND", help="the real Kafka cleaner, against our own"
    )
    parser.add_argument(
        "--subject",
        default="product",
        choices=("product", "model"),
        help="what answers beside the real Kafka cleaner; default product",
    )
    parser.add_argument(
        "--spark-every",
        type=int,
        default=10,
        metavar="N",
        help="every Nth history of the product is taken on a broker process with Spark, the others "
        "in this process; 0: none; default 10",
    )
    parser.add_argument(
        "--kafka-profile", default=KAFKA, choices=(KAFKA, DOCUMENTED), help="of Kafka topics"
    )
    parser.add_argument("--own-order", **OWN_ORDER)
    parser.add_argument("--seed", type=int, default=1, help="of the first scenario; default 1")
    parser.add_argument("--count", type=int, default=100, help="how many; default 100")
    parser.add_argument("--profile", default="pulsar-4", help="of ours; default pulsar-4")
    parser.add_argument(
        "--kind",
        dest="kinds",
        action="append",
        choices=KINDS,
        help="of scenarios, several times; default: all",
    )
    parser.add_argument(
        "--no-shrink", dest="shrink", action="store_false", help="print what differs as it is"
    )
    return parser


if __name__ == "__main__":
    clean_up_when_terminated()
    sys.exit(main())

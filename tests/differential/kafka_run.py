"""`scripts/differential --kafka-oracle`: random histories of Kafka logs, and their differences.

One process of the oracle serves all histories. A history that differs is minimized and printed
twice: for people, and as requests for the oracle. Every tenth history of the product runs on a
broker process with Spark, the others on a broker and a worker in this process.
"""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing

from tests.differential.kafka_duel import Difference, Duel
from tests.differential.kafka_generate import Request
from tests.differential.kafka_local import LocalBroker
from tests.differential.kafka_process import SparkBroker
from tests.differential.kafka_product import Product
from tests.differential.kafka_show import as_requests, shown
from tests.differential.kafka_subject import Model, OracleProcess
from tests.differential.shrink import shrink
from tests.model.kafka.cleaner import DOCUMENTED, KAFKA

EXIT_SAME, EXIT_DIFFERS = 0, 1
# Each attempt is a history of a few dozen requests, milliseconds each.
_TRIES_MAX = 400
NOT_COPIED = "end at a defect of Kafka's that is not copied"
SNAPPY = "end at a batch that snappy compresses otherwise"


def run(options: argparse.Namespace) -> int:
    with closing(OracleProcess(options.kafka_oracle)) as theirs:
        if options.subject == "model":
            return run_duel([Duel(Model(options.kafka_profile), theirs)], options)
        # The warnings of a broker in this process are expected by the histories.
        logging.disable(logging.ERROR)
        with ExitStack() as ends:
            local = ends.enter_context(closing(Product(LocalBroker(options.kafka_profile))))
            duels = [Duel(local, theirs)] * max(options.spark_every, 1)
            if options.spark_every:
                spark = ends.enter_context(closing(Product(SparkBroker(options.kafka_profile))))
                duels[0] = Duel(spark, theirs)
            return run_duel(duels, options)


def run_duel(duels: Sequence[Duel], options: argparse.Namespace) -> int:
    """Histories alternate between the duels."""
    differing, on, known = 0, Counter[str](), Counter[str]()
    for seed in range(options.seed, options.seed + options.count):
        duel = duels[seed % len(duels)]
        on[duel.subject] += 1
        found = duel.compare(duel.history(seed))
        if found is None:
            continue
        why = explanation(found) or (NOT_COPIED if is_not_copied(duel, found) else "")
        if why:
            known[why] += 1
            continue
        differing += 1
        print(f"seed {seed} on {duel.subject}: differs", flush=True)
        shrinks = options.shrink and not duel.moves_on
        print(told(smallest(duel, found) if shrinks else found), flush=True)
    subjects = ", ".join(f"{count} on {name}" for name, count in on.items())
    same = options.count - differing - known.total()
    told_known = "".join(f", {count} {why}" for why, count in known.items())
    print(f"{options.count} histories ({subjects}): {same} same, {differing} differ{told_known}")
    return EXIT_DIFFERS if differing else EXIT_SAME


def explanation(found: Difference) -> str:
    """Explains a known difference (docs/NOT_EMULATED.md); empty if it is unknown."""
    ours, theirs = found.ours, found.theirs
    if not (isinstance(ours, dict) and isinstance(theirs, dict)):
        return ""
    if set(ours) == {"size"} and found.history[found.at].get("codec") == "snappy":
        return SNAPPY
    is_of_a_size = set(ours) == {"stats"} and set(ours["stats"]) == {"bytesWritten"}
    if is_of_a_size and "'snappy'" in str(found.history[: found.at]):
        return SNAPPY
    return ""


def _kind(found: Difference) -> tuple[str, tuple[str, ...]]:
    parts = found.ours.get("stats", found.ours) if isinstance(found.ours, dict) else ()
    return found.what, tuple(sorted(map(str, parts)))


def is_not_copied(duel: Duel, found: Difference) -> bool:
    """Returns whether it is a defect of Kafka that the profile `documented` does not have."""
    if duel.moves_on or not duel.is_of_the_product:
        return False
    other = {profile: duel.against(Model(profile)) for profile in (KAFKA, DOCUMENTED)}
    requests = found.history[: found.at + 1]
    differs = {profile: each.compare(requests) is not None for profile, each in other.items()}
    return differs == {KAFKA: True, DOCUMENTED: False}


def smallest(duel: Duel, found: Difference) -> Difference:
    """Returns the same difference in fewer requests, with fewer records, or in as many."""
    kept = [found]

    def differs(smaller: list[Request]) -> bool:
        again = duel.compare(smaller)
        if again is None or _kind(again) != _kind(found):
            return False
        kept.append(again)
        return True

    shrink(found.history[: found.at + 1], differs, _TRIES_MAX)
    for at, request in enumerate(kept[-1].history):
        if len(request.get("records", ())) > 1:
            before, after = kept[-1].history[:at], kept[-1].history[at + 1 :]
            shrink(
                request["records"],
                lambda records, b=before, r=request, a=after: differs(  # type: ignore[misc]
                    [*b, {**r, "records": records}, *a]
                ),
            )
    return kept[-1]


def told(found: Difference) -> str:
    requests = found.history[: found.at + 1]
    lines = [f"    {shown(request)}" for request in requests]
    answers = [f"      {found.what}", f"      ours   {found.ours}", f"      theirs {found.theirs}"]
    return "\n".join([*lines, *answers, as_requests(requests)])

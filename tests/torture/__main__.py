"""`scripts/torture`: injects faults into a real broker, and checks that nothing was lost.

Exit codes: 0 no message was lost and no rule broken, 1 otherwise, 2 usage error. After a failure,
or with --keep, the data and logs are kept, and the output names their folder.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.processes import clean_up_when_terminated
from tests.torture.round import Round
from tests.torture.settings import TortureSettings

EXIT_WRONG = 1


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    settings = TortureSettings(
        minutes=options.minutes,
        seed=options.seed,
        rate=options.rate,
        kills_per_minute=options.kills_per_minute,
        sync_delay_ms=options.sync_delay_ms,
    )
    folder = Path(tempfile.mkdtemp(prefix="ledgerfold-torture-"))
    print(f"seed {settings.seed}, {settings.minutes:g} minutes, in {folder}", flush=True)
    is_kept = True
    try:
        with Round(settings, folder, keep=options.keep, say=_say) as torture:
            outcome = torture.run()
        is_kept = outcome.kept is not None
    finally:
        if not is_kept:
            shutil.rmtree(folder)
    if is_kept:
        print(f"data and logs: {folder}")
    print("PASSED" if not outcome.wrong else "FAILED: " + "; ".join(outcome.wrong))
    return EXIT_WRONG if outcome.wrong else 0


def _say(line: str) -> None:
    print(line, flush=True)


def parser() -> argparse.ArgumentParser:
    given = TortureSettings(minutes=20)
    parser = argparse.ArgumentParser(
        prog="scripts/torture",
        description="Kills a real broker and its worker at random, fills its disk, and checks that "
        "no acknowledged message was lost (docs/RELIABILITY.md). Exit codes: 0 nothing was lost, "
        "1 something was, 2 usage error.",
    )
    add = parser.add_argument
    add(
        "--minutes",
        type=float,
        default=given.minutes,
        help="how long to inject faults; default %(default)g",
    )
    add(
        "--seed",
        type=int,
        default=given.seed,
        help="the seed of faults and messages; default %(default)s",
    )
    add(
        "--rate",
        type=int,
        default=given.rate,
        help="messages for each producer and second; default %(default)s",
    )
    add(
        "--kills-per-minute",
        type=float,
        default=given.kills_per_minute,
        help="the average; default %(default)g",
    )
    add(
        "--sync-delay-ms",
        type=float,
        default=given.sync_delay_ms,
        help="delay syncs by up to this; default %(default)g",
    )
    add("--keep", action="store_true", help="keep the data and logs, also after a success")
    return parser


if __name__ == "__main__":
    clean_up_when_terminated()
    sys.exit(main())

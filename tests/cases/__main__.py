"""`scripts/cases`: runs cases on a real broker, and prints the result of each.

Exit codes: 0 all passed, 1 one failed, 2 an argument is not a case, or no case was found.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Protocol

from tests.cases import report
from tests.cases.doors import DoorBrokers, names_addresses
from tests.cases.ledgerfold import Brokers
from tests.cases.lexer import NotationError
from tests.cases.model import PROFILES, Case
from tests.cases.oracle import OWN_ORDER, OracleTarget
from tests.cases.parser import parse
from tests.cases.protocol import Target, Unsupported
from tests.cases.runner import Outcome, State, run_case
from tests.support.processes import clean_up_when_terminated

CASES_DIR = Path(__file__).resolve().parents[1] / "conformance" / "cases"
EXIT_FAILED = 1
EXIT_USAGE = 2


class Targets(Protocol):
    def target(self, case: Case, profile: str) -> AbstractContextManager[Target]: ...


class OracleTargets:
    """One target for all cases; none for those that need a separate broker."""

    def __init__(self, target: OracleTarget) -> None:
        self._target = target

    @contextmanager
    def target(self, case: Case, profile: str) -> Iterator[Target]:
        if case.options:
            raise Unsupported(f"The broker would need options: {' '.join(case.options)}")
        yield self._target


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        cases = read_cases(options.files)
    except (NotationError, OSError) as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    cases = [case for case in cases if _matches(case, options.keyword)]
    if not cases:
        print("No case is called that.", file=sys.stderr)
        return EXIT_USAGE
    if options.oracle and not names_addresses(options.oracle):
        with closing(OracleTarget(options.oracle, options.own_order)) as target:
            return _run(cases, OracleTargets(target), options.profile or target.profile)
    with (
        tempfile.TemporaryDirectory(prefix="ledgerfold-cases-") as folder,
        brokers_of(Path(folder), options.oracle) as brokers,
    ):
        return _run(cases, brokers, options.profile)


def brokers_of(folder: Path, command: str | None) -> Brokers:
    """Starts brokers of our own, used through the ports of Pulsar's clients if there is a command
    for them.
    """
    return DoorBrokers(folder, command) if command else Brokers(folder)


def _run(cases: Sequence[Case], targets: Targets, profile: str | None) -> int:
    outcomes = []
    for case in cases:
        for under in (profile,) if profile else case.profiles:
            outcome = run_on(targets, case, under)
            outcomes.append(outcome)
            print(report.line(outcome), flush=True)
    print(report.summary(outcomes))
    return EXIT_FAILED if any(each.state is State.FAIL for each in outcomes) else 0


def run_on(targets: Targets, case: Case, profile: str) -> Outcome:
    """Runs one case on the target that it needs."""
    try:
        with targets.target(case, profile) as target:
            return run_case(target, case, profile)
    except Unsupported as error:
        return Outcome(case, profile, State.NOT_HERE, why=str(error))


def read_cases(files: Sequence[str] = ()) -> list[Case]:
    """Returns the cases of `files` and folders; all of this checkout's if none are given.

    Raises NotationError, OSError.
    """
    return [case for path in files or [str(CASES_DIR)] for case in _read(path)]


def _read(path: str) -> list[Case]:
    if path == "-":
        return parse(sys.stdin.read(), "-")
    if Path(path).is_dir():
        return [case for each in sorted(Path(path).glob("*.cases")) for case in _read(str(each))]
    return parse(Path(path).read_text(), Path(path).name)


def _matches(case: Case, keyword: str) -> bool:
    return keyword.lower() in f"{case.number} {case.title}".lower()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/cases", description="Runs cases on a real broker; docs/CASES.md."
    )
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="cases, or a folder of them; - is standard input; default: all of ours",
    )
    parser.add_argument("-k", dest="keyword", default="", metavar="PATTERN", help="number or title")
    parser.add_argument(
        "--profile", choices=PROFILES, help="default: each that the case has something to say of"
    )
    parser.add_argument(
        "--oracle",
        metavar="COMMAND",
        help="another broker instead: a command line that speaks JSON lines; with {pulsar} and "
        "{admin} in it, our own broker at these addresses",
    )
    parser.add_argument("--own-order", **OWN_ORDER)
    return parser


if __name__ == "__main__":
    clean_up_when_terminated()
    sys.exit(main())

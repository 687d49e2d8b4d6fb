"""The cases of tests/conformance/cases and of docs/CASES.md, on a real broker and compactor.

One test per case and profile, named by its number. Spark compacts for the first case of each file,
under its first profile; others compact inline, which gives the same bytes in a fraction of the time
(tests/spark/test_inline_equals_spark.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from tests.cases import report
from tests.cases.__main__ import read_cases, run_on
from tests.cases.ledgerfold import Brokers
from tests.cases.model import PROFILES, Case
from tests.cases.parser import parse
from tests.cases.runner import State
from tests.tidy import ROOT

MANUAL = (ROOT / "docs" / "CASES.md").read_text()
# A code block is a file of cases.
EXAMPLES = [
    case for block in re.findall(r"```cases\n(.*?)```", MANUAL, re.DOTALL) for case in parse(block)
]


# What a strategy retains, and what Kafka's cleaner does in a case without a profile, does not
# depend on the profile: their cases are for both.
STRATEGIES = ("EVT-", "STR-")
_DOCUMENTED, _PULSAR, _KAFKA = PROFILES


def _profiles(case: Case) -> tuple[str, ...]:
    if case.number.startswith(STRATEGIES):
        return (_DOCUMENTED, _PULSAR)
    return (_DOCUMENTED, _KAFKA) if case.is_kafka else case.profiles


def _each(cases: Iterable[Case]) -> list[object]:
    return [
        pytest.param(
            case,
            profile,
            id=case.number if len(_profiles(case)) == 1 else f"{case.number}-{profile}",
        )
        for case in cases
        for profile in _profiles(case)
    ]


CASES = read_cases()
# The first case of each file.
ON_SPARK = {case.place.source: case.number for case in reversed(CASES)}


@pytest.mark.parametrize(("case", "profile"), _each(CASES))
def test_case(brokers: Brokers, inline_brokers: Brokers, case: Case, profile: str) -> None:
    """Runs the case: its expectations hold."""
    has_spark = case.number == ON_SPARK[case.place.source] and profile == _profiles(case)[0]
    _check(brokers if has_spark else inline_brokers, case, profile)


@pytest.mark.parametrize(("case", "profile"), _each(EXAMPLES))
def test_example_of_the_manual(inline_brokers: Brokers, case: Case, profile: str) -> None:
    """Runs the examples of docs/CASES.md: the answers are those shown."""
    _check(inline_brokers, case, profile)


def test_the_piped_command_of_the_manual(brokers: Brokers) -> None:
    """Its output is as in docs/CASES.md, except for the time."""
    found = re.search(
        r"\$ echo '(.*)' \| scripts/cases -\n((?:pass|FAIL).*?)\n1 passed", MANUAL, re.S
    )
    assert found is not None
    (case,) = parse(found[1])
    untimed = re.compile(r" +[\d.]+ s$", re.MULTILINE)
    printed = report.line(run_on(brokers, case, case.profiles[0]))
    assert untimed.sub("", printed) == untimed.sub("", found[2])


def _check(brokers: Brokers, case: Case, profile: str) -> None:
    outcome = run_on(brokers, case, profile)
    assert outcome.state is State.PASS, "\n".join(report.details(outcome))

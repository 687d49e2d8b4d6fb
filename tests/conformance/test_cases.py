"""The cases of tests/conformance/cases, each on a real broker with the real compactor.

One test a case and profile, named by its number; docs/CASES.md is the manual of their notation.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cases import report
from tests.cases.__main__ import read_cases, run_on
from tests.cases.ledgerfold import Brokers
from tests.cases.model import Case
from tests.cases.runner import State
from tests.support.compactor_process import CompactorProcess

CASES = read_cases()


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory, compactor: CompactorProcess
) -> Iterator[Brokers]:
    with Brokers(tmp_path_factory.mktemp("cases"), compactor) as started:
        yield started


def _id(case: Case, profile: str) -> str:
    return case.number if len(case.profiles) == 1 else f"{case.number}-{profile}"


@pytest.mark.parametrize(
    ("case", "profile"),
    [
        pytest.param(case, profile, id=_id(case, profile))
        for case in CASES
        for profile in case.profiles
    ],
)
def test_case(brokers: Brokers, case: Case, profile: str) -> None:
    """What the case says is so."""
    outcome = run_on(brokers, case, profile)
    assert outcome.state is State.PASS, "\n".join(report.details(outcome))

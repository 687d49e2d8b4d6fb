"""The catalogue is covered: each of its numbers has a case, a test that names it, or a reason."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cases.__main__ import read_cases
from tests.tidy import ROOT

_NUMBER = re.compile(r"(?<![A-Za-z])([A-Z]{3}|[a-z]{3})[-_](\d\d)(?!\d)")
# Of Kafka's log cleaner: T08, T103; in a test's name test_t08_...
_KAFKA_NUMBER = re.compile(r"(?<![A-Za-z0-9])[Tt](\d{2,3})(?![A-Za-z0-9])")
# Its tests mention numbers that are not cases.
_HARNESS = ROOT / "tests" / "unit" / "cases"


def numbers_in(text: str) -> set[str]:
    pulsar = {f"{group.upper()}-{number}" for group, number in _NUMBER.findall(text)}
    return pulsar | {f"T{number}" for number in _KAFKA_NUMBER.findall(text)}


def catalogue() -> set[str]:
    """Returns the names in the manual's tables."""
    manual = (ROOT / "docs" / "CASES.md").read_text()
    rows = re.findall(r"^\| ([A-Z]{3}) \| .* \| ([\d ]+) \|$", manual, re.MULTILINE)
    kafka = re.findall(r"^\| [A-G] \| .* \| (T[T\d ]+) \|$", manual, re.MULTILINE)
    return {f"{group}-{number}" for group, numbers in rows for number in numbers.split()} | {
        number for numbers in kafka for number in numbers.split()
    }


def excused() -> set[str]:
    """Returns the names that docs/NOT_EMULATED.md lists, with a reason."""
    page = (ROOT / "docs" / "NOT_EMULATED.md").read_text()
    section = page.partition("## Cases of the catalogue")[2]
    rows = re.findall(r"^\| ([A-Z].*?) \| (.+) \|$", section, re.MULTILINE)
    return {number for numbers, _ in rows for number in numbers_in(numbers)}


def covered() -> set[str]:
    """Returns the names in the cases, and in the names and docstrings of tests."""
    found = {number for case in read_cases() for number in numbers_in(case.number)}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if path != Path(__file__) and _HARNESS not in path.parents:
            found |= numbers_in(path.read_text())
    return found


def test_every_number_has_a_case_a_test_or_a_reason() -> None:
    """None is missing."""
    assert len(catalogue()) > 150
    assert len([number for number in catalogue() if "-" not in number]) == 64
    assert catalogue() - covered() - excused() == set()


def test_the_page_names_only_numbers_of_the_catalogue() -> None:
    """The page lists no number that the catalogue does not have."""
    assert excused() & covered() == set()
    assert excused() - catalogue() == set()

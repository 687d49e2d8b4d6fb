"""docs/API.md: every snippet runs and prints what it says; its tables are complete."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

import ledgerfold
from ledgerfold import errors
from ledgerfold.storage import errors as tree
from tests import tidy
from tests.support.broker_process import BrokerProcess

PAGE = (tidy.ROOT / "docs" / "API.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
# Of tests: pytest runs them, and they have brokers of their own.
TESTS = [snippet for snippet in SNIPPETS if "def test_" in snippet]
PROGRAMS = [snippet for snippet in SNIPPETS if snippet not in TESTS]
_TIMEOUT_S = 110


def run(arguments: Iterable[str], folder: Path) -> str:
    """What Python prints that runs there."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_programs(shared_broker: BrokerProcess, tmp_path: Path) -> None:
    """One after the other, on one broker; what a comment says of a `print` is printed."""
    assert len(PROGRAMS) == 7
    for snippet in PROGRAMS:
        shown = run(["-c", snippet.replace("127.0.0.1:7650", shared_broker.url)], tmp_path)
        for expected in re.findall(r"print\(.*\)  # (.*)", snippet):
            assert expected in shown.splitlines(), snippet


@pytest.mark.spark
@pytest.mark.slow
def test_the_tests(tmp_path: Path) -> None:
    """They pass, as files of somebody's own."""
    assert len(TESTS) == 2
    for number, snippet in enumerate(TESTS):
        (tmp_path / f"test_{number}.py").write_text(snippet)
    shown = run(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "."], tmp_path)
    assert "2 passed" in shown


def rows(heading: str) -> list[list[str]]:
    """Of the table below that heading, but for its head: the names in each cell, by cell."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    table = re.findall(r"^\|(.*)\|$", section, re.MULTILINE)[2:]
    return [[cell.strip() for cell in line.split("|")] for line in table]


def names(cell: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", cell))


def test_the_table_of_errors() -> None:
    """Every class, and for each all the names of Pulsar's that stand for it."""
    told = {cells[0].strip("`"): names(cells[1]) for cells in rows("Errors")}
    classes: Mapping[str, type] = {
        name: cls
        for name, cls in vars(tree).items()
        if isinstance(cls, type) and issubclass(cls, tree.LedgerfoldError)
        if cls.__module__ == tree.__name__
    }
    assert set(told) == set(classes)
    aliases = {name: getattr(errors, name) for name in errors.__all__ if name not in classes}
    for name, cls in classes.items():
        also = {alias for alias, meant in aliases.items() if meant is cls}
        own = {name} if name in ledgerfold.__all__ and name != "LedgerfoldError" else set()
        assert told[name] == also | own, name


def test_the_table_of_environment_variables() -> None:
    """Every one that the product's sources name."""
    found = {
        name
        for module in tidy.modules(*tidy.PRODUCT)
        for name in re.findall(r"\bLEDGERFOLD_[A-Z_]+[A-Z]\b", module.source)
    }
    assert found <= {cells[0].strip("`") for cells in rows("Environment variables")}

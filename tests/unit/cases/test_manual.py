"""docs/CASES.md lists every step, every path, every operation of another broker."""

from __future__ import annotations

import re

from tests.cases.protocol import OPERATIONS
from tests.cases.steps import LOOK, PATHS, VERBS
from tests.tidy import ROOT

MANUAL = (ROOT / "docs" / "CASES.md").read_text()
# Answered without the other broker.
OWN_OPERATIONS = {"profile", "mark", "advance", "strategy", "retain-null-key"}


def first_cells(header: str) -> list[str]:
    """Returns the first cell of each row of the tables that begin with this header."""
    tables = re.findall(rf"^\| {header} \|.*\n\| --- .*\n((?:\|.*\n)+)", MANUAL, re.MULTILINE)
    rows = "".join(tables).splitlines()
    return [re.split(r"(?<!\\) \| ", row)[0].removeprefix("| ") for row in rows]


def test_the_manual_lists_every_step() -> None:
    """Each with its usage, in some table; and no other."""
    written = {cell.strip("`").replace("\\|", "|") for cell in first_cells("step")}
    assert written == {verb.usage for name, verb in VERBS.items() if name != LOOK}


def test_the_manual_lists_every_path() -> None:
    """Lists the short forms and their long forms."""
    assert [cell.strip("`") for cell in first_cells("path")] == list(PATHS)
    for path, meaning in PATHS.items():
        assert meaning == path or f"| `{path}` | `{meaning}`" in MANUAL


def test_the_manual_lists_every_operation() -> None:
    """Tests the requests to another broker, with their fields."""
    rows = re.findall(
        r"^\| (`[a-z`, -]+) \| (.*) \| .*\|$", MANUAL.partition("## Another")[2], re.M
    )
    found: dict[str, set[str]] = {}
    for names, fields in rows:
        for name in re.findall(r"`([a-z-]+)`", names):
            found[name] = set(re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", fields)))
    assert found.keys() == OPERATIONS.keys() - OWN_OPERATIONS
    for name in found:
        assert set(OPERATIONS[name].split()) <= found[name], name

"""docs/API.md: its tables are complete. (test_documents_followed.py runs its examples.)"""

from __future__ import annotations

import re
from collections.abc import Mapping

import ledgerfold
from ledgerfold import errors
from ledgerfold.storage import errors as tree
from tests import tidy

PAGE = (tidy.ROOT / "docs" / "API.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """Returns the rows of the table below that heading, without its head: the names in each
    cell.
    """
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    table = re.findall(r"^\|(.*)\|$", section, re.MULTILINE)[2:]
    return [[cell.strip() for cell in line.split("|")] for line in table]


def names(cell: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", cell))


def test_the_table_of_errors() -> None:
    """Lists every class with all of Pulsar's names for it."""
    told = {cells[0].strip("`"): names(cells[1]) for cells in rows("Errors")}
    classes: Mapping[str, type] = {
        name: cls
        for name, cls in vars(tree).items()
        if isinstance(cls, type) and issubclass(cls, tree.LedgerfoldError)
        if cls.__module__ == errors.__name__
    }
    assert set(told) == set(classes)
    aliases = {
        name: getattr(errors, name) for name in vars(errors)["__all__"] if name not in classes
    }
    for name, cls in classes.items():
        also = {alias for alias, meant in aliases.items() if meant is cls}
        own = {name} if name in vars(ledgerfold)["__all__"] and name != "LedgerfoldError" else set()
        assert told[name] == also | own, name


def test_the_table_of_environment_variables() -> None:
    """Every one that the product's sources name."""
    found = {
        name
        for module in tidy.modules(*tidy.PRODUCT)
        for name in re.findall(r"\bLEDGERFOLD_[A-Z_]+[A-Z]\b", module.source)
    }
    assert found <= {
        name for cells in rows("Environment variables") for name in names(" ".join(cells))
    }

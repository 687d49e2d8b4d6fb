"""Mutants without observable effect, each with the reason (equal.toml).

The function, the rule and the lines identify an entry, so it outlives moves of the code. An entry
that matches no mutant any more is stale, and must be removed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.mutation.operators import OPERATORS, Mutant

FILE = Path(__file__).resolve().parent / "equal.toml"
_FIELDS = {"within", "operator", "before", "after", "nth", "why"}


class Equal(NamedTuple):
    within: str
    operator: str
    before: str
    after: str
    nth: int
    why: str

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        return self[:5]


def load(text: str) -> list[Equal]:
    """Raises ValueError for an incomplete or unknown entry."""
    found = []
    for each in tomllib.loads(text).get("equal", []):
        if not set(each) <= _FIELDS or not each.get("why") or each["operator"] not in OPERATORS:
            raise ValueError(f"not an entry of equal.toml: {each}")
        lines = each["before"].strip("\n"), each["after"].strip("\n")
        found.append(
            Equal(each["within"], each["operator"], *lines, each.get("nth", 0), each["why"])
        )
    return found


def known() -> dict[tuple[str, str, str, str, int], Equal]:
    return {each.key: each for each in load(FILE.read_text())}


def stale(entries: Iterable[Equal], mutants: Iterable[Mutant]) -> list[Equal]:
    """Returns the entries that match no mutant."""
    there = {each.key for each in mutants}
    return [each for each in entries if each.key not in there]


def entry_for(mutant: Mutant) -> str:
    """Returns the entry for equal.toml, without the reason."""
    nth = f"nth = {mutant.nth}\n" if mutant.nth else ""
    return (
        f'[[equal]]\nwithin = "{mutant.within}"\noperator = "{mutant.operator}"\n'
        f"before = '''\n{mutant.before}\n'''\nafter = '''\n{mutant.after}\n'''\n{nth}why = \"\"\n"
    )

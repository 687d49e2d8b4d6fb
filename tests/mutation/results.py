"""The results of mutants, kept line by line so that an interrupted run can continue."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from tests.mutation.operators import Mutant


class Fate(StrEnum):
    UNIT = "unit"
    SEEDS = "seeds"
    REST = "rest"
    ALIVE = "alive"
    EQUAL = "equal"


class Result(NamedTuple):
    """`by`: the test or the seed that noticed it, or why nothing can."""

    mutant: Mutant
    fate: Fate
    by: str
    took_s: float = 0.0


class Results:
    """A file of results. Results of a module that has changed since do not count."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._known: dict[str, dict[str, str]] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                kept = json.loads(line)
                self._known[kept["id"]] = kept

    def get(self, mutant: Mutant, source: bytes) -> Result | None:
        kept = self._known.get(_id(mutant, source))
        if kept is None:
            return None
        return Result(mutant, Fate(kept["fate"]), kept["by"], float(kept["took_s"]))

    def add(self, result: Result, source: bytes) -> None:
        kept = {
            "id": _id(result.mutant, source),
            "at": str(result.mutant),
            "fate": str(result.fate),
            "by": result.by,
            "took_s": f"{result.took_s:.1f}",
        }
        with self._lock:
            self._known[kept["id"]] = kept
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps(kept) + "\n")


def _id(mutant: Mutant, source: bytes) -> str:
    facts = (mutant.path, *map(str, mutant.key), hashlib.sha256(source).hexdigest())
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()


def table(results: Iterable[Result], rows: Iterable[str], row_of: object) -> str:
    """Returns counts by row: a room, or a rule."""
    assert callable(row_of)
    found = list(results)
    heads = ("unit", "seeds", "rest", "alive", "equal", "died")
    lines = [f"{'':<22}{'mutants':>8}" + "".join(f"{each:>7}" for each in heads)]
    for row in (*rows, "all"):
        own = [each for each in found if row in ("all", row_of(each.mutant))]
        if not own:
            continue
        counts = [sum(each.fate is fate for each in own) for fate in Fate]
        died, judged = sum(counts[:3]), sum(counts[:4])
        share = f"{died / judged:.1%}" if judged else "-"
        cells = "".join(f"{each:>7}" for each in (*counts, share))
        lines.append(f"{row:<22}{len(own):>8}{cells}")
    return "\n".join(lines)

"""Defects that are put back, one a patch, to show that the simulator finds them.

A patch begins with what it breaks, in words; then `kind:` of the scenarios that find it, `seeds:`
within how many, `first:` from which seed on (1 where it is left out: a rare one begins shortly
before a seed that finds it), and `says:` what the failure says. It is applied to a copy of the
tree, and fails loudly when it does not fit any more: then it is to be made anew.

    >>> load("commit-in-two-batches").kind
    'faults'
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent.parent
_HEAD = (
    r"(?P<words>.+)\n\nkind: (?P<kind>\w+)\nseeds: (?P<seeds>\d+)\n"
    r"(first: (?P<first>\d+)\n)?says: (?P<says>.+)\n"
)
_COPIED = ("ledgerfold", "broker", "storage", "compactor", "proto", "tests")


class Mutant(NamedTuple):
    """`words`: what it breaks."""

    name: str
    words: str
    kind: str
    seeds: int
    first: int
    says: str


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.patch"))


def load(name: str) -> Mutant:
    text = (FOLDER / f"{name}.patch").read_text()
    found = re.match(_HEAD, text)
    if found is None:
        raise ValueError(f"{name}.patch does not begin with words, kind, seeds and says")
    seeds, first = int(found["seeds"]), int(found["first"] or 1)
    return Mutant(name, found["words"], found["kind"], seeds, first, found["says"])


@contextmanager
def mutated(mutant: Mutant) -> Iterator[Path]:
    """A copy of the tree with that defect."""
    with tempfile.TemporaryDirectory(prefix="ledgerfold-mutant-") as folder:
        for each in _COPIED:
            # `ledgerfold` links to the others: to those of the copy. Bytecode goes along, and holds
            # as long as the time of its source is the same: not for what is patched.
            shutil.copytree(ROOT / each, Path(folder) / each, symlinks=True)
        patch = str(FOLDER / f"{mutant.name}.patch")
        # Two lines of context, and any line numbers.
        command = ["git", "apply", "-p0", "-C1", "--recount", patch]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"{mutant.name}.patch does not fit any more:\n{done.stderr}")
        yield Path(folder)

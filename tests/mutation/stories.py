"""Stories: subtle, plausible defects that the simulator finds within its seeds.

They are in defects/*.toml, a table for each room:

    [[story]]
    name = "wrong-horizon"
    words = "Trimming takes the end of the log for the horizon."
    kind = "faults"
    seeds = 200
    says = "is trimmed; the horizon is"
    [[story.edit]]
    within = "_passed"
    before = "passed.append(topic.compaction_mark_delete)"
    after = "passed.append(topic.log.last_position())"

`kind`: of the scenarios that find it; `seeds`: their number, from seed 1 on; `says`: the text of
the failure. An edit is found by its lines (edits.py), in any module. An edit that no longer matches
fails loudly, and must be updated.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.mutation.edits import Edit, find, product_sources
from tests.mutation.running import Broken, found_by, run_seeds
from tests.mutation.tree import ROOT, Tree

FOLDER = Path(__file__).resolve().parent / "defects"
_FIELDS = {"name", "words", "kind", "seeds", "says", "edit"}


class Story(NamedTuple):
    """`words`: its effect."""

    name: str
    words: str
    kind: str
    seeds: int
    says: str
    edits: tuple[Edit, ...]

    def applied(self, sources: Mapping[Path, str]) -> dict[Path, bytes]:
        """Returns the modules that it changes, after the change. Raises EditError."""
        changed: dict[Path, str] = {}
        for edit in self.edits:
            path, _ = find(edit, {**sources, **changed})
            changed[path] = edit.applied_to(changed.get(path, sources[path]))
        return {path: text.encode() for path, text in changed.items()}


def load() -> dict[str, Story]:
    """Returns the stories by name. Raises ValueError for an invalid or duplicate one."""
    found: dict[str, Story] = {}
    for path in sorted(FOLDER.glob("*.toml")):
        for each in tomllib.loads(path.read_text())["story"]:
            story = _story(each, path)
            if story.name in found:
                raise ValueError(f"{path.name} has a second {story.name}")
            found[story.name] = story
    return found


def _story(table: dict[str, Any], path: Path) -> Story:
    if set(table) != _FIELDS:
        raise ValueError(f"{path.name}, {table.get('name')}: not a story's fields: {sorted(table)}")
    edits = tuple(Edit(**edit) for edit in table["edit"])
    return Story(table["name"], table["words"], table["kind"], table["seeds"], table["says"], edits)


def sample(stories: Mapping[str, Story], count: int) -> list[str]:
    """Picks a sample that changes whenever the product does."""
    digest = hashlib.sha256()
    for path, text in sorted(product_sources(ROOT).items()):
        digest.update(f"{path}\0{text}\0".encode())
    return sorted(Random(digest.hexdigest()).sample(sorted(stories), min(count, len(stories))))


def look_for(tree: Tree, story: Story) -> str:
    """Returns how it was found; "" if it was not. Raises EditError, Broken."""
    with tree.changed(story.applied(product_sources(tree.root))):
        done = run_seeds(tree, [f"{story.kind}:1:{story.seeds}"], story.says)
    if done.code == 0:
        return ""
    how = found_by(done)
    if done.code != 1 or not how.startswith("found after"):
        # The simulator itself failed, and not with the expected text.
        raise Broken(f"{story.name}: exit code {done.code}\n{done.output[-2000:]}")
    return how

"""Stories: subtle, plausible defects that the simulator finds within its seeds, or a test does.

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
the failure. A story that needs what the simulator does not do has, instead of `kind` and `seeds`,
`tests`: the tests that find it, as an argument of pytest. An edit is found by its lines (edits.py),
in any module. An edit that no longer matches fails loudly, and must be updated.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.mutation.edits import Edit, find, product_sources
from tests.mutation.running import Broken, failed_test, found_by, run_seeds, run_tests
from tests.mutation.tree import ROOT, Tree

FOLDER = Path(__file__).resolve().parent / "defects"
_FIELDS = {"name", "words", "says", "edit"}
_FOUND_BY = ({"kind", "seeds"}, {"tests"})
_TESTS_TIMEOUT_S = 300.0


class Story(NamedTuple):
    """`words`: its effect. `tests`: "" if the simulator finds it."""

    name: str
    words: str
    says: str
    edits: tuple[Edit, ...]
    kind: str = ""
    seeds: int = 0
    tests: str = ""

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
    if table.keys() - _FIELDS not in _FOUND_BY or not table.keys() >= _FIELDS:
        raise ValueError(f"{path.name}, {table.get('name')}: not a story's fields: {sorted(table)}")
    edits = tuple(Edit(**edit) for edit in table.pop("edit"))
    return Story(**table, edits=edits)


def sample(stories: Mapping[str, Story], count: int) -> list[str]:
    """Picks a sample that changes whenever the product does."""
    digest = hashlib.sha256()
    for path, text in sorted(product_sources(ROOT).items()):
        digest.update(f"{path}\0{text}\0".encode())
    return sorted(Random(digest.hexdigest()).sample(sorted(stories), min(count, len(stories))))


def look_for(tree: Tree, story: Story) -> str:
    """Returns how it was found; "" if it was not. Raises EditError, Broken."""
    with tree.changed(story.applied(product_sources(tree.root))):
        if story.tests:
            done = run_tests(tree, (story.tests,), _TESTS_TIMEOUT_S)
            how, is_found = f"found by {failed_test(done)}", story.says in done.output
        else:
            done = run_seeds(tree, [f"{story.kind}:1:{story.seeds}"], story.says)
            how = found_by(done)
            is_found = how.startswith("found after")
    if done.code == 0:
        return ""
    if done.code != 1 or not is_found:
        # Tests or simulator failed, and not with the expected text.
        raise Broken(f"{story.name}: exit code {done.code}\n{done.output[-2000:]}")
    return how

"""Every story matches the product; a sample, which changes with the product, is looked for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutation.edits import product_sources
from tests.mutation.stories import Story, load, look_for, sample
from tests.mutation.tree import ROOT, Tree, copied

# They, and a copy, take a quarter of a minute of two cores.
LOOKED_FOR = 3
STORIES = load()


@pytest.fixture(scope="module")
def sources() -> dict[Path, str]:
    return product_sources(ROOT)


@pytest.fixture(scope="module")
def tree() -> Iterator[Tree]:
    """Yields a copy that holds one defect at a time."""
    with copied() as tree:
        yield tree


@pytest.mark.parametrize("story", STORIES.values(), ids=lambda story: story.name)
def test_a_story_matches_the_product(story: Story, sources: dict[Path, str]) -> None:
    """The lines that it changes exist exactly once, and the result is valid Python."""
    changed = story.applied(sources)
    assert changed
    for path, text in changed.items():
        ast.parse(text, str(path))


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sample(STORIES, LOOKED_FOR))
def test_it_is_found(name: str, tree: Tree) -> None:
    """By the simulator, within its number of seeds, or by its tests; `scripts/mutate --stories`
    runs all of them.
    """
    assert look_for(tree, STORIES[name]), STORIES[name].words

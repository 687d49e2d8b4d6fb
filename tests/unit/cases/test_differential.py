"""Random scenarios: each seed makes one that parses; the smallest that differs is found."""

from __future__ import annotations

import doctest

import pytest

from tests.differential import generate, shrink
from tests.differential.generate import scenario
from tests.differential.replay import case_of, first_difference


@pytest.mark.parametrize("module", [generate, shrink])
def test_the_example_in_the_module_is_true(module: object) -> None:
    """What the docstring shows is what happens."""
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def test_every_scenario_is_a_case() -> None:
    """Its steps are of the notation."""
    for seed in range(200):
        steps = scenario(seed)
        assert len(case_of(steps).steps) == len(steps), seed


def test_where_two_transcripts_part() -> None:
    """What one side does not have is no difference."""
    assert first_difference(["a", "not here: x", "b"], ["a", "z", "c"]) == 2
    assert first_difference(["a"], ["a"]) is None

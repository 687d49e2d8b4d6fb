"""Random scenarios: each seed makes one that parses; the smallest differing one is found."""

from __future__ import annotations

import doctest
import threading
from typing import Any

import pytest

from tests.differential import generate, shrink
from tests.differential.__main__ import Difference, Duel
from tests.differential.generate import scenario
from tests.differential.replay import case_of, first_difference


@pytest.mark.parametrize("module", [generate, shrink])
def test_the_docstring_example_is_true(module: object) -> None:
    """Runs the example in the docstring."""
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def test_every_scenario_is_a_case() -> None:
    """Its steps are of the notation."""
    for seed in range(200):
        steps = scenario(seed)
        assert len(case_of(steps).steps) == len(steps), seed


def test_transcripts_are_compared_up_to_the_first_difference() -> None:
    """Text that only one side has is a difference only if the other side answered."""
    assert first_difference(["a", "not here: x", "b"], ["a", "z", "c"]) == 2
    assert first_difference(["a"], ["a"]) is None


class Answers:
    """A target whose status is always the same; `None`: it never answers."""

    profile = "pulsar-4"
    quiet_ms = 0

    def __init__(self, status: str | None) -> None:
        self._status = status

    def ask(self, operation: str, /, **fields: Any) -> dict[str, Any]:
        if self._status is None:
            threading.Event().wait()
        return {"status": self._status}


def test_two_answers_are_compared_step_by_step() -> None:
    """The step is named, and both answers."""
    duel = Duel(Answers("SUCCESS"), Answers("ERROR"), "pulsar-4")
    assert duel.compare(["status"]) == Difference(["status"], 0, "SUCCESS", "ERROR", "")
    assert Duel(Answers("ERROR"), Answers("ERROR"), "pulsar-4").compare(["status"]) is None


def test_a_side_that_never_answers_does_not_block() -> None:
    """A defect of one side does not stop the night's run in silence."""
    duel = Duel(Answers("SUCCESS"), Answers(None), "pulsar-4", silence_s=0.05)
    with pytest.raises(TimeoutError):
        duel.compare(["status"])

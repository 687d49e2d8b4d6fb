"""Finds the smallest scenario that still fails in the same way by leaving out steps.

Leaving out a step changes the seed's later choices, so each candidate runs under a few schedules.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tests.simulation.scenario import Outcome, Scenario, run

SCHEDULES = 4
TRIES_MAX = 400


def kind_of(outcome: Outcome) -> str:
    """Returns the kind of a failure without names and numbers, so that shrinking keeps to one
    defect.
    """
    words = str(outcome.failure).split("\n", 1)[0].split(": ")[0]
    kind = re.sub(r"\br\d+-\w+|\bp\d#\d+|b'.*?'|[\[(].*?[\])]|[-\d:/.]+", "_", words)
    return re.sub(r"_(, _)+", "_", kind)[:80]


def shrink(scenario: Scenario, outcome: Outcome) -> tuple[Scenario, Outcome]:
    """Leaves out chunks first, then single steps."""
    kind, tries = kind_of(outcome), 0
    size = max(1, len(scenario.steps) // 2)
    while True:
        at, is_shorter = 0, False
        while at < len(scenario.steps) and tries < TRIES_MAX:
            steps = scenario.steps[:at] + scenario.steps[at + size :]
            found = None
            for schedule in range(SCHEDULES):
                tries += 1
                number = scenario.schedule if schedule == 0 else schedule
                candidate = replace(scenario, steps=steps, schedule=number)
                tried = run(candidate)
                if tried.failure is not None and kind_of(tried) == kind:
                    found = (candidate, tried)
                    break
            if found is None:
                at += size
            else:
                (scenario, outcome), is_shorter = found, True
        if tries >= TRIES_MAX or (size == 1 and not is_shorter):
            return scenario, outcome
        size = max(1, size // 2)

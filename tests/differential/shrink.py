"""Minimizes a scenario that differs: steps are removed as long as it does.

>>> shrink(list("abcdef"), lambda steps: "b" in steps and "e" in steps)
['b', 'e']
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

# Each attempt is a scenario on two brokers.
TRIES_MAX = 60
Step = TypeVar("Step")


def shrink(
    steps: list[Step], differs: Callable[[list[Step]], bool], tries_max: int = TRIES_MAX
) -> list[Step]:
    """Removes chunks first, then single steps. `differs` is true for the result."""
    tries, size = 0, max(1, len(steps) // 2)
    while True:
        at, shorter = 0, False
        while at < len(steps) and tries < tries_max:
            candidate = steps[:at] + steps[at + size :]
            tries += 1
            if candidate and differs(candidate):
                steps, shorter = candidate, True
            else:
                at += size
        if tries >= tries_max or (size == 1 and not shorter):
            return steps
        size = max(1, size // 2)

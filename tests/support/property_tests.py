"""The number of examples of properties: a tenth in the fast run.

Hypothesis runs its profile `ci`, the same examples each time, when CI is set, else `dev`.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

EXAMPLES = 100
EXAMPLES_FAST = 10

settings.register_profile(
    "ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("dev", deadline=None)


def load_profile(*, fast: bool) -> None:
    """Loads the profile before any property is made: it sets what `@settings` does not."""
    name = "ci" if os.environ.get("CI") else "dev"
    chosen = settings.get_profile(name)
    settings.register_profile("chosen", chosen, max_examples=EXAMPLES_FAST if fast else EXAMPLES)
    settings.load_profile("chosen")


def examples(whole: int) -> int:
    """Returns the number for `@settings` and for random loops: fewer in the fast run."""
    return max(1, whole * settings().max_examples // EXAMPLES)

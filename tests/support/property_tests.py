"""The number of examples of properties: a twentieth in the fast run.

The examples are the same each time, so that only a change of the code changes a result. With
LEDGERFOLD_EXAMPLES=random they are new ones, and those that failed before come first.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

EXAMPLES = 100
EXAMPLES_FAST = 5

# On a busy machine, generating examples takes long, too.
_TIMELESS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", _TIMELESS, derandomize=True)
settings.register_profile("random", _TIMELESS, derandomize=False)


def load_profile(*, fast: bool) -> None:
    """Loads the profile before any property is made: it sets what `@settings` does not."""
    name = "random" if os.environ.get("LEDGERFOLD_EXAMPLES") == "random" else "same"
    chosen = settings.get_profile(name)
    settings.register_profile("chosen", chosen, max_examples=EXAMPLES_FAST if fast else EXAMPLES)
    settings.load_profile("chosen")


def examples(whole: int) -> int:
    """Returns the number for `@settings` and for random loops: fewer in the fast run."""
    return max(1, whole * settings().max_examples // EXAMPLES)


def stride(fast: int) -> int:
    """Returns the step of a loop over all points of a crash, or over all values that a field takes:
    1, in the fast run `fast`.
    """
    return fast if settings().max_examples < EXAMPLES else 1

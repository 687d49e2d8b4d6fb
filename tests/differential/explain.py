"""Differences that are known, each by the line of docs that tells it.

>>> explanation(["a=1", "RC-read"], "E0 a=1", "E0 a=1")
''
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Known(NamedTuple):
    """`applies` gets the steps up to the one that differs, and both answers."""

    why: str
    applies: Callable[[Sequence[str], str, str], bool]


def _is_kept_by_a_seek(steps: Sequence[str], ours: str, theirs: str) -> bool:
    """Raw entries that are trimmed here and not there, after a consumer sought and was closed."""
    sought = any(step.startswith("seek c") for step in steps)
    trimmed = any(step in ("unload", "trim") for step in steps)
    return sought and trimmed and (ours == "nothing" or theirs.endswith(ours))


KNOWN: tuple[Known, ...] = (
    Known("NOT_EMULATED: a seek leaves the entry itself in the backlog", _is_kept_by_a_seek),
)


def explanation(steps: Sequence[str], ours: str, theirs: str) -> str:
    """Empty when there is none."""
    return next((each.why for each in KNOWN if each.applies(steps, ours, theirs)), "")

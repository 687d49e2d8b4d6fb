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


KNOWN: tuple[Known, ...] = ()


def explanation(steps: Sequence[str], ours: str, theirs: str) -> str:
    """Empty when there is none."""
    return next((each.why for each in KNOWN if each.applies(steps, ours, theirs)), "")

"""Helpers for texts that people read.

>>> counted(1, "message"), counted(2_000, "entry", "entries"), counted(0, "row")
('1 message', '2,000 entries', '0 rows')
"""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """Returns a number with its noun. `many` is the plural, if it is not `one` and an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"

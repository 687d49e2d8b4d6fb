"""Words of the sentences that people read.

>>> counted(1, "message"), counted(2_000, "entry", "entries"), counted(0, "row")
('1 message', '2,000 entries', '0 rows')
"""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """A number and what it counts. `many` is needed where an s at the end does not make it."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"

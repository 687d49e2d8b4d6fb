"""Durations in words.

>>> [time_left(ms) for ms in (0, 5_400, 61_000, 3_900_000)]
['about 1 s left', 'about 5 s left', 'about 2 min left', 'about 1 h 5 min left']
"""

from __future__ import annotations


def time_left(left_ms: int) -> str:
    """Returns an estimate in words, not more exact than it is."""
    left_s = max(1, round(left_ms / 1000))
    if left_s < 60:
        return f"about {left_s} s left"
    # Rounded up.
    hours, minutes = divmod(-(-left_s // 60), 60)
    parts = (f"{hours} h" if hours else "", f"{minutes} min" if minutes else "")
    return f"about {' '.join(filter(None, parts))} left"

"""The two worked examples, small enough to check by eye.

Compaction leaves the last message of each key, in the order of these messages.
"""

from __future__ import annotations

ADDRESSES = (
    ("1001", "4 Privet Dr"),
    ("1002", "221B Baker Street"),
    ("1003", "Milkman Road"),
    ("1002", "21 Jump St"),
    ("1001", "Paper St"),
    ("1001", "Paper Road 21"),
)
PRICES = (
    ("p3", "10"),
    ("p5", "7"),
    ("p3", "11"),
    ("p6", "25"),
    ("p6", "12"),
    ("p5", "14"),
    ("p5", "17"),
)


def compacted(pairs: tuple[tuple[str, str], ...]) -> list[tuple[int, str, str]]:
    """Returns the messages that compaction leaves: (index in `pairs`, key, value).

    >>> compacted(PRICES)
    [(2, 'p3', '11'), (4, 'p6', '12'), (6, 'p5', '17')]
    """
    last = {key: place for place, (key, _) in enumerate(pairs)}
    return [(place, *pairs[place]) for place in sorted(last.values())]

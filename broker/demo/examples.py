"""The messages of the demonstrations: two worked examples, and a stock ticker, the example of
Pulsar's documentation.

The worked examples are small enough to check by eye. Compaction leaves the last message of each
key, in the order of the messages.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import NamedTuple

Pairs = tuple[tuple[str, str], ...]

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
# 2024-01-01 in ms since the epoch: fixed, so that the quotes are always the same.
_START_MS = 1_704_067_200_000


def compacted(pairs: Pairs) -> list[tuple[int, str, str]]:
    """Returns the messages that compaction leaves: (index in `pairs`, key, value).

    >>> compacted(PRICES)
    [(2, 'p3', '11'), (4, 'p6', '12'), (6, 'p5', '17')]
    """
    last = {key: index for index, (key, _) in enumerate(pairs)}
    return [(index, *pairs[index]) for index in sorted(last.values())]


class Quote(NamedTuple):
    """A price of a symbol, with a time: key and value of a message."""

    symbol: str
    value: bytes
    event_time_ms: int


def quotes(seed: int, symbols: int, messages: int) -> Iterator[Quote]:
    """Yields random walks; a few symbols are traded far more than the rest.

    >>> [quote.symbol for quote in quotes(seed=1, symbols=3, messages=4)][:2]
    ['S0000', 'S0002']
    """
    source = random.Random(seed)
    prices = [source.uniform(5, 500) for _ in range(symbols)]
    for number in range(messages):
        at = min(int(source.paretovariate(0.6)) - 1, symbols - 1)
        prices[at] = max(0.01, prices[at] * source.gauss(1, 0.002))
        time_ms = _START_MS + number * 10
        value = json.dumps({"price": round(prices[at], 2), "time": time_ms}).encode()
        yield Quote(f"S{at:04d}", value, time_ms)

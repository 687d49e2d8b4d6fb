"""A stock ticker, the example of Pulsar's documentation: keys are symbols, values prices with a
time.

>>> [quote.symbol for quote in quotes(seed=1, symbols=3, messages=4)][:2]
['S0000', 'S0002']
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import NamedTuple

# 2024-01-01 in ms since the epoch: fixed, so that the quotes are always the same.
_START_MS = 1_704_067_200_000


class Quote(NamedTuple):
    symbol: str
    value: bytes
    event_time_ms: int


def quotes(seed: int, symbols: int, messages: int) -> Iterator[Quote]:
    """Yields random walks; a few symbols are traded far more than the rest."""
    source = random.Random(seed)
    prices = [source.uniform(5, 500) for _ in range(symbols)]
    for number in range(messages):
        at = min(int(source.paretovariate(0.6)) - 1, symbols - 1)
        prices[at] = max(0.01, prices[at] * source.gauss(1, 0.002))
        time_ms = _START_MS + number * 10
        value = json.dumps({"price": round(prices[at], 2), "time": time_ms}).encode()
        yield Quote(f"S{at:04d}", value, time_ms)

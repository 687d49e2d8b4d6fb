"""The strategy `keep-n`: keeps the last n values of each key since its last tombstone.

Rules: `KeepN` in ledgerfold/strategies/plain.py.

**A fragment is a message**, as its place (strategy.py). A run of a key's messages leaves its last
tombstone, which removes the values before it, and the last n values after that.

    >>> import numpy as np
    >>> facts = Facts(np.arange(5), is_value=np.array([True, False, True, True, True]))
    >>> folded = begin(np.zeros(5, int), facts, key_count=1, n=2)
    >>> survivors(folded.fragments).tolist(), folded.removed_events
    ([3, 4], 3)
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ledgerfold.compactor.positions import Booleans, Integers
from ledgerfold.compactor.strategies.strategy import (
    FLAG_BITS,
    IS_VALUE,
    Codes,
    Facts,
    Folded,
    FragmentColumns,
    Ordered,
    Strategy,
    by_key,
    value_positions,
)
from ledgerfold.strategies.catalogue import LISTED


def begin(codes: Codes, facts: Facts, key_count: int, n: int) -> Folded:
    """Folds messages: each is a fragment, and each tombstone is an event."""
    ordered = facts.ordered or by_key(codes)
    is_value = facts.is_value
    retained, dropped = _remaining(ordered, is_value, n)
    rows = ordered.rows[retained]
    places = (facts.positions[rows] << FLAG_BITS) | is_value[rows] * np.int64(IS_VALUE)
    return Folded((places,), dropped + facts.tombstones, ordered.codes[retained])


def join(codes: Codes, columns: FragmentColumns, key_count: int, n: int) -> Folded:
    """Folds fragments, in any order. Each dropped value is an event."""
    (places,) = columns
    ordered = by_key(codes, places)
    retained, dropped = _remaining(ordered, (places & IS_VALUE) != 0, n)
    return Folded((places[ordered.rows[retained]],), dropped, ordered.codes[retained])


def _remaining(ordered: Ordered, is_value: Booleans, n: int) -> tuple[Integers, int]:
    """Returns the indexes that stay, and the number of dropped values."""
    codes = ordered.codes
    is_left = np.ones(len(codes), np.bool_)
    # A row stays if the row n places later has another key.
    np.not_equal(codes[n:], codes[:-n], out=is_left[:-n])
    if is_value.all():
        retained = np.flatnonzero(is_left)
        return retained, len(codes) - len(retained)
    is_value = is_value[ordered.rows]
    places = np.arange(len(codes), dtype=np.int64)
    # The last tombstone up to each row, of any key; at the end of each key, that key's last one.
    tombstones = np.maximum.accumulate(np.where(is_value, -1, places))[ordered.ends]
    is_left &= is_value & (places > np.repeat(tombstones, ordered.ends - ordered.starts + 1))
    dropped = int(np.count_nonzero(is_value)) - int(np.count_nonzero(is_left))
    is_left[tombstones[tombstones >= ordered.starts]] = True
    return np.flatnonzero(is_left), dropped


def survivors(columns: FragmentColumns) -> Integers:
    """Returns the positions of the values."""
    (places,) = columns
    return value_positions(places)


_NAME = "keep-n"


def keep_n(n: int) -> Strategy:
    """Creates the strategy. A key has at most n + 1 fragments for each chunk."""
    return Strategy(
        _NAME, LISTED[_NAME].version, partial(begin, n=n), partial(join, n=n), survivors
    )

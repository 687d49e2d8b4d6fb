"""The strategy `keep-n`: of each key the last n values since its last tombstone.

Rules (of no product; Kafka and Pulsar keep one):
* A value is kept while fewer than n of its key follow it. One removed event when it is dropped.
* A tombstone removes all values of its key that stand, and is never kept itself: one removed event,
  and one for each of the values.
* With n = 1 the survivors are those of `publishing-order`, but not the count, in which a value that
  a tombstone removes is no event of its own.

**A fragment is a message**, as its place (ordering.py). Of each key a stretch leaves its last
tombstone, which is what it does to the values before it, and the last n values behind that.

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
from ledgerfold.compactor.strategies.ordering import FLAG_BITS, by_key
from ledgerfold.compactor.strategies.strategy import (
    Codes,
    Facts,
    Folded,
    FragmentColumns,
    Ordered,
    Strategy,
)
from ledgerfold.strategies.catalogue import LISTED

_IS_VALUE = 1


def begin(codes: Codes, facts: Facts, key_count: int, n: int) -> Folded:
    """Each message is a fragment; each tombstone is an event."""
    ordered = facts.ordered or by_key(codes)
    is_value = facts.is_value
    left, dropped = _left(ordered, is_value, n)
    rows = ordered.rows[left]
    places = (facts.positions[rows] << FLAG_BITS) | is_value[rows] * np.int64(_IS_VALUE)
    tombstones = len(is_value) - int(np.count_nonzero(is_value))
    return Folded((places,), dropped + tombstones, ordered.codes[left])


def join(codes: Codes, columns: FragmentColumns, key_count: int, n: int) -> Folded:
    """What is left of the fragments, in any order. Each value that is not is an event."""
    (places,) = columns
    ordered = by_key(codes, places)
    left, dropped = _left(ordered, (places & _IS_VALUE) != 0, n)
    return Folded((places[ordered.rows[left]],), dropped, ordered.codes[left])


def _left(ordered: Ordered, is_value: Booleans, n: int) -> tuple[Integers, int]:
    """Which places in the order stay, and how many values do not."""
    codes = ordered.codes
    is_left = np.ones(len(codes), np.bool_)
    # That is, n behind it the key is another.
    np.not_equal(codes[n:], codes[:-n], out=is_left[:-n])
    if is_value.all():
        left = np.flatnonzero(is_left)
        return left, len(codes) - len(left)
    is_value = is_value[ordered.rows]
    places = np.arange(len(codes), dtype=np.int64)
    # Of each place the last tombstone up to it, whichever key's, and of each key its last one.
    tombstones = np.maximum.accumulate(np.where(is_value, -1, places))[ordered.ends]
    is_left &= is_value & (places > np.repeat(tombstones, ordered.ends - ordered.starts + 1))
    dropped = int(np.count_nonzero(is_value)) - int(np.count_nonzero(is_left))
    is_left[tombstones[tombstones >= ordered.starts]] = True
    return np.flatnonzero(is_left), dropped


def survivors(columns: FragmentColumns) -> Integers:
    """The positions of the values."""
    (places,) = columns
    positions: Integers = places[(places & _IS_VALUE) != 0] >> FLAG_BITS
    return positions


_NAME = "keep-n"


def keep_n(n: int) -> Strategy:
    """Fragments of a key are at most n + 1 for each chunk."""
    return Strategy(
        _NAME, LISTED[_NAME].version, partial(begin, n=n), partial(join, n=n), survivors
    )

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

from ledgerfold.compactor.positions import Integers
from ledgerfold.compactor.strategies.ordering import (
    FLAG_BITS,
    by_key,
    first_of_each,
    last_of_each,
)
from ledgerfold.compactor.strategies.strategy import Codes, Facts, Folded, FragmentColumns, Strategy
from ledgerfold.strategies.catalogue import LISTED

_IS_VALUE = 1


def begin(codes: Codes, facts: Facts, key_count: int, n: int) -> Folded:
    """Each message is a fragment; each tombstone is an event."""
    places = (facts.positions << FLAG_BITS) | facts.is_value * np.int64(_IS_VALUE)
    folded = join(codes, (places,), key_count, n)
    tombstones = len(facts.is_value) - int(np.count_nonzero(facts.is_value))
    return folded._replace(removed_events=folded.removed_events + tombstones)


def join(codes: Codes, columns: FragmentColumns, key_count: int, n: int) -> Folded:
    """What is left of the fragments, in any order. Each value that is not is an event."""
    (places,) = columns
    ordered = by_key(codes, places)
    places = places[ordered.rows]
    is_value = (places & _IS_VALUE) != 0
    rows = np.arange(len(places), dtype=np.int64)
    starts = np.flatnonzero(first_of_each(ordered.codes))
    ends = np.flatnonzero(last_of_each(ordered.codes))
    keys = np.repeat(np.arange(len(starts)), ends - starts + 1)
    # Of each key the row of its last tombstone; without one, the row before all of its own.
    tombstones = starts - 1
    np.maximum.at(tombstones, keys[~is_value], rows[~is_value])
    is_left = is_value & (rows > tombstones[keys]) & (rows > ends[keys] - n)
    dropped = int(np.count_nonzero(is_value)) - int(np.count_nonzero(is_left))
    is_left[tombstones[tombstones >= starts]] = True
    return Folded((places[is_left],), dropped, ordered.codes[is_left])


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

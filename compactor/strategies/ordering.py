"""The ordering of fragments that are messages, by key and position.

Several strategies represent a run of messages by a few of them. A **place** is a message's position
and its flags in one integer: the position in the high bits, FLAG_BITS bits below, of which the
strategy defines all but the lowest. So places order as positions do.

    >>> import numpy as np
    >>> ordered = by_key(np.array([1, 0, 1]), np.array([7, 5, 3]))
    >>> ordered.rows.tolist(), ordered.codes.tolist()
    ([1, 2, 0], [0, 1, 1])
    >>> last_of_each(ordered.codes).tolist()
    [True, False, True]
"""

from __future__ import annotations

import numpy as np

from ledgerfold.compactor.positions import Booleans, Integers
from ledgerfold.compactor.strategies.strategy import Codes, Ordered

# The number of bits that a position leaves free (compactor/positions.py).
FLAG_BITS = 2
# The lowest flag bit: the message is a value.
IS_VALUE = 1


def by_key(codes: Codes, places: Integers | None = None) -> Ordered:
    """Sorts rows by key, then place. `places` None: rows are in order of place already.

    Key and row number are packed into one integer: numpy sorts integers ten times as fast as it
    orders by two columns. Rows and keys are below 2**31, by the bounds of a chunk and a bucket.
    """
    ordered = _in_order(codes)
    if places is None:
        return ordered
    # Most callers pass rows in log order, but none has to.
    placed = places[ordered.rows]
    if (ordered.is_first[1:] | (placed[1:] > placed[:-1])).all():
        return ordered
    rows = np.argsort(places)
    ordered = _in_order(codes[rows])
    return Ordered(rows[ordered.rows], ordered.codes)


def _in_order(codes: Codes) -> Ordered:
    rows = np.arange(len(codes), dtype=np.int64)
    bits = max(len(codes), 1).bit_length()
    packed = codes.astype(np.int64)
    packed <<= bits
    packed |= rows
    packed.sort()
    np.bitwise_and(packed, (1 << bits) - 1, out=rows)
    packed >>= bits
    return Ordered(rows, packed)


def value_positions(places: Integers) -> Integers:
    """Returns the positions of the values among these places."""
    positions: Integers = places[(places & IS_VALUE) != 0] >> FLAG_BITS
    return positions


def last_of_each(codes: Codes) -> Booleans:
    """Returns which rows end a key; codes are sorted."""
    lasts = np.ones(len(codes), np.bool_)
    np.not_equal(codes[1:], codes[:-1], out=lasts[:-1])
    return lasts

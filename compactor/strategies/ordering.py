"""Fragments that are messages: how a strategy brings them into the order of keys and positions.

Several strategies keep of a stretch a few messages that stand for all of it. A **place** is where
one of them lies and what it is, in one integer: its position above, FLAG_BITS bits of the
strategy's own below. So places order as positions do.

    >>> import numpy as np
    >>> ordered = by_key(np.array([1, 0, 1]), np.array([7, 5, 3]))
    >>> ordered.rows.tolist(), ordered.codes.tolist()
    ([1, 2, 0], [0, 1, 1])
    >>> first_of_each(ordered.codes).tolist()
    [True, True, False]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ledgerfold.compactor.positions import Booleans, Integers
from ledgerfold.compactor.strategies.strategy import Codes

# As many as a position leaves free (compactor/positions.py).
FLAG_BITS = 2


class Ordered(NamedTuple):
    """Row numbers, key by key, those of a key by place; and the key of each."""

    rows: Integers
    codes: Integers


def by_key(codes: Codes, places: Integers | None = None) -> Ordered:
    """Sorts rows by key, then place. `places` None: they ascend already.

    Key and row number are packed into one integer: numpy sorts those ten times as fast as it finds
    an order of two columns. Rows and keys are below 2**31, by the bounds of a chunk and a bucket.
    """
    rows = np.arange(len(codes), dtype=np.int64)
    if places is None and (codes[1:] >= codes[:-1]).all():
        # Somebody who asks several strategies has sorted them (what_if/scan.py).
        return Ordered(rows, codes.astype(np.int64, copy=False))
    order = rows if places is None else np.argsort(places)
    bits = max(len(codes), 1).bit_length()
    packed = (codes[order].astype(np.int64) << bits) | rows
    packed.sort()
    return Ordered(order[packed & ((1 << bits) - 1)], packed >> bits)


def first_of_each(codes: Codes) -> Booleans:
    """Which rows begin a key; codes are sorted."""
    firsts = np.ones(len(codes), np.bool_)
    np.not_equal(codes[1:], codes[:-1], out=firsts[1:])
    return firsts


def last_of_each(codes: Codes) -> Booleans:
    """Which rows end a key; codes are sorted."""
    lasts = np.ones(len(codes), np.bool_)
    np.not_equal(codes[1:], codes[:-1], out=lasts[:-1])
    return lasts

"""The strategy `publishing-order`: keeps the message with the highest id of each key.

Rules: `PublishingOrder` in ledgerfold/strategies/plain.py. The empty key is a key. A message
without a key survives if `retain_null_key` is set, and counts nothing. Otherwise it is dropped, and
counts one removed event.

The history of a key within a run of the log is a **fragment**, packed into one integer:

    bits 63..42  ordinal of the segment   } position of the last
    bits 41..2   row in that segment      } message of the run
    bit 1        the first message is a value
    bit 0        the last message is a value

A single message is a fragment, and fragments of adjoining runs join into one: the last position,
the first's bit 1, the last's bit 0. Joining is associative, so any way of splitting the log into
chunks yields the same survivors and the same count.

    >>> import numpy as np
    >>> codes = np.array([0, 0, 1, 0])  # keys a a b a
    >>> facts = Facts(np.arange(4), is_value=np.array([True, True, True, False]))
    >>> folded = begin(codes, facts, key_count=2)
    >>> survivors(folded.fragments).tolist(), folded.removed_events
    ([2], 2)
"""

from __future__ import annotations

import numpy as np

from ledgerfold.compactor.positions import Integers
from ledgerfold.compactor.strategies.strategy import (
    IS_VALUE,
    Codes,
    Facts,
    Folded,
    FragmentColumns,
    Ordered,
    Strategy,
    value_positions,
)
from ledgerfold.strategies.catalogue import LISTED

_FIRST_IS_VALUE = 2
_LAST_IS_VALUE = IS_VALUE
_VALUES = _FIRST_IS_VALUE | _LAST_IS_VALUE


def begin(codes: Codes, facts: Facts, key_count: int) -> Folded:
    """Folds messages: each is a fragment, and each tombstone is an event."""
    if facts.ordered is not None:
        return _begin_sorted(facts, facts.ordered)
    fragments = (facts.positions << 2) | (facts.is_value * np.int64(_VALUES))
    joined = join(codes, (fragments,), key_count)
    return joined._replace(removed_events=joined.removed_events + facts.tombstones)


def _begin_sorted(facts: Facts, ordered: Ordered) -> Folded:
    """Folds messages sorted by key, from the first and last message of each."""
    is_value, last = facts.is_value, ordered.rows[ordered.ends]
    fragments = facts.positions[last] << 2
    if is_value.all():
        fragments |= _VALUES
        return Folded((fragments,), len(is_value) - len(last))
    fragments |= is_value[ordered.rows[ordered.starts]] * np.int64(_FIRST_IS_VALUE)
    fragments |= is_value[last] * np.int64(_LAST_IS_VALUE)
    is_value = is_value[ordered.rows]
    replaced = is_value[1:] & is_value[:-1] & ~ordered.is_first[1:]
    return Folded((fragments,), int(np.count_nonzero(replaced)) + facts.tombstones)


def join(codes: Codes, columns: FragmentColumns, key_count: int) -> Folded:
    """Joins the fragments of each key into one.

    Fragments may come in any order: their positions define it. The runs of one key must not
    overlap.
    """
    (fragments,) = columns
    last = np.full(key_count, -1, np.int64)
    np.maximum.at(last, codes, fragments)
    if ((fragments & _VALUES) == _VALUES).all():
        return Folded((last,), len(fragments) - key_count)
    first = np.full(key_count, np.iinfo(np.int64).max, np.int64)
    np.minimum.at(first, codes, fragments)
    joined = (last & ~np.int64(_FIRST_IS_VALUE)) | (first & _FIRST_IS_VALUE)
    return Folded((joined,), _replaced(codes, fragments, key_count))


def survivors(columns: FragmentColumns) -> Integers:
    """Returns the positions of the keys whose last message is a value."""
    (fragments,) = columns
    return value_positions(fragments)


def _replaced(codes: Codes, fragments: Integers, key_count: int) -> int:
    """Returns the number of values that directly follow a value of their key.

    Only keys that have a tombstone need to be sorted.
    """
    mixed = np.zeros(key_count, np.bool_)
    mixed[codes[(fragments & _VALUES) != _VALUES]] = True
    is_mixed = mixed[codes]
    plain = int(np.count_nonzero(~is_mixed)) - int(np.count_nonzero(~mixed))
    codes, fragments = codes[is_mixed], fragments[is_mixed]
    order = np.lexsort((fragments, codes))
    codes, fragments = codes[order], fragments[order]
    follows = (
        (codes[1:] == codes[:-1])
        & ((fragments[:-1] & _LAST_IS_VALUE) != 0)
        & ((fragments[1:] & _FIRST_IS_VALUE) != 0)
    )
    return plain + int(np.count_nonzero(follows))


_NAME = "publishing-order"
PUBLISHING_ORDER = Strategy(
    _NAME, LISTED[_NAME].version, begin, join, survivors, is_incremental=True
)

"""Two strategies that no product has: what a strategy may be, beside `latest`.

In a module of their own, so that Spark's workers find the functions by name.

* FIRST: of each key the first value. Tombstones are nothing to it.
* NEWEST_EVENT: of each key the message with the highest event time, of several the last published;
  a tombstone among them leaves nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ledgerfold.compactor.positions import Integers
from ledgerfold.compactor.strategies.strategy import Facts, Folded, FragmentColumns, Strategy

_NONE = np.iinfo(np.int64).max


def pack_first(facts: Facts) -> FragmentColumns:
    """The position of a value."""
    return (np.where(facts.is_value, facts.positions, _NONE),)


def fold_first(codes: NDArray[np.integer], columns: FragmentColumns, key_count: int) -> Folded:
    (positions,) = columns
    first = np.full(key_count, _NONE, np.int64)
    np.minimum.at(first, codes, positions)
    lost = np.count_nonzero(positions != _NONE) - np.count_nonzero(first != _NONE)
    return Folded((first,), int(lost))


def first_values(columns: FragmentColumns) -> Integers:
    (positions,) = columns
    kept: Integers = positions[positions != _NONE]
    return kept


def pack_events(facts: Facts) -> FragmentColumns:
    """Event time; position and, in the lowest bit, whether it is a value."""
    assert facts.event_times is not None
    return facts.event_times, (facts.positions << 1) | facts.is_value


def fold_events(codes: NDArray[np.integer], columns: FragmentColumns, key_count: int) -> Folded:
    times, places = columns
    order = np.lexsort((places, times, codes))
    codes = codes[order]  # the winner of each key comes last
    winners = order[np.searchsorted(codes, np.arange(key_count), side="right") - 1]
    lost = np.count_nonzero(places & 1) - np.count_nonzero(places[winners] & 1)
    return Folded((times[winners], places[winners]), int(lost))


def newest_values(columns: FragmentColumns) -> Integers:
    _, places = columns
    kept: Integers = places[(places & 1) != 0] >> 1
    return kept


FIRST = Strategy("first", 3, pack_first, fold_first, first_values)
NEWEST_EVENT = Strategy(
    "newest-event", 1, pack_events, fold_events, newest_values, reads_event_times=True
)

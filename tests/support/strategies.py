"""Two strategies that no product has: what a strategy may be, beside `publishing-order`.

In a module of their own, so that Spark's workers find the functions by name.

* FIRST: of each key the first value. Tombstones are nothing to it.
* NEWEST_EVENT: of each key the message with the highest event time, of several the last published;
  a tombstone among them leaves nothing.
"""

from __future__ import annotations

import numpy as np

from ledgerfold.compactor.positions import Integers
from ledgerfold.compactor.strategies.strategy import Codes, Facts, Folded, FragmentColumns, Strategy

_NONE = np.iinfo(np.int64).max


def begin_first(codes: Codes, facts: Facts, key_count: int) -> Folded:
    """The position of a value."""
    positions = np.where(facts.is_value, facts.positions, _NONE)
    folded = join_first(codes, (positions,), key_count)
    return folded._replace(removed_events=folded.removed_events + _tombstones(facts))


def _tombstones(facts: Facts) -> int:
    return int(np.count_nonzero(~facts.is_value))


def join_first(codes: Codes, columns: FragmentColumns, key_count: int) -> Folded:
    (positions,) = columns
    first = np.full(key_count, _NONE, np.int64)
    np.minimum.at(first, codes, positions)
    lost = np.count_nonzero(positions != _NONE) - np.count_nonzero(first != _NONE)
    return Folded((first,), int(lost))


def first_values(columns: FragmentColumns) -> Integers:
    (positions,) = columns
    kept: Integers = positions[positions != _NONE]
    return kept


def begin_events(codes: Codes, facts: Facts, key_count: int) -> Folded:
    """Event time; position and, in the lowest bit, whether it is a value."""
    assert facts.event_times is not None
    places = (facts.positions << 1) | facts.is_value
    folded = join_events(codes, (facts.event_times, places), key_count)
    return folded._replace(removed_events=folded.removed_events + _tombstones(facts))


def join_events(codes: Codes, columns: FragmentColumns, key_count: int) -> Folded:
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


FIRST = Strategy("first", 3, begin_first, join_first, first_values)
NEWEST_EVENT = Strategy(
    "newest-event", 1, begin_events, join_events, newest_values, reads_event_times=True
)

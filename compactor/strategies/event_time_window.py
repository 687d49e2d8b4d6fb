"""The strategy `event-time-window`: `event-time`, except for messages younger than a lag.

Rules: `EventTimeWindow` in ledgerfold/strategies/plain.py. The run's time is in its plan, and the
same for all tasks.

A message that is young in one run is old in a later run, and is then compared with the remaining
messages. Without tombstones, or if the old messages were published before the young ones, the
result is that of one run over everything. Otherwise it may differ: an old value that lost against
another cannot return when a tombstone between the two has become old (docs/STRATEGIES.md has an
example).

Fragments are those of event_time.py. A young message is a separate fragment, which is never joined:
its place is stored as ~place, below zero.

    >>> import numpy as np
    >>> codes, times = np.zeros(3, int), np.array([5, 9, 20])
    >>> values, alone = np.array([True, True, False]), np.ones(3, bool)
    >>> facts = Facts(np.arange(3), values, times, alone, publish_times=times)
    >>> folded = begin(codes, facts, key_count=1, old_until_ms=10)
    >>> sorted(survivors(folded.fragments).tolist()), folded.removed_events
    ([1, 2], 1)
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ledgerfold.compactor.positions import Integers
from ledgerfold.compactor.strategies import event_time
from ledgerfold.compactor.strategies.strategy import (
    FLAG_BITS,
    Codes,
    Facts,
    Folded,
    FragmentColumns,
    Strategy,
)
from ledgerfold.strategies.catalogue import LISTED


def begin(codes: Codes, facts: Facts, key_count: int, old_until_ms: int) -> Folded:
    """Folds old messages as `event-time` does; keeps young ones."""
    assert facts.event_times is not None
    assert facts.publish_times is not None
    times = np.where(facts.event_times == 0, facts.publish_times, facts.event_times)
    is_old = times <= old_until_ms
    folded = event_time.begin(codes[is_old], facts.where(is_old), key_count)
    powers, places = event_time.as_fragments(facts.where(~is_old))
    return _and_young(folded, codes[~is_old], (powers, ~places), key_count)


def join(codes: Codes, columns: FragmentColumns, key_count: int) -> Folded:
    """Folds fragments."""
    powers, places = columns
    is_old = places >= 0
    folded = event_time.join(codes[is_old], (powers[is_old], places[is_old]), key_count)
    young = powers[~is_old], places[~is_old]
    return _and_young(folded, codes[~is_old], young, key_count)


def simpler(facts: Facts, old_until_ms: int) -> Strategy | None:
    """Returns `event-time` if no message is young: several windows may then share its result."""
    assert facts.event_times is not None
    assert facts.publish_times is not None
    latest = (facts.event_times, facts.publish_times)
    is_old = all(times.max(initial=old_until_ms) <= old_until_ms for times in latest)
    return event_time.EVENT_TIME if is_old else None


def _and_young(folded: Folded, codes: Codes, young: FragmentColumns, key_count: int) -> Folded:
    if not len(codes):
        return folded
    old_codes = np.arange(key_count) if folded.codes is None else folded.codes
    both = zip(folded.fragments, young, strict=True)
    fragments = tuple(np.concatenate(columns) for columns in both)
    return Folded(fragments, folded.removed_events, np.concatenate((old_codes, codes)))


def survivors(columns: FragmentColumns) -> Integers:
    """Returns the positions of the current values, and of all young messages."""
    powers, places = columns
    is_old = places >= 0
    standing = event_time.survivors((powers[is_old], places[is_old]))
    return np.concatenate((standing, ~places[~is_old] >> FLAG_BITS))


_NAME = "event-time-window"


def event_time_window(lag_ms: int, time_ms: int) -> Strategy:
    """Creates the strategy. `time_ms`: the run's time. A chunk has at most as many fragments as
    messages.
    """
    old_until_ms = time_ms - lag_ms
    return Strategy(
        _NAME,
        LISTED[_NAME].version,
        partial(begin, old_until_ms=old_until_ms),
        join,
        survivors,
        reads_event_times=True,
        simpler=partial(simpler, old_until_ms=old_until_ms),
    )

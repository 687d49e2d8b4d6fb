"""The strategy `event-time`: keeps the message with the highest event time of each key.

Rules: `EventTime` in ledgerfold/strategies/plain.py. The winners stay in publishing order.

**Power** combines time and the tie rule in one number: 2 * time + 1 for a message published alone,
2 * time for one in a batch. Against a current message of that power, a message is accepted if its
power is at least power | 1. Times are limited to -2**62 to 2**62 - 1; beyond that all are equal.

**A fragment is a message**, as power and place (strategy.py). A run of a key's messages is folded
into one or two fragments that have the same effect as the whole run on any current message before
it. Why two are enough: process the run once without a current message, and once with one of time s.
In the first case the current message never has a higher time than in the second, until the second
accepts a message. The first accepts that message as well, and from there on they are the same. So a
run does not replace s unless its highest power, its reach, is 2 * s + 1 or more; if it does, its
result is the same as without a current message. For a run without an accepted tombstone, that is a
value whose power is the reach. Otherwise, a tombstone with the reach as its power precedes the
value, if there is a value. The value keeps its event time, against which the next run is compared.

Removed events are exact for everything that `begin` sees at once: a chunk (compactor/job/scan.py),
and so a whole small log. Across chunks the count depends on which messages of the later chunk are
accepted, which no fragment of fixed size can represent. A run is counted as if no current message
preceded it, plus one for the message it replaces, if it begins with a value and is accepted at all.
That is exact if event times do not fall from one chunk to the next, and if it does not matter which
message wins.

    >>> import numpy as np
    >>> codes = np.array([0, 0, 1, 0])  # keys a a b a: a@5, a@7, b@1, a@6
    >>> times, alone = np.array([5, 7, 1, 6]), np.ones(4, bool)
    >>> folded = begin(codes, Facts(np.arange(4), alone, times, alone), key_count=2)
    >>> survivors(folded.fragments).tolist(), folded.removed_events
    ([1, 2], 1)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

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
    last_of_each,
    value_positions,
)
from ledgerfold.strategies.catalogue import LISTED
from ledgerfold.strategies.plain import EVENT_TIME_MAX_MS

# The flag bits of a place: of the fragment itself, and of the first message of its run.
_FIRST_IS_VALUE = 2
_VALUES = IS_VALUE | _FIRST_IS_VALUE
# A lower bound of all powers.
_NOTHING = -(1 << 63)
# The number of rows that are unpacked at a time where messages are processed one by one.
_SLICE_ROWS = 1 << 16


def begin(codes: Codes, facts: Facts, key_count: int) -> Folded:
    """Folds messages: each is a fragment, and each accepted tombstone is an event."""

    def places_of(rows: Integers) -> Integers:
        return _places(facts.positions[rows], facts.is_value[rows])

    ordered, is_value = facts.ordered or by_key(codes), facts.is_value
    columns = _Columns(_powers(facts), is_value, bool(is_value.all()), places_of)
    folded, tombstones = _fold(ordered, columns, key_count)
    return folded._replace(removed_events=folded.removed_events + tombstones)


def join(codes: Codes, columns: FragmentColumns, key_count: int) -> Folded:
    """Folds fragments, in any order. Their tombstones are counted already."""
    powers, places = columns
    has_values_alone = bool(((places & _VALUES) == _VALUES).all())
    is_value = (places & IS_VALUE) != 0
    unfolded = _Columns(powers, is_value, has_values_alone, places.__getitem__)
    folded, _ = _fold(by_key(codes, places), unfolded, key_count)
    return folded


def survivors(columns: FragmentColumns) -> Integers:
    """Returns the positions of the values: each key's current message."""
    _, places = columns
    return value_positions(places)


def as_fragments(facts: Facts) -> FragmentColumns:
    """Returns the power and place of each message."""
    return _powers(facts), _places(facts.positions, facts.is_value)


def _powers(facts: Facts) -> Integers:
    assert facts.event_times is not None
    assert facts.is_alone is not None
    powers = facts.event_times.clip(~EVENT_TIME_MAX_MS, EVENT_TIME_MAX_MS)
    powers <<= 1
    powers |= facts.is_alone
    return powers


def _places(positions: Integers, is_value: Booleans) -> Integers:
    return (positions << FLAG_BITS) | is_value * np.int64(_VALUES)


class _Columns(NamedTuple):
    """The columns to fold, by row; `places_of` takes row numbers.

    `has_values_alone`: no row is a tombstone, or a run that begins with one.
    """

    powers: Integers
    is_value: Booleans
    has_values_alone: bool
    places_of: Callable[[Integers], Integers]


def _fold(ordered: Ordered, columns: _Columns, key_count: int) -> tuple[Folded, int]:
    """Returns each key's fragments with the replaced messages, and the number of accepted
    tombstones.
    """
    rows, codes = ordered.rows, ordered.codes
    accepted = np.flatnonzero(_accepted(ordered, columns))
    taken_codes = codes[accepted]
    last = np.flatnonzero(last_of_each(taken_codes))
    if columns.has_values_alone:
        winners = rows[accepted[last]]
        values = columns.powers[winners], columns.places_of(winners)
        # Keys may have no message here: event-time-window keeps young messages aside.
        last_codes = None if len(winners) == key_count else taken_codes[last]
        return Folded(values, len(accepted) - len(winners), last_codes), 0
    taken = columns.places_of(rows[accepted])
    is_value = (taken & IS_VALUE) != 0
    is_replacing = is_value[:-1] & ((taken[1:] & _FIRST_IS_VALUE) != 0)
    replaced = int(np.count_nonzero(is_replacing & (taken_codes[1:] == taken_codes[:-1])))
    first_is_value = columns.places_of(rows[ordered.starts]) & _FIRST_IS_VALUE
    # At least the first message of each key was accepted, so these are aligned with the keys.
    has_winner = is_value[last]
    winners = accepted[last[has_winner]]
    places = columns.places_of(rows[winners])
    values = (
        columns.powers[rows[winners]],
        _flagged(places, IS_VALUE | first_is_value[has_winner]),
    )
    deleting = np.flatnonzero(~is_value)
    last = deleting[last_of_each(taken_codes[deleting])]
    keys = np.searchsorted(codes[ordered.starts], taken_codes[last])
    powers = columns.powers
    reaches = np.maximum.reduceat(powers[rows], ordered.starts)[keys] if len(keys) else powers[:0]
    deletions = (reaches, _flagged(taken[last], first_is_value[keys]))
    folded = Folded(
        (np.concatenate((deletions[0], values[0])), np.concatenate((deletions[1], values[1]))),
        replaced,
        np.concatenate((taken_codes[last], codes[winners])),
    )
    return folded, len(deleting)


def _flagged(places: Integers, flags: Integers) -> Integers:
    """Returns the same positions with these flag bits."""
    return (places >> FLAG_BITS << FLAG_BITS) | flags


def _accepted(ordered: Ordered, columns: _Columns) -> Booleans:
    """Returns which messages are accepted, in order of key and position."""
    firsts, codes, powers = ordered.is_first, ordered.codes, columns.powers
    if not len(codes):
        return firsts
    lowest, keys = int(powers.min()), int(codes[-1]) + 1
    span = int(powers.max()) - lowest + 1
    if span == 1 and columns.has_values_alone:
        # Among equals, each message that was published alone is accepted.
        return np.ones(len(codes), np.bool_) if lowest & 1 else firsts
    accepted, powers = firsts.copy(), powers[ordered.rows]
    is_slow = np.zeros(keys, np.bool_)
    if span * keys < 1 << 63:
        # Without tombstones, the highest message so far is current. Each key's powers are shifted
        # above those of the previous key: then one running maximum serves all keys.
        lifts = codes * span
        lifts -= lowest
        highest = powers + lifts
        np.maximum.accumulate(highest, out=highest)
        highest -= lifts
        highest |= 1
        accepted[1:] |= powers[1:] >= highest[:-1]
        if columns.has_values_alone:
            return accepted
        is_value = columns.is_value[ordered.rows]
        is_slow[codes[~is_value]] = True
    else:
        is_value = columns.is_value[ordered.rows]
        is_slow[:] = True
    slow = np.flatnonzero(is_slow[codes])
    if len(slow):
        accepted[slow] = _accepted_one_by_one(firsts[slow], powers[slow], is_value[slow])
    return accepted


def _accepted_one_by_one(firsts: Booleans, powers: Integers, is_value: Booleans) -> Booleans:
    """Computes accepted messages with tombstones: accepted ones reset the running maximum."""
    accepted = np.empty(len(firsts), np.bool_)
    least = _NOTHING
    for start in range(0, len(firsts), _SLICE_ROWS):
        part = slice(start, start + _SLICE_ROWS)
        marks = bytearray()
        columns = firsts[part].tolist(), powers[part].tolist(), is_value[part].tolist()
        for is_first, power, has_value in zip(*columns, strict=True):
            if is_first or power >= least:
                marks.append(1)
                least = power | 1 if has_value else _NOTHING
            else:
                marks.append(0)
        accepted[part] = np.frombuffer(marks, np.bool_)
    return accepted


_NAME = "event-time"
EVENT_TIME = Strategy(
    _NAME,
    LISTED[_NAME].version,
    begin,
    join,
    survivors,
    reads_event_times=True,
    is_incremental=True,
)

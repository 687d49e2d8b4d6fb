"""The type of strategies over columns: three pure functions and a name.

registry.py describes their input and output, and their laws.

Several strategies represent a run of messages by a few of them. A **place** is a message's position
and its flags in one integer: the position in the high bits, FLAG_BITS bits below, of which the
strategy defines all but the lowest. So places order as positions do.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ledgerfold.compactor.positions import Booleans, Integers

# The key of each row, as a number.
Codes = NDArray[np.integer]
# Each row is a fragment. The strategy defines the number of columns and their contents.
FragmentColumns = tuple[Integers, ...]
# The number of bits that a position leaves free (compactor/positions.py).
FLAG_BITS = 2
# The lowest flag bit: the message is a value.
IS_VALUE = 1


@dataclass(frozen=True)
class Ordered:
    """Row numbers sorted by key, then position; and the key of each."""

    rows: Integers
    codes: Integers

    @cached_property
    def is_first(self) -> Booleans:
        """A mask of the rows that begin a key."""
        firsts = np.ones(len(self.codes), np.bool_)
        np.not_equal(self.codes[1:], self.codes[:-1], out=firsts[1:])
        return firsts

    @cached_property
    def starts(self) -> Integers:
        """The index of the first row of each key."""
        return np.flatnonzero(self.is_first)

    @cached_property
    def ends(self) -> Integers:
        """The index of the last row of each key."""
        return np.append(self.starts[1:], len(self.codes))[: len(self.starts)] - 1


class Facts(NamedTuple):
    """The facts about messages that have a key, as columns; each key's messages are in order of
    position.

    `is_value`: false for a tombstone. For a strategy that reads event times: `event_times`, ms, 0
    for a message without one; `is_alone`, published alone, or in a batch
    that a run cannot read, whose one row stands for it; `publish_times` of
    their entries, ms. `ordered`: the order by key, if a caller that evaluates several strategies
    has sorted them.
    """

    positions: Integers
    is_value: Booleans
    event_times: Integers | None = None
    is_alone: Booleans | None = None
    publish_times: Integers | None = None
    ordered: Ordered | None = None

    @property
    def tombstones(self) -> int:
        return len(self.is_value) - int(np.count_nonzero(self.is_value))

    def where(self, rows: Booleans | Integers) -> Facts:
        """Returns the facts that a mask or row numbers select, without `ordered`."""
        return Facts(
            self.positions[rows],
            self.is_value[rows],
            None if self.event_times is None else self.event_times[rows],
            None if self.is_alone is None else self.is_alone[rows],
            None if self.publish_times is None else self.publish_times[rows],
        )


class Folded(NamedTuple):
    """Fragments, and the number of removed events, as the strategy's original counts them.

    One fragment for each key, in order of codes; or any number of fragments, and then `codes` has
    the key of each.
    """

    fragments: FragmentColumns
    removed_events: int
    codes: Integers | None = None


def no_simpler(_: Facts) -> None:
    """Returns None: the strategy has no simpler equivalent."""


@dataclass(frozen=True)
class Strategy:
    """A strategy over columns. It is sent to the tasks pickled, its functions by their modules'
    names.

    Codes are 0..key_count-1, each at least once; there may be none. A function that needs settings
    is a functools.partial of a function at the top level of its module.
    """

    name: str
    version: int | str
    begin: Callable[[Codes, Facts, int], Folded]
    join: Callable[[Codes, FragmentColumns, int], Folded]
    survivors: Callable[[FragmentColumns], Integers]
    reads_event_times: bool = False
    # Entered around each task that uses it.
    held: Callable[[], AbstractContextManager[None]] = nullcontext
    # Returns an equivalent strategy for such facts, with the same fragments: strategies that share
    # an equivalent are evaluated once.
    simpler: Callable[[Facts], Strategy | None] = no_simpler
    # Whether it keeps at most one message of a key, and keeps that message until a newer one of the
    # key arrives: then a run need not read the keys without new messages.
    is_incremental: bool = False


def by_key(codes: Codes, places: Integers | None = None) -> Ordered:
    """Sorts rows by key, then place. `places` None: rows are already in order of place.

        >>> ordered = by_key(np.array([1, 0, 1]), np.array([7, 5, 3]))
        >>> ordered.rows.tolist(), ordered.codes.tolist()
        ([1, 2, 0], [0, 1, 1])
        >>> last_of_each(ordered.codes).tolist()
        [True, False, True]

    Key and row number are packed into one integer: numpy sorts integers ten times as fast as it
    orders by two columns. Rows and keys are below 2**31, by the bounds of a chunk and a bucket.
    """
    ordered = _in_order(codes)
    if places is None:
        return ordered
    # Most callers pass rows in log order, but this is not required.
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

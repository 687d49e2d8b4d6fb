"""The shape of a strategy over columns: three pure functions, under a name.

What they get and give, and the laws that they keep: registry.py.
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
# A row is a fragment. How many columns there are, and what is in them, is the strategy's own.
FragmentColumns = tuple[Integers, ...]


@dataclass(frozen=True)
class Ordered:
    """Row numbers, key by key, those of a key by position; and the key of each."""

    rows: Integers
    codes: Integers

    @cached_property
    def is_first(self) -> Booleans:
        """Which begin a key."""
        firsts = np.ones(len(self.codes), np.bool_)
        np.not_equal(self.codes[1:], self.codes[:-1], out=firsts[1:])
        return firsts

    @cached_property
    def starts(self) -> Integers:
        """Where each key begins."""
        return np.flatnonzero(self.is_first)

    @cached_property
    def ends(self) -> Integers:
        """Where the last one of each key is."""
        return np.append(self.starts[1:], len(self.codes))[: len(self.starts)] - 1


class Facts(NamedTuple):
    """What is known of messages that have a key: columns, those of a key in order of position.

    `is_value`: false for a tombstone. For a strategy that reads event times: `event_times`, ms, 0
    for a message that has none; `is_alone`, published alone and not in a batch; `publish_times` of
    their entries, ms. `ordered`: by key, where whoever asks several strategies has sorted them.
    """

    positions: Integers
    is_value: Booleans
    event_times: Integers | None = None
    is_alone: Booleans | None = None
    publish_times: Integers | None = None
    ordered: Ordered | None = None

    def where(self, rows: Booleans | Integers) -> Facts:
        """Those that a mask or row numbers name; nobody has sorted them."""
        return Facts(
            self.positions[rows],
            self.is_value[rows],
            None if self.event_times is None else self.event_times[rows],
            None if self.is_alone is None else self.is_alone[rows],
            None if self.publish_times is None else self.publish_times[rows],
        )


class Folded(NamedTuple):
    """Fragments, and how many events were removed, as the strategy's original counts them.

    One fragment for each key, in the order of their codes; or any number of them, and then `codes`
    names the key of each.
    """

    fragments: FragmentColumns
    removed_events: int
    codes: Integers | None = None


def no_simpler(_: Facts) -> None:
    """Of a strategy that there is no simpler one for."""


@dataclass(frozen=True)
class Strategy:
    """A value: it travels to the tasks pickled, its functions by the names of their modules.

    Codes are 0..key_count-1, each at least once; there may be none. A function that needs settings
    is a functools.partial of one at the top of its module.
    """

    name: str
    version: int | str
    begin: Callable[[Codes, Facts, int], Folded]
    join: Callable[[Codes, FragmentColumns, int], Folded]
    survivors: Callable[[FragmentColumns], Integers]
    reads_event_times: bool = False
    # Entered around each task that asks it.
    held: Callable[[], AbstractContextManager[None]] = nullcontext
    # Another one that does the same to such messages, in the same fragments: several may come down
    # to it, which are then asked together.
    simpler: Callable[[Facts], Strategy | None] = no_simpler

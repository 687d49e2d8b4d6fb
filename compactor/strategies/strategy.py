"""The shape of a strategy: three pure functions over columns, under a name.

What they get and give, and the laws that they keep: registry.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ledgerfold.compactor.positions import Booleans, Integers

# A row is a fragment. How many columns there are, and what is in them, is the strategy's own.
FragmentColumns = tuple[Integers, ...]


class Facts(NamedTuple):
    """What is known of messages that have a key: columns, in order of position.

    `is_value`: false for a tombstone. `event_times`: ms, 0 for a message that has none; for a
    strategy that reads them.
    """

    positions: Integers
    is_value: Booleans
    event_times: Integers | None = None

    def where(self, mask: Booleans) -> Facts:
        event_times = None if self.event_times is None else self.event_times[mask]
        return Facts(self.positions[mask], self.is_value[mask], event_times)


class Folded(NamedTuple):
    """One fragment for each key, and how many values lost against another one."""

    fragments: FragmentColumns
    replaced: int


@dataclass(frozen=True)
class Strategy:
    """A value: it travels to the tasks pickled, its functions by the names of their modules.

    `fold(codes, fragments, key_count)`: `codes` names the key of each fragment, 0..key_count-1,
    each at least once; there may be none.
    """

    name: str
    version: int
    pack: Callable[[Facts], FragmentColumns]
    fold: Callable[[NDArray[np.integer], FragmentColumns, int], Folded]
    survivors: Callable[[FragmentColumns], Integers]
    reads_event_times: bool = False

"""The third task of an analysis: how many messages, entries and bytes stay of its segments.

It reads nothing: the scan told the size of each entry and the share of each message (shares.py).
Memory: 12 bytes a message of its segments, and eight for each message that stays, by strategy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ledgerfold.compactor.positions import ROW_BITS, Integers
from ledgerfold.compactor.rows import Failure
from ledgerfold.compactor.strategies.registry import AnyStrategy
from ledgerfold.compactor.strategies.strategic import MessageStrategy
from ledgerfold.compactor.what_if.rows import (
    KEYLESS,
    AnalysisRow,
    Entries,
    Kept,
    Sized,
    unpacked,
)


def size(
    rows: Iterable[AnalysisRow], strategies: Sequence[AnyStrategy], ordinals: Sequence[int]
) -> Iterator[AnalysisRow]:
    """Rows for the driver. `ordinals`: of the task's segments, which adjoin."""
    kept: dict[int, list[Integers]] = {number: [] for number in range(KEYLESS, len(strategies))}
    entries: list[Entries] = []
    for row in rows:
        match row[1]:
            case Kept() as content:
                kept[content.strategy].append(unpacked(content.positions))
            case Entries() as content:
                entries.append(content)
            case Failure():
                yield row
                return
            case _:
                yield row
    if not entries:
        return
    table = _Table.of(entries)
    table = table.within(ordinals[0] << ROW_BITS, (ordinals[-1] + 1) << ROW_BITS)
    for number, strategy in enumerate(strategies):
        # Strategies of messages drop what has no key, whatever the topic's policy says.
        keyless = [] if isinstance(strategy, MessageStrategy) else kept[KEYLESS]
        positions = np.sort(np.concatenate([np.empty(0, np.int64), *keyless, *kept[number]]))
        yield 0, table.sized(number, positions)


class _Table(NamedTuple):
    """Entries in order of position. `rows`: where the shares of each begin."""

    positions: Integers
    counts: Integers
    header_bytes: Integers
    rows: Integers
    shares: Integers

    @classmethod
    def of(cls, entries: Sequence[Entries]) -> _Table:
        positions = np.concatenate([unpacked(each.positions) for each in entries])
        counts = np.concatenate([unpacked(each.counts) for each in entries])
        header_bytes = np.concatenate([unpacked(each.header_bytes) for each in entries])
        rows = np.cumsum(counts) - counts
        order = np.argsort(positions)
        return cls(
            positions[order],
            counts[order],
            header_bytes[order],
            rows[order],
            np.concatenate([np.frombuffer(each.shares, "<u4") for each in entries]),
        )

    def within(self, low: int, high: int) -> _Table:
        """Its entries from one position to before another."""
        start, end = np.searchsorted(self.positions, [low, high])
        return self._replace(
            positions=self.positions[start:end],
            counts=self.counts[start:end],
            header_bytes=self.header_bytes[start:end],
            rows=self.rows[start:end],
        )

    def sized(self, strategy: int, kept: Integers) -> Sized:
        """`kept`: positions of messages that stay, ascending."""
        if not len(kept):
            return Sized(strategy, 0, 0, 0, 0)
        at = np.searchsorted(self.positions, kept, "right") - 1
        shares = self.shares[self.rows[at] + kept - self.positions[at]].astype(np.int64)
        starts = np.flatnonzero(np.diff(at, prepend=-1))
        entries = at[starts]
        left = np.diff(np.append(starts, len(at)))
        sizes = np.add.reduceat(shares, starts) + self.header_bytes[entries]
        is_whole = left == self.counts[entries]
        return Sized(
            strategy, len(kept), len(entries), int(sizes.sum()), int(sizes[~is_whole].sum())
        )

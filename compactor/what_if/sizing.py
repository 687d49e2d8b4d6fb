"""The third task of an analysis: counts the surviving messages, entries and bytes of its segments.

It reads no files: the scan emitted the parts of each entry, and the share of each message that may
survive (chunks.py). Memory: about 40 bytes for each message that survives under any strategy, and
48 for each entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ledgerfold.compactor.job.rows import Failure
from ledgerfold.compactor.positions import ROW_BITS, Integers
from ledgerfold.compactor.what_if.rows import (
    AnalysisRow,
    Entries,
    Kept,
    Marks,
    Sized,
    Survivors,
    unpacked,
)


def size(
    rows: Iterable[AnalysisRow],
    strategies: int,
    ordinals: Sequence[int],
    *,
    returns_survivors: bool = False,
) -> Iterator[AnalysisRow]:
    """Yields rows for the driver: `Sized` for each of the strategies.

    `ordinals`: of the task's segments, which are adjacent. `returns_survivors`: of the first
    strategy.
    """
    survivors: list[Kept] = []
    entries: list[Entries] = []
    for row in rows:
        match row[1]:
            case Kept() as content:
                survivors.append(content)
            case Entries() as content:
                entries.append(content)
            case Failure():
                yield row
                return
            case _:
                yield row
    if not (entries and survivors):
        return
    table = _Table.of(entries)
    table = table.within(ordinals[0] << ROW_BITS, (ordinals[-1] + 1) << ROW_BITS)
    messages = _Messages.of(survivors, table)
    for number in range(strategies):
        yield 0, table.sized(number, messages)
    if returns_survivors:
        stays = [
            unpacked(each.messages.positions)[(each.mark_column & 1) != 0] for each in survivors
        ]
        yield 0, Survivors.of(np.sort(np.concatenate(stays)))


class _Table(NamedTuple):
    """Entries in order of position."""

    positions: Integers
    counts: Integers
    header_bytes: Integers
    hidden: Integers

    @classmethod
    def of(cls, entries: Sequence[Entries]) -> _Table:
        columns = zip(*entries, strict=True)
        table = cls(*(np.concatenate([unpacked(each) for each in column]) for column in columns))
        order = np.argsort(table.positions)
        return cls(*(column[order] for column in table))

    def within(self, low: int, high: int) -> _Table:
        """Returns its entries from one position to before another."""
        start, end = np.searchsorted(self.positions, [low, high])
        return _Table(*(each[start:end] for each in self))

    def sized(self, strategy: int, messages: _Messages) -> Sized:
        stays = (messages.marks & (1 << strategy)) != 0
        at, shares = messages.entries[stays], messages.shares[stays]
        remaining = np.bincount(at, minlength=len(self.counts))
        # Sums are floating-point numbers: an entry has some MB, which they represent exactly.
        sizes = np.bincount(at, shares, len(self.counts)).astype(np.int64) + self.header_bytes
        is_left = remaining > 0
        return Sized(
            strategy,
            len(at) + int(self.hidden[is_left].sum()),
            int(np.count_nonzero(is_left)),
            int(sizes[is_left].sum()),
            int(sizes[is_left & (remaining < self.counts)].sum()),
        )


class _Messages(NamedTuple):
    """Surviving messages: the entry of each, as a row of the table, its share, and its marks."""

    entries: Integers
    shares: Integers
    marks: Marks

    @classmethod
    def of(cls, survivors: Sequence[Kept], table: _Table) -> _Messages:
        columns = [each.messages.columns for each in survivors]
        return cls(
            np.concatenate(
                [np.searchsorted(table.positions, each, "right") - 1 for each, _ in columns]
            ),
            np.concatenate([shares for _, shares in columns]),
            np.concatenate([each.mark_column for each in survivors]),
        )

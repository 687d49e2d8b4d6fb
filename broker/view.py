"""What a read sees: one compacted ledger, one horizon, the raw ledgers.

A view is an immutable value. A read pins the current one for as long as it takes; a compaction that
commits puts a new one in its place, and the compacted ledger of the old one goes when its last pin
does (DESIGN: "Swap").

    >>> view = View(compacted=None, horizon=None)
    >>> view.routes_compacted(Position(3, 0))
    False
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from storage.entry import Position
from storage.ledger import LedgerReader


class View:
    """`compacted` is None when nothing survived the last run, or when none ever ran."""

    __slots__ = ("_pins", "_when_free", "compacted", "horizon")

    def __init__(self, compacted: LedgerReader | None, horizon: Position | None) -> None:
        self.compacted = compacted
        self.horizon = horizon
        self._pins = 0
        self._when_free: Callable[[], None] | None = None

    def routes_compacted(self, position: Position) -> bool:
        """Whether a read-compacted read at `position` belongs to the compacted ledger.

        The horizon itself does (Pulsar: CompactedTopicUtils.asyncReadCompactedEntries).
        """
        return self.horizon is not None and position <= self.horizon

    @contextmanager
    def pinned(self) -> Iterator[View]:
        self._pins += 1
        try:
            yield self
        finally:
            self._pins -= 1
            if self._pins == 0 and self._when_free is not None:
                self._when_free()

    def retire(self, when_free: Callable[[], None]) -> None:
        """Calls `when_free` once no read holds this view any more: at once, if none does."""
        self._when_free = when_free
        if self._pins == 0:
            when_free()

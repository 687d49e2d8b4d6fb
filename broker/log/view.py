"""A view of a topic: one compacted ledger, one horizon, the raw ledgers.

A view is an immutable value, except for damage found in it. A read pins it while it runs; a reader
that keeps a view between its reads (broker/subscriptions/route.py) pins it until it ends or changes
its view. A compaction commit replaces the current view, and the old view's compacted ledger is
deleted with its last pin.

  >>> view = View()
  >>> view.routes_compacted(Position(3, 0))
  False
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import CompactedLedgerDamaged, Corruption, MissingFile, StorageError
from ledgerfold.storage.ledger import LedgerReader


class View:
    """A pinned, immutable view.

    `compacted` and `horizon` are None and `ledger_id` is -1 if no run ever succeeded.
    `damage`: a known defect of the compacted ledger. If its files cannot be opened, `compacted`
    is None.
    """

    __slots__ = ("_pins", "_topic", "_when_free", "compacted", "damage", "horizon", "ledger_id")

    def __init__(
        self,
        compacted: LedgerReader | None = None,
        horizon: Position | None = None,
        ledger_id: int = -1,
        topic: str = "",
    ) -> None:
        self.compacted = compacted
        self.horizon = horizon
        self.ledger_id = ledger_id
        self.damage: CompactedLedgerDamaged | None = None
        self._topic = topic
        self._pins = 0
        self._when_free: Callable[[], None] | None = None

    def routes_compacted(self, position: Position) -> bool:
        """Returns whether a read-compacted read at `position` reads the compacted ledger.

        The horizon itself does (Pulsar: CompactedTopicUtils.asyncReadCompactedEntries).
        """
        return self.horizon is not None and position <= self.horizon

    @contextmanager
    def reading(self) -> Iterator[LedgerReader]:
        """Pins and yields the compacted ledger.

        Raises CompactedLedgerDamaged for any damage found.
        """
        if self.compacted is None:
            assert self.damage is not None
            raise self.damage
        with self.pinned():
            try:
                yield self.compacted
            except (Corruption, MissingFile) as error:
                raise self.damaged(error) from error

    def damaged(self, cause: StorageError) -> CompactedLedgerDamaged:
        """Records damage and returns its error."""
        self.damage = CompactedLedgerDamaged(self._topic, self.ledger_id, cause)
        return self.damage

    def pin(self) -> None:
        """Keeps the compacted ledger until the matching unpin()."""
        self._pins += 1

    def unpin(self) -> None:
        self._pins -= 1
        if self._pins == 0 and self._when_free is not None:
            self._when_free()

    @contextmanager
    def pinned(self) -> Iterator[View]:
        self.pin()
        try:
            yield self
        finally:
            self.unpin()

    def retire(self, when_free: Callable[[], None]) -> None:
        """Calls `when_free` once no one pins this view: at once if it is not pinned."""
        self._when_free = when_free
        if self._pins == 0:
            when_free()


# The raw ledgers only.
RAW = View(None, None)

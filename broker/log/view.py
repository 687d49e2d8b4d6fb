"""What a read sees: one compacted ledger, one horizon, the raw ledgers.

A view is an immutable value, but for the damage that is found in it. A read pins it for as long as
it takes, a reader that keeps one from read to read for that long (broker/subscriptions/route.py). A
compaction that commits puts a new view in the place of the current one, and the compacted ledger of
the old one goes when its last pin does.

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
    """`compacted` and `horizon` are None when no run ever ended well, `ledger_id` is -1 then.

    `damage`: what is known to be wrong with the compacted ledger. Without files that could be
    opened `compacted` is None.
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
        """Whether a read-compacted read at `position` belongs to the compacted ledger.

        The horizon itself does (Pulsar: CompactedTopicUtils.asyncReadCompactedEntries).
        """
        return self.horizon is not None and position <= self.horizon

    @contextmanager
    def reading(self) -> Iterator[LedgerReader]:
        """The compacted ledger, pinned. Raises CompactedLedgerDamaged instead of what is found."""
        if self.compacted is None:
            assert self.damage is not None
            raise self.damage
        with self.pinned():
            try:
                yield self.compacted
            except (Corruption, MissingFile) as error:
                raise self.damaged(error) from error

    def damaged(self, cause: StorageError) -> CompactedLedgerDamaged:
        """Remembers it."""
        self.damage = CompactedLedgerDamaged(self._topic, self.ledger_id, cause)
        return self.damage

    def pin(self) -> None:
        """Its compacted ledger stays until as many unpin() came."""
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
        """Calls `when_free` once nobody holds this view any more: at once, if nobody does."""
        self._when_free = when_free
        if self._pins == 0:
            when_free()


# The raw ledgers and nothing else.
RAW = View(None, None)

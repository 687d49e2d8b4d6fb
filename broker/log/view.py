"""A view of a topic: one compacted ledger, one horizon, the raw ledgers.

A view is an immutable value, except for damage found in it. A read pins it while it runs; a reader
that keeps a view between its reads (broker/subscriptions/route.py) pins it until it ends or changes
its view. The topic's record describes the current view. A commit, a truncation or a moved cursor
changes the record; then renew() makes the recorded view the current one, and the old view's
compacted ledger is deleted with its last pin.

  >>> view = View()
  >>> view.routes_compacted(Position(3, 0))
  False
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.storage.entry import EARLIEST, Position, position_of
from ledgerfold.storage.errors import CompactedLedgerDamaged, Corruption, MissingFile, StorageError
from ledgerfold.storage.ledger import LedgerReader, LedgerStore
from ledgerfold.storage.segment import live_position
from ledgerfold.v1.records_pb2 import SegmentRecord

_log = logging.getLogger(__name__)


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


class Views:
    """The current view of one topic; empty before a load."""

    def __init__(self, stored: StoredTopic, store: LedgerStore) -> None:
        self._stored, self._store = stored, store
        self.current = View()

    def renew(self) -> View:
        """Switches to the view that the topic's record describes, and returns the previous one."""
        previous, self.current = self.current, self._recorded()
        return previous

    def _recorded(self) -> View:
        """Returns the recorded view, with `__compaction` as its horizon if that was moved."""
        record = self._stored.record
        if not record.HasField("compacted"):
            return View()
        compacted, name = record.compacted, record.name
        is_moved = record.HasField("compaction_moved_to")
        horizon = position_of(record.compaction_moved_to if is_moved else compacted.horizon)
        missing = self._store.missing_of(compacted.ledger_id)
        if missing is None:
            reader = self._store.open_reader(compacted.ledger_id)
            return View(reader, horizon, compacted.ledger_id, name)
        view = View(None, horizon, compacted.ledger_id, name)
        _log.error("%s", view.damaged(missing))
        return view

    def check(self) -> None:
        """Raises CompactedLedgerDamaged if damage is known, or a file is missing now."""
        view = self.current
        if view.damage is not None:
            raise view.damage
        missing = self._store.missing_of(view.ledger_id) if view.ledger_id >= 0 else None
        if missing is not None:
            raise view.damaged(missing)

    @property
    def horizon(self) -> Position | None:
        return self.current.horizon

    @property
    def has_damage(self) -> bool:
        """Returns whether the compacted ledger is known to be damaged or missing."""
        return self.current.damage is not None

    @property
    def floor(self) -> Position:
        """The position before which retention removed entries, from the compacted ledger, too."""
        if not self._stored.record.HasField("retention_floor"):
            return EARLIEST
        return position_of(self._stored.record.retention_floor)

    def segments(self) -> list[SegmentRecord]:
        """Returns the current compacted ledger's segments with readable entries, in order."""
        if self.current.compacted is None:
            return []
        return [
            segment
            for segment in self.current.compacted.record.segments
            if live_position(segment, last=True) >= self.floor
        ]

"""The compacted view that a topic currently serves.

The topic's record describes it. A commit, a truncation or a moved cursor changes the record; then
renew() makes the recorded view the one that reads see (broker/log/view.py).
"""

from __future__ import annotations

import logging

from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.broker.log.view import View
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.segment import live_position
from ledgerfold.v1.records_pb2 import SegmentRecord

_log = logging.getLogger(__name__)


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
        routed_by = record.compaction_moved_to if is_moved else compacted.horizon
        horizon = Position(routed_by.ledger_id, routed_by.entry_id)
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
        floor = self._stored.record.retention_floor
        return Position(floor.ledger_id, floor.entry_id)

    def segments(self) -> list[SegmentRecord]:
        """Returns the current compacted ledger's segments with readable entries, in order."""
        if self.current.compacted is None:
            return []
        return [
            segment
            for segment in self.current.compacted.record.segments
            if live_position(segment, last=True) >= self.floor
        ]

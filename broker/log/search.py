"""Searches in a log: by publish time, the last entry, a reader's start.

A search continues in the current ledgers if a run replaces the compacted view or a raw ledger is
trimmed during it.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ledgerfold.broker.log.files import LogFiles
from ledgerfold.broker.log.ledger_record import last_entry
from ledgerfold.broker.log.positions import LogPositions
from ledgerfold.broker.log.raw_ledgers import RawLedgers
from ledgerfold.broker.log.reads import LogReads
from ledgerfold.broker.log.state import LogState
from ledgerfold.broker.log.view import RAW, View, Views
from ledgerfold.storage.entry import EARLIEST, LATEST, Position, position_of
from ledgerfold.storage.errors import CompactedLedgerDamaged, Corruption
from ledgerfold.storage.ledger import StoredEntry
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import LedgerRecord

_T = TypeVar("_T")


class LogSearch:
    """The searches of one log. Used on the event loop only; ledgers are searched on a thread."""

    def __init__(
        self,
        ledgers: RawLedgers,
        positions: LogPositions,
        views: Views,
        reads: LogReads,
        files: LogFiles,
        state: LogState,
    ) -> None:
        self._ledgers, self._positions, self._views = ledgers, positions, views
        self._reads, self._files, self._state = reads, files, state

    async def _with_stable_view(self, ask: Callable[[View], Awaitable[_T]]) -> _T:
        """Returns the answer of the current view; retries if a run commits and trims meanwhile."""
        while True:
            view = self._views.current
            with self._files.moved_if_closed():
                answer = await ask(view)
            if view is self._views.current:
                return answer

    # -- start and end ----------------------------------------------------------------

    async def resolve_start(
        self, start: StartPosition, read_compacted: bool
    ) -> tuple[Position, bool]:
        """Returns where to begin reading, and whether that is an existing or a future entry."""
        at = start.WhichOneof("at")
        if at == "earliest":
            return EARLIEST, True
        if at == "publish_time_ms":
            return await self._position_at_time(start.publish_time_ms, read_compacted), True
        if at == "message_id":
            position = position_of(start.message_id)
            if position < Position(0, 0):
                return EARLIEST, True
            if position < LATEST:
                from_entry = start.inclusive or start.message_id.batch_index >= 0
                if from_entry or await self._is_batch(position, read_compacted):
                    return position, True
                return position.next, True
        if start.inclusive:
            entry = await self.last_entry(read_compacted)
            if entry is not None:
                return entry.header.position, True
        return self._positions.after_last(), True

    async def _is_batch(self, position: Position, read_compacted: bool) -> bool:
        """Returns whether the view has a batch entry at `position`.

        A damaged entry counts as none.
        """
        view = self._views.current if read_compacted else RAW
        try:
            entries = (await self._reads.read(position, view=view, bytes_max=1)).entries
        except (Corruption, CompactedLedgerDamaged):
            return False
        headers = (each.header for each in entries)
        return any(each.position == position and not each.is_plain for each in headers)

    async def last_entry(self, read_compacted: bool) -> StoredEntry | None:
        """Returns the view's last entry: compacted if no raw one is above the horizon."""
        return await self._with_stable_view(lambda view: self._last_entry(view, read_compacted))

    async def _last_entry(self, view: View, read_compacted: bool) -> StoredEntry | None:
        last = self._state.last_durable
        if last is not None and last.ledger_id not in self._ledgers:
            last = None
        if read_compacted and view.horizon is not None and (last is None or last <= view.horizon):
            with view.reading() as compacted:
                entry = await self._files.in_thread(compacted.last_entry)
            is_kept = entry is not None and entry.header.position >= self._views.floor
            return entry if is_kept else None
        if last is None:
            return None
        entries = (await self._reads.read_raw(last, 1)).entries
        return entries[0] if entries else None

    # -- by publish time -------------------------------------------------------------------

    async def first_published_since(self, publish_time_ms: int) -> Position:
        """Returns the first entry of that time or later: compacted if there is one, else raw.

        If there is none, returns the position of the next published entry (apache/pulsar#21600).
        """

        async def ask(view: View) -> Position:
            compacted = await self._compacted_at_time(view, publish_time_ms)
            return compacted or await self._raw_at_time(publish_time_ms, EARLIEST)

        return await self._with_stable_view(ask)

    async def _position_at_time(self, publish_time_ms: int, read_compacted: bool) -> Position:
        if not read_compacted:
            return await self._raw_at_time(publish_time_ms, EARLIEST)

        async def ask(view: View) -> Position:
            compacted = await self._compacted_at_time(view, publish_time_ms)
            return compacted or await self._raw_at_time(publish_time_ms, view.horizon or EARLIEST)

        return await self._with_stable_view(ask)

    async def _compacted_at_time(self, view: View, publish_time_ms: int) -> Position | None:
        if view.ledger_id < 0:
            return None
        with view.reading() as compacted:
            floor = self._views.floor
            find = functools.partial(compacted.position_at_time, publish_time_ms, floor)
            return await self._files.in_thread(find)

    async def _raw_at_time(self, publish_time_ms: int, after: Position) -> Position:
        """Returns the first raw entry after `after` of that time or later, else the end."""
        for record in self._ledgers.since(after.ledger_id):
            position = await self._find_in(record, publish_time_ms, after)
            if position is not None:
                return position
        return self._positions.after_last()

    async def last_published_before(self, publish_time_ms: int, after: Position) -> Position:
        """Returns the last entry after `after` that precedes the first one of that time or later.

        Returns `after` if there is none.
        """
        for record in self._ledgers.since(after.ledger_id):
            last = last_entry(record)
            if last is None or last <= after:
                continue
            first = await self._find_in(record, publish_time_ms, after)
            if first is not None:
                return max(after, self._positions.previous(first)) if first.entry_id else after
            if record.ledger_id in self._ledgers:
                after = last
        return after

    async def _find_in(
        self, record: LedgerRecord, publish_time_ms: int, after: Position
    ) -> Position | None:
        """Returns the first entry of a raw ledger after `after` of that time or later.

        Returns None also if the ledger is trimmed meanwhile.
        """
        if all(each.publish_time_max_ms < publish_time_ms for each in record.segments):
            return None
        with self._reads.unless_trimmed(record.ledger_id):
            search = self._reads.raw_reader(record.ledger_id).position_at_time
            return await self._files.in_thread(
                functools.partial(search, publish_time_ms, after.next)
            )
        return None

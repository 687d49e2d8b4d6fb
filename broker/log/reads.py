"""Reads of a log: combined reads of its raw ledgers and the compacted view.

Reads are routed by the view: read-compacted reads at or below the horizon come from the compacted
ledger, all others from the raw ledgers (Pulsar: CompactedTopicUtils). Only durable entries are
read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ledgerfold.broker.log.files import LogFiles
from ledgerfold.broker.log.positions import LogPositions
from ledgerfold.broker.log.raw_ledgers import RawLedgers
from ledgerfold.broker.log.state import LogState
from ledgerfold.broker.log.view import View, Views
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import MissingFile
from ledgerfold.storage.ledger import LedgerReader, StoredEntry


class ReadResult(NamedTuple):
    """Entries of one view, and the position to continue at.

    Empty and not moved: no more entries now.
    """

    entries: Sequence[StoredEntry]
    next_position: Position


class LogReads:
    """The reads of one log. Used on the event loop only; uncached entries are read on a thread."""

    def __init__(
        self,
        ledgers: RawLedgers,
        positions: LogPositions,
        views: Views,
        files: LogFiles,
        state: LogState,
    ) -> None:
        self._ledgers, self._positions, self._views = ledgers, positions, views
        self._files, self._state = files, state

    async def read(self, position: Position, *, view: View, bytes_max: int) -> ReadResult:
        """Reads durable entries at and after `position`.

        Returns at least one if there is one, and about `bytes_max`. `view`: RAW, the current one,
        or an earlier one that is pinned. Raises Moved if the topic was unloaded, Corruption,
        MissingFile, CompactedLedgerDamaged.
        """
        if self._state.closed is not None:
            raise self._state.closed
        if view.horizon is not None and view.routes_compacted(position):
            if view.ledger_id >= 0:
                start = max(position, self._views.floor)
                with view.reading() as compacted:
                    # A horizon that was moved back is before the ledger's last entries.
                    end = compacted.last or view.horizon
                    entries = await self._files.read(compacted, start, bytes_max, end)
                if entries:
                    return ReadResult(entries, entries[-1].header.position.next)
            position = view.horizon.next
        return await self.read_raw(position, bytes_max)

    async def read_raw(self, position: Position, bytes_max: int) -> ReadResult:
        """Reads like read(), from the raw ledgers only."""
        position = self._positions.existing(position)
        durable = self._state.last_durable
        if durable is None or position > durable:
            return ReadResult((), position)
        reader = self.raw_reader(position.ledger_id)
        entries = None
        with self.unless_trimmed(position.ledger_id):
            entries = await self._files.read(reader, position, bytes_max, durable)
        if entries is None:
            return await self.read_raw(position, bytes_max)
        if not entries:
            return ReadResult((), position)
        return ReadResult(entries, self._positions.next(entries[-1].header.position))

    def raw_reader(self, ledger_id: int) -> LedgerReader:
        return self._files.open_reader(ledger_id, self._ledgers.closed_record(ledger_id))

    @contextmanager
    def unless_trimmed(self, ledger_id: int) -> Iterator[None]:
        """Suppresses MissingFile if the raw ledger was trimmed meanwhile: the caller skips it."""
        try:
            with self._files.moved_if_closed():
                yield
        except MissingFile:
            if ledger_id in self._ledgers:
                raise

    async def wait_beyond(self, position: Position) -> None:
        """Returns when a raw read at `position` may return entries. Raises Moved on unload."""
        state = self._state
        while True:
            if state.closed is not None:
                raise state.closed
            durable = state.last_durable
            if durable is not None and self._positions.existing(position) <= durable:
                return
            await state.changed()

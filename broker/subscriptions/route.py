"""Which view the reads of one reader see, from one to the next.

A reader that is read-compacted sees the current view, any other the raw ledgers. A run may put
another view in place while a reader is on its way: keys that were deleted in between are in neither
the new compacted ledger nor in what is left for the reader to read. If the profile wants, a reader
that has had an entry therefore keeps the view it began with: that compacted ledger up to that
horizon, and the raw ledgers, tombstones and all, behind it. Source: docs/PROFILES.md,
rule 8.10; apache/pulsar#26190.

A read takes time, and a run may commit and trim in the middle of it. Then what was read belongs to
a view that its reader is not to see any more, or may have a hole where raw ledgers were trimmed:
unless the reader keeps that view, it is read again. After an unload, which lets go what readers
keep, what was read counts for nothing, nor do errors: whoever loads the topic may have compacted
it, and deleted what this log names.

    >>> from types import SimpleNamespace
    >>> log = SimpleNamespace(view=View())
    >>> Route(Emulation(), read_compacted=True).view(Position(3, 0), log) is log.view
    True
    >>> Route(Emulation(), read_compacted=False).view(Position(3, 0), log) is RAW
    True

Bounds: a kept view holds one compacted ledger, and the raw ledgers behind its horizon, on disk, for
as long as its reader is connected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ledgerfold.broker.log.view import RAW, View
from ledgerfold.broker.policies.profiles import Emulation
from ledgerfold.storage.entry import EntryHeader, Position
from ledgerfold.storage.errors import StorageError


class StoredEntry(Protocol):
    """An entry as the log gives it: `data` is all of it, header included, verified."""

    @property
    def header(self) -> EntryHeader: ...

    @property
    def data(self) -> bytes: ...


class ReadResult(Protocol):
    """No entries and `next_position` moved: a gap. Not moved: there is nothing more now."""

    @property
    def entries(self) -> Sequence[StoredEntry]: ...

    @property
    def next_position(self) -> Position: ...


class Log(Protocol):
    """What a route needs of a topic's log (broker/log/log.py)."""

    @property
    def view(self) -> View: ...

    @property
    def closed(self) -> Exception | None:
        """Why nothing can be read any more, what read() raises then."""
        ...

    def is_gone(self, position: Position) -> bool:
        """Whether raw entries at or behind it, of its ledger, were deleted."""
        ...

    async def read(self, position: Position, *, view: View, bytes_max: int) -> ReadResult: ...


class Routed(NamedTuple):
    """A read's result, and the view that it is of."""

    result: ReadResult
    view: View


class Route:
    """`is_raw`: a reader that comes back, and had passed the horizon of its view before."""

    def __init__(self, emulation: Emulation, *, read_compacted: bool, is_raw: bool = False) -> None:
        self._read_compacted = read_compacted
        self._keeps = read_compacted and emulation.lagging_readers_get_tombstones
        self._kept: View | None = None
        if is_raw and self._keeps:
            self._keep(RAW)

    @property
    def is_raw(self) -> bool:
        """Whether its reader has passed the horizon for good."""
        return self._kept is RAW

    def view(self, position: Position, log: Log) -> View:
        """That of the read at `position` which comes now."""
        if not self._read_compacted:
            return RAW
        if self._kept is None or (self.is_raw and log.is_gone(position)):
            return log.view
        return self._kept

    async def read(self, position: Position, log: Log, *, bytes_max: int) -> Routed:
        """Reads on, of the view that is right when the read is over. Raises what the log raises."""
        while True:
            view = self.view(position, log)
            try:
                result = await log.read(position, view=view, bytes_max=bytes_max)
            except StorageError:
                if self._is_right(view, position, log):
                    raise
                continue
            if self._is_right(view, position, log):
                return Routed(result, view)

    def _is_right(self, view: View, position: Position, log: Log) -> bool:
        return log.closed is None and self.view(position, log) is view

    def delivered(self, view: View, count: int, position: Position) -> None:
        """The read gave `count` entries of `view`, and goes on at `position`."""
        if self._keeps and (count or self._kept is not None):
            is_beyond = view.horizon is None or position > view.horizon
            self._keep(RAW if is_beyond else view)

    def held_position(self, position: Position, horizon: Position | None) -> Position | None:
        """The first raw entry at or below the topic's `horizon` that it still needs, if any.

        `position`: where its reader stands.
        """
        if self._kept is None or horizon is None:
            return None
        kept = self._kept.horizon
        first = position if kept is None else max(position, kept.next)
        return first if first <= horizon else None

    def close(self) -> None:
        """Its reader ends, or begins anew: nothing is held for it any more."""
        if self._kept is not None:
            self._kept.unpin()
            self._kept = None

    def _keep(self, view: View) -> None:
        view.pin()
        self.close()
        self._kept = view

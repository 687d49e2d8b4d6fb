"""The view used by each read of one reader.

A read-compacted reader uses the current view, any other reader the raw ledgers. A run may replace
the view while a reader is in the middle of it: keys deleted in between are neither in the new
compacted ledger nor in the entries that the reader has left. If the profile requires it, a reader
that has received an entry therefore keeps its first view: that compacted ledger up to that horizon,
and the raw ledgers, with their tombstones, after it. Source: docs/PROFILES.md, rule 8.10;
apache/pulsar#26190.

A run may commit and trim during a read. Then the result is that of an old view, or may have a gap
where raw ledgers were trimmed, so the read is repeated, unless the reader keeps the old view. After
an unload, which releases kept views, results and errors of reads are ignored: the next owner may
have compacted the topic and deleted ledgers that this log names.

  >>> from types import SimpleNamespace
  >>> log = SimpleNamespace(views=SimpleNamespace(current=View()))
  >>> Route(Emulation(), read_compacted=True).view(Position(3, 0), log) is log.views.current
  True
  >>> Route(Emulation(), read_compacted=False).view(Position(3, 0), log) is RAW
  True

Bounds: a kept view keeps one compacted ledger, and the raw ledgers after its horizon, on disk while
its reader is connected.
"""

from __future__ import annotations

from typing import NamedTuple

from ledgerfold.broker.log.log import TopicLog
from ledgerfold.broker.log.reads import ReadResult
from ledgerfold.broker.log.view import RAW, View
from ledgerfold.broker.policies.profiles import Emulation
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import StorageError


class Routed(NamedTuple):
    """A read's result and its view."""

    result: ReadResult
    view: View


class Route:
    """The view selection of one reader.

    `is_raw`: it reconnects and had passed its view's horizon.
    """

    def __init__(self, emulation: Emulation, *, read_compacted: bool, is_raw: bool = False) -> None:
        self._read_compacted = read_compacted
        self._keeps = read_compacted and emulation.lagging_readers_get_tombstones
        self._fixed_view: View | None = None
        if is_raw and self._keeps:
            self._keep(RAW)

    @property
    def is_raw(self) -> bool:
        """Returns whether its reader has permanently passed the horizon."""
        return self._fixed_view is RAW

    def view(self, position: Position, log: TopicLog) -> View:
        """Returns the view for a read at `position`."""
        if not self._read_compacted:
            return RAW
        if self._fixed_view is None or (self.is_raw and log.positions.is_deleted(position)):
            return log.views.current
        return self._fixed_view

    async def read(self, position: Position, log: TopicLog, *, bytes_max: int) -> Routed:
        """Reads from the view that is current when the read ends. Raises what the log raises."""
        while True:
            view = self.view(position, log)
            try:
                result = await log.reads.read(position, view=view, bytes_max=bytes_max)
            except StorageError:
                if self._is_current(view, position, log):
                    raise
                continue
            if self._is_current(view, position, log):
                return Routed(result, view)

    def _is_current(self, view: View, position: Position, log: TopicLog) -> bool:
        return log.state.closed is None and self.view(position, log) is view

    def delivered(self, view: View, count: int, position: Position) -> None:
        """Records a delivery of `count` entries of `view`; reading continues at `position`."""
        if self._keeps and (count or self._fixed_view is not None):
            is_beyond = view.horizon is None or position > view.horizon
            self._keep(RAW if is_beyond else view)

    def held_position(self, position: Position, horizon: Position | None) -> Position | None:
        """Returns the first raw entry at or below the topic's `horizon` that it needs, if any.

        `position`: its reader's position.
        """
        if self._fixed_view is None or horizon is None:
            return None
        kept_horizon = self._fixed_view.horizon
        first = position if kept_horizon is None else max(position, kept_horizon.next)
        return first if first <= horizon else None

    def close(self) -> None:
        """Releases the kept view, when its reader ends or restarts."""
        if self._fixed_view is not None:
            self._fixed_view.unpin()
            self._fixed_view = None

    def _keep(self, view: View) -> None:
        view.pin()
        self.close()
        self._fixed_view = view

"""The raw ledgers of a log that are being written: the open one, and those that it has followed.

A ledger that has reached a limit is followed by a new one at once, and gets no entry any more; it
is flushed and closed in its turn. So entries are durable in the order of their positions, and
ledgers are closed in theirs.
"""

from __future__ import annotations

from collections import deque

from ledgerfold.storage.entry import Position
from ledgerfold.storage.ledger import LedgerWriter


class Writers:
    """`open`: gets what is appended. None before a load, and after a close."""

    def __init__(self) -> None:
        self.open: LedgerWriter | None = None
        # With something to flush or to close, oldest first.
        self.followed: deque[LedgerWriter] = deque()

    def follow(self, writer: LedgerWriter, begun: LedgerWriter) -> None:
        """From now on `begun` is the open one, behind `writer`."""
        self.followed.append(writer)
        self.open = begun

    def oldest_unflushed(self) -> LedgerWriter | None:
        """Whose turn it is to be flushed, or flushed and closed."""
        if self.followed:
            return self.followed[0]
        return self.open if self.open is not None and self.open.pending_bytes else None

    def last_appended(self) -> Position | None:
        """The last position given out by any of them."""
        for writer in (self.open, *reversed(self.followed)):
            if writer is not None and writer.next_entry_id:
                return Position(writer.ledger_id, writer.next_entry_id - 1)
        return None

    def is_finished(self, ledger_id: int) -> bool:
        """Whether no entry can become durable in that raw ledger any more."""
        # They are closed in order.
        oldest = self.followed[0] if self.followed else self.open
        return oldest is None or ledger_id < oldest.ledger_id

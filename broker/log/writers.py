"""The raw ledgers being written: the open one, and full ones before it.

When a ledger has reached a limit, a new one begins at once. Ledgers are flushed and closed in
order, so entries become durable in the order of their positions.
"""

from __future__ import annotations

from collections import deque

from ledgerfold.storage.entry import Position
from ledgerfold.storage.ledger import LedgerWriter


class Writers:
    """The writers of one log. `open` gets appends; None before a load and after a close."""

    def __init__(self) -> None:
        self.open: LedgerWriter | None = None
        # Ledgers to flush or close, oldest first.
        self.followed: deque[LedgerWriter] = deque()

    def follow(self, writer: LedgerWriter, created: LedgerWriter) -> None:
        """Makes `created` the open ledger, after `writer`."""
        self.followed.append(writer)
        self.open = created

    def oldest_unflushed(self) -> LedgerWriter | None:
        """Returns the ledger to flush, or to flush and close, next."""
        if self.followed:
            return self.followed[0]
        return self.open if self.open is not None and self.open.pending_bytes else None

    def last_appended(self) -> Position | None:
        """Returns the last position assigned by any of them."""
        for writer in (self.open, *reversed(self.followed)):
            if writer is not None and writer.next_entry_id:
                return Position(writer.ledger_id, writer.next_entry_id - 1)
        return None

    def is_finished(self, ledger_id: int) -> bool:
        """Returns whether no more entries can become durable in the raw ledger."""
        # They are closed in order.
        oldest = self.followed[0] if self.followed else self.open
        return oldest is None or ledger_id < oldest.ledger_id

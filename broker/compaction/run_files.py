"""Removal of files written by runs that will never be published.

A killed worker may leave tasks that write for a moment longer, and the disk may refuse a removal.
So a failed removal does not affect the run: it is retried before the next run, and the next start
removes the rest (storage/recovery.py). These files never affect another run: each has its own
folder, whose number is never reused.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledgerfold.storage.ledger import LedgerStore

_log = logging.getLogger(__name__)


class RunFiles:
    """The files to remove, for one scheduler. Raises nothing."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        # Ledger ids whose files remain: one per failed removal since the start.
        self.ledger_ids: set[int] = set()

    async def remove(self, ledger_id: int) -> None:
        """Removes the files of a ledger that is not, and will not be, published."""
        self.ledger_ids.add(ledger_id)
        try:
            await asyncio.to_thread(self._store.delete_files, ledger_id)
        except Exception as error:
            _log.error("The files of ledger %d remain for now: %s", ledger_id, error)
        else:
            self.ledger_ids.discard(ledger_id)

    async def retry(self) -> None:
        """Retries the failed removals."""
        for ledger_id in sorted(self.ledger_ids):
            await self.remove(ledger_id)

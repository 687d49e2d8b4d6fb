"""Takes away what runs wrote that will never be published.

A worker that was killed may leave tasks that write for a moment longer, and a disk may refuse. So a
removal that fails is not the run's concern: it is tried again before the next run, and the next
start removes what is left even then (storage/recovery.py). No run is ever harmed by such files:
each has a folder of its own, whose number is never given out again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledgerfold.storage.ledger import LedgerStore

_log = logging.getLogger(__name__)


class RunFiles:
    """One per scheduler. No error comes out of it."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        # Ledger ids whose files are still there: one per failed removal since the start.
        self.left: set[int] = set()

    async def remove(self, ledger_id: int) -> None:
        """The files of a ledger that is not published, and will not be."""
        self.left.add(ledger_id)
        try:
            await asyncio.to_thread(self._store.delete_files, ledger_id)
        except Exception as error:
            _log.error("The files of ledger %d stay for now: %s", ledger_id, error)
        else:
            self.left.discard(ledger_id)

    async def retry(self) -> None:
        """What could not be removed before."""
        for ledger_id in sorted(self.left):
            await self.remove(ledger_id)

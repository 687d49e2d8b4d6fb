"""What frees space is done on a full disk, too: with the room that is kept for it.

Source: storage/reserve.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from ledgerfold.storage.errors import DiskFailure, TopicNotFound
from ledgerfold.storage.ledger import LedgerStore


async def freeing(store: LedgerStore, free: Callable[[], Awaitable[object]]) -> None:
    """Does it; once more, with the reserve's room, if the disk was full. Raises what it raises."""
    try:
        await free()
    except DiskFailure as error:
        if not (error.is_full and store.reserve.is_there):
            raise
        # It is gone, and only what was left of it could not be removed: that is done later.
        try:
            with store.reserve.lent(), contextlib.suppress(TopicNotFound):
                await free()
        finally:
            await asyncio.to_thread(store.reserve.renew)

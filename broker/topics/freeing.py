"""Retries an operation that frees space with the disk reserve if the disk is full.

Source: storage/reserve.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from ledgerfold.storage.errors import DiskFailure, TopicNotFound
from ledgerfold.storage.ledger import LedgerStore


async def retry_with_reserve(store: LedgerStore, free: Callable[[], Awaitable[object]]) -> None:
    """Runs `free`; if the disk is full, runs it again with the reserve's room.

    Raises what `free` raises.
    """
    try:
        await free()
    except DiskFailure as error:
        if not (error.is_full and store.reserve.is_there):
            raise
        try:
            with store.reserve.lent():
                # TopicNotFound: the first attempt deleted it.
                with contextlib.suppress(TopicNotFound):
                    await free()
                # The files that the first attempt left.
                await asyncio.to_thread(store.delete_all_files, ())
        finally:
            await asyncio.to_thread(store.reserve.renew)

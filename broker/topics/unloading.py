"""Unloads many topics, some at the same time. A failure of one does not affect the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from ledgerfold.storage.errors import StorageError


async def unload_each(
    names: Iterable[str], unload: Callable[[str], Awaitable[StorageError | None]], concurrency: int
) -> list[StorageError]:
    """Unloads topics, and returns why some were not written completely.

    Raises the first internal error, when all others are unloaded.
    """
    places = asyncio.Semaphore(concurrency)

    async def unloaded(name: str) -> StorageError | None:
        async with places:
            return await unload(name)

    results = await asyncio.gather(*map(unloaded, names), return_exceptions=True)
    for each in results:
        if isinstance(each, BaseException) and not isinstance(each, StorageError):
            raise each
    return [each for each in results if isinstance(each, StorageError)]

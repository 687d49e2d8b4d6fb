"""Table views for asyncio. broker/client/sync/table_view.py explains the rules.

    >>> import asyncio
    >>> from ledgerfold.broker.client.asyncio_client.client import Client
    >>> async def example() -> None:
    ...     async with Client("127.0.0.1:7650") as client:
    ...         producer = await client.create_producer("prices")
    ...         await producer.send(b"10", partition_key="p3")
    ...         async with await client.create_table_view("prices") as view:
    ...             view.for_each_and_listen(lambda key, value: print(key, value))
    >>> asyncio.run(example())
    p3 b'10'

Listeners are plain functions, called on the event loop: they must not block, and should start a
task for longer work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from ledgerfold.broker.client.core.table_view_core import BaseTableView, TableViewCore


async def run_here(call: Callable[[], None]) -> None:
    """Runs `call` on the event loop, after other tasks have had a chance to run."""
    await asyncio.sleep(0)
    call()


class TableView(BaseTableView):
    """The last value of each key. See `ledgerfold.TableView`."""

    def __init__(self, core: TableViewCore, forget: Callable[[object], None]) -> None:
        super().__init__(core)
        self._forget = forget

    async def refresh(self) -> None:
        """Returns when the view holds everything in the topic at the call. Raises AlreadyClosed."""
        await self._core.refresh()

    async def close(self) -> None:
        """Stops reading and listening."""
        self._forget(self)
        await self._core.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

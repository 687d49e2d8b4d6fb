"""The part of a table view that both APIs share, except waiting: the table and its readers.

A view has one reader (table_follower.py) for each partition of its topic, including new ones, or
one for a topic that is not partitioned. They write to one table (table.py), one at a time.
"""

from __future__ import annotations

import asyncio
from typing import Self

from ledgerfold.broker.client.core.partition_set import PartitionSet
from ledgerfold.broker.client.core.table import Table
from ledgerfold.broker.client.core.table_follower import Run, TableFollower
from ledgerfold.broker.client.messages.configs import TableViewConfig
from ledgerfold.broker.client.streams.connection import Connection
from ledgerfold.storage.errors import AlreadyClosed


class TableViewCore(PartitionSet[TableFollower]):
    """The table of one view, and its readers.

    `run` runs the calls that write the table and call listeners.
    """

    def __init__(self, connection: Connection, config: TableViewConfig, run: Run) -> None:
        super().__init__(connection, config.topic)
        self.config = config
        decode = bytes if config.schema is None else config.schema.decode
        self.table = Table(decode, config.strategy)
        self._run = run
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(self, count: int) -> Self:
        """Connects, and reads everything in the topic at the call. Raises the broker's errors."""
        try:
            await super().open(count)
            await self.refresh()
        except BaseException:
            await self.close()
            raise
        return self

    async def _open_one(self, topic: str, *, is_new: bool) -> TableFollower:
        # New partitions, too, are read from earliest.
        name = self.config.subscription_name or ""
        return await TableFollower.open(self._connection, topic, name, self.table, self._run)

    async def refresh(self) -> None:
        """Returns when everything in the topic at the call is in the table. Raises
        AlreadyClosed.
        """
        catching_up = asyncio.create_task(self._catch_up())
        try:
            await asyncio.wait({catching_up, self._closed}, return_when=asyncio.FIRST_COMPLETED)
            if self._closed.done():
                raise AlreadyClosed(f"The table view of {self.topic} is closed.")
            catching_up.result()
        finally:
            catching_up.cancel()

    async def _catch_up(self) -> None:
        # Sequentially: all of them read concurrently.
        for follower in self.cores:
            await follower.catch_up()

    async def close(self) -> None:
        """Closes the readers; the table keeps its contents."""
        self._end_refreshes()
        await super().close()

    async def shut_down(self) -> None:
        self._end_refreshes()
        await super().shut_down()

    def _end_refreshes(self) -> None:
        if not self._closed.done():
            self._closed.set_result(None)

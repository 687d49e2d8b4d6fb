"""A table view without its waiting, shared by both APIs: the table, and the readers that fill it.

A view has one reader (table_follower.py) for each partition of its topic, including new ones, or
one for a topic that is not partitioned. They write to one table (table.py), one at a time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from ledgerfold.broker.client.core.partition_set import PartitionSet, partition_count
from ledgerfold.broker.client.core.table import Listener, Schema, Table
from ledgerfold.broker.client.core.table_follower import Run, TableFollower
from ledgerfold.broker.client.messages.arguments import check_topic_argument
from ledgerfold.broker.client.streams.connection import Connection, full_topic_name
from ledgerfold.broker.client.streams.forks import invalidate_after_fork
from ledgerfold.storage.errors import AlreadyClosed
from ledgerfold.storage.text import counted
from ledgerfold.strategies.strategic import TopicCompactionStrategy


@dataclass(frozen=True, slots=True)
class TableViewConfig:
    """The arguments of `Client.create_table_view` (see there)."""

    topic: str
    subscription_name: str | None = None
    # None: values are the contents as bytes.
    schema: Schema | None = None
    # None: the last message of each key.
    strategy: TopicCompactionStrategy | None = None

    def __post_init__(self) -> None:
        check_topic_argument(self.topic)


class TableViewCore:
    """The table and readers of one view. Create it on the event loop.

    `run` runs the calls that write the table and call listeners.
    """

    def __init__(self, connection: Connection, config: TableViewConfig, run: Run) -> None:
        self.config = config
        decode = bytes if config.schema is None else config.schema.decode
        self.table = Table(decode, config.strategy)
        self._connection = connection
        self._run = run
        self._followers = PartitionSet(connection, config.topic, self._follow)
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, connection: Connection, config: TableViewConfig, run: Run) -> TableViewCore:
        """Connects, and reads everything in the topic at the call. Raises the broker's errors."""
        core = cls(connection, config, run)
        try:
            await core._followers.open(await partition_count(connection, config.topic))
            await core.refresh()
        except BaseException:
            await core.close()
            raise
        return core

    async def _follow(self, topic: str, is_new: bool) -> TableFollower:
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
                topic = full_topic_name(self.config.topic)
                raise AlreadyClosed(f"The table view of {topic} is closed.")
            catching_up.result()
        finally:
            catching_up.cancel()

    async def _catch_up(self) -> None:
        # Sequentially: all of them read concurrently anyway.
        for follower in self._followers.cores:
            await follower.catch_up()

    async def close(self) -> None:
        """Closes the readers; the table keeps its contents."""
        if not self._closed.done():
            self._closed.set_result(None)
        await self._followers.close()


class BaseTableView:
    """The methods of both APIs' views that do not wait."""

    def __init__(self, core: TableViewCore) -> None:
        self._core = core
        self._table = core.table
        invalidate_after_fork(self)

    def topic(self) -> str:
        """The full topic name."""
        return full_topic_name(self._core.config.topic)

    def get(self, key: str) -> Any:
        """Returns the key's value; None without one."""
        return self._table.get(key)

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def __len__(self) -> int:
        return len(self._table)

    def keys(self) -> list[str]:
        """Returns a copy of the keys."""
        return list(self._table.snapshot())

    def snapshot(self) -> dict[str, Any]:
        """Returns a copy of keys and values."""
        return self._table.snapshot()

    def for_each(self, callback: Listener) -> None:
        """Calls `callback` with each key and value, in the caller's thread."""
        self._table.for_each(callback)

    def listen(self, callback: Listener) -> None:
        """Calls `callback` for every later update. Its errors are logged."""
        self._table.listen(callback)

    def for_each_and_listen(self, callback: Listener) -> None:
        """Calls `callback` for every key, then for every update: none is missed or repeated.

        The calls for existing keys run in the caller's thread, while updates wait; their errors are
        raised.
        """
        self._table.for_each_and_listen(callback)

    def __repr__(self) -> str:
        return f"TableView({self.topic()}, {counted(len(self), 'key')})"

"""What the two APIs share of a table view: the table, and the readers that fill it.

A view has one reader for each partition of its topic (table_follower.py), new ones included; a
topic that is not partitioned is its own only one. They write one table (table.py), one at a time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from ledgerfold.broker.client.arguments import one_topic
from ledgerfold.broker.client.connection import Connection, full_topic_name
from ledgerfold.broker.client.forks import belongs_to_this_process
from ledgerfold.broker.client.partition_set import PartitionSet, partition_count
from ledgerfold.broker.client.table import Listener, Schema, Table
from ledgerfold.broker.client.table_follower import Run, TableFollower
from ledgerfold.storage.errors import AlreadyClosed
from ledgerfold.storage.words import counted
from ledgerfold.strategies.strategic import TopicCompactionStrategy


@dataclass(frozen=True, slots=True)
class TableViewConfig:
    """What `Client.create_table_view` says (its docstring explains each)."""

    topic: str
    subscription_name: str | None = None
    # None: contents are the values.
    schema: Schema | None = None
    # None: the last message of each key.
    strategy: TopicCompactionStrategy | None = None

    def __post_init__(self) -> None:
        one_topic(self.topic)


class TableViewCore:
    """Made on the event loop. `run` says where the table is written and listeners are called."""

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
        """Connects, and reads everything that is there now. Raises what the broker answers."""
        core = cls(connection, config, run)
        try:
            await core._followers.open(await partition_count(connection, config.topic))
            await core.refresh()
        except BaseException:
            await core.close()
            raise
        return core

    async def _follow(self, topic: str, is_new: bool) -> TableFollower:
        # Each begins at earliest, whenever its partition came.
        name = self.config.subscription_name or ""
        return await TableFollower.open(self._connection, topic, name, self.table, self._run)

    async def refresh(self) -> None:
        """Returns when everything that is there now is in the table. Raises AlreadyClosed."""
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
        # One by one: all of them read meanwhile.
        for follower in self._followers.cores:
            await follower.catch_up()

    async def close(self) -> None:
        """Ends the readers; the table stays as it is."""
        if not self._closed.done():
            self._closed.set_result(None)
        await self._followers.close()


class BaseTableView:
    """What a view of either API shows without waiting."""

    def __init__(self, core: TableViewCore) -> None:
        self._core = core
        self._table = core.table
        belongs_to_this_process(self)

    def topic(self) -> str:
        """The full name."""
        return full_topic_name(self._core.config.topic)

    def get(self, key: str) -> Any:
        """The key's value; None when there is no such key."""
        return self._table.get(key)

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def __len__(self) -> int:
        return len(self._table)

    def keys(self) -> list[str]:
        """A copy."""
        return list(self._table.snapshot())

    def snapshot(self) -> dict[str, Any]:
        """A copy of keys and values."""
        return self._table.snapshot()

    def for_each(self, callback: Listener) -> None:
        """Calls it with each key and value, here and now."""
        self._table.for_each(callback)

    def listen(self, callback: Listener) -> None:
        """Calls it for every update from now on. What it raises is logged."""
        self._table.listen(callback)

    def for_each_and_listen(self, callback: Listener) -> None:
        """Calls it for all that is here, then for every update: none is missed or comes twice.

        The first part runs here, updates wait for it, and what it raises comes out.
        """
        self._table.for_each_and_listen(callback)

    def __repr__(self) -> str:
        return f"TableView({self.topic()}, {counted(len(self), 'key')})"

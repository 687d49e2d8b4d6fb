"""The part of a client that both APIs share, except waiting: the connection and its streams."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

from ledgerfold.broker.client.core.consumer_core import ConsumerCore
from ledgerfold.broker.client.core.consumer_set import ConsumerSet
from ledgerfold.broker.client.core.partition_set import AnyCore
from ledgerfold.broker.client.core.partitioned_producer import AnyProducer, open_producer
from ledgerfold.broker.client.core.partitioned_reader import PartitionedReaderCore
from ledgerfold.broker.client.core.reader_core import ReaderCore
from ledgerfold.broker.client.core.table_follower import Run
from ledgerfold.broker.client.core.table_view_core import TableViewCore
from ledgerfold.broker.client.core.topic_sources import (
    ListedTopics,
    TopicPattern,
    TopicSource,
    names_of,
)
from ledgerfold.broker.client.messages.arguments import (
    InvalidConfiguration,
    check_topic_argument,
)
from ledgerfold.broker.client.messages.configs import (
    ConsumerConfig,
    ProducerConfig,
    ReaderConfig,
    TableViewConfig,
)
from ledgerfold.broker.client.streams.connection import ClientSettings, Connection, is_cancelled
from ledgerfold.broker.client.streams.credentials import target_of
from ledgerfold.broker.client.streams.forks import check_may_connect, invalidate_after_fork
from ledgerfold.storage.errors import AlreadyClosed

# A consumer or reader of a partitioned topic, or of any other topic.
AnyConsumer: TypeAlias = ConsumerSet | ConsumerCore
AnyReader: TypeAlias = PartitionedReaderCore | ReaderCore
Forget: TypeAlias = Callable[["Opened[Any]"], None]
Facade = TypeVar("Facade", bound="Opened[Any]")


class Opened(Generic[AnyCore]):
    """An object that a user has opened from a client. `forget` removes it from the client's."""

    def __init__(self, core: AnyCore, forget: Forget) -> None:
        self._core = core
        self._forget = forget
        invalidate_after_fork(self)

    def topic(self) -> str:
        """The full topic name."""
        return self._core.topic

    async def _close(self) -> None:
        self._forget(self)
        await self._core.close()

    async def _shut_down(self) -> None:
        await self._core.shut_down()


class ClientCore:
    """The connection of one client, and what was opened on it. Event loop only.

    Each `open_` method returns what `make` creates for the opened core.
    """

    def __init__(self, settings: ClientSettings, is_io_thread: Callable[[], bool]) -> None:
        check_may_connect()
        self._settings = settings
        self._is_io_thread = is_io_thread
        self._connection: Connection | None = None
        # The open objects, in order of opening.
        self._open: dict[Opened[Any], None] = {}
        self._opening: set[asyncio.Task[Any]] = set()
        self.is_closed = False

    async def connect(self) -> Connection:
        """Returns the connection. Raises AlreadyClosed.

        It is created on first use: a client may be created before its event loop runs.
        """
        if self.is_closed:
            raise AlreadyClosed("The client is closed.")
        if self._connection is None and self._settings.accepts_any_name:
            # It waits for the broker.
            url, settings = self._settings.service_url, self._settings
            target = await asyncio.to_thread(target_of, url, settings)
            if self.is_closed:
                raise AlreadyClosed("The client is closed.")
            self._connection = self._connection or Connection(settings, target)
        if self._connection is None:
            self._connection = Connection(self._settings)
        return self._connection

    async def open_producer(
        self, config: ProducerConfig, make: Callable[[AnyProducer, Forget], Facade]
    ) -> Facade:
        connection = await self.connect()
        opening = asyncio.create_task(open_producer(connection, config, self._is_io_thread))
        # It may wait for exclusive access.
        self._opening.add(opening)
        try:
            core = await opening
        except asyncio.CancelledError:
            if not is_cancelled():
                raise AlreadyClosed("The client is closed.") from None
            if not opening.cancelled() and opening.exception() is None:
                # Nothing else refers to it. The broker's answer frees its name.
                await opening.result().close()
            raise
        finally:
            self._opening.discard(opening)
        return await self._opened(core, make)

    async def open_consumer(
        self, config: ConsumerConfig, make: Callable[[AnyConsumer, Forget], Facade]
    ) -> Facade:
        connection = await self.connect()
        core: AnyConsumer
        topic = config.topic
        if isinstance(topic, str) and not await connection.partition_count(topic):
            core = await ConsumerCore.open(connection, topic, config)
        else:
            source = _source_of(config)
            _check_queue(config, source.title)
            core = await ConsumerSet(connection, config, source).open_source()
        return await self._opened(core, make)

    async def open_reader(
        self, config: ReaderConfig, make: Callable[[AnyReader, Forget], Facade]
    ) -> Facade:
        connection = await self.connect()
        core: AnyReader
        if count := await connection.partition_count(config.topic):
            _check_queue(config, config.topic)
            core = await PartitionedReaderCore(connection, config).open(count)
        else:
            core = await ReaderCore.open(connection, config)
        return await self._opened(core, make)

    async def open_table_view(
        self, config: TableViewConfig, run: Run, make: Callable[[TableViewCore, Forget], Facade]
    ) -> Facade:
        connection = await self.connect()
        core = TableViewCore(connection, config, run)
        await core.open(await connection.partition_count(config.topic))
        return await self._opened(core, make)

    async def topic_partitions(self, topic: str) -> list[str]:
        """Returns the full names of the partitions; the topic's own if it is not partitioned."""
        check_topic_argument(topic)
        return names_of(topic, await (await self.connect()).partition_count(topic))

    async def _opened(self, core: AnyCore, make: Callable[[AnyCore, Forget], Facade]) -> Facade:
        """Registers an opened object. Raises AlreadyClosed if the client was closed meanwhile."""
        if self.is_closed:
            await core.shut_down()
            raise AlreadyClosed("The client is closed.")
        opened = make(core, self._forget)
        self._open[opened] = None
        return opened

    def _forget(self, opened: Opened[Any]) -> None:
        self._open.pop(opened, None)

    async def close(self) -> None:
        """Closes everything opened from the client at the same time, then the connection.

        Raises the first error, once everything is closed.
        """
        errors: list[BaseException] = []
        while self._open:
            closings = [opened._close() for opened in self._open]
            outcomes = await asyncio.gather(*closings, return_exceptions=True)
            errors += [each for each in outcomes if isinstance(each, BaseException)]
        await self.shut_down()
        if errors:
            raise errors[0]

    async def shut_down(self) -> None:
        """Closes everything at once. Idempotent."""
        self.is_closed = True
        for opening in self._opening:
            opening.cancel()
        opened, self._open = list(self._open), {}
        try:
            await asyncio.gather(*(each._shut_down() for each in opened))
        finally:
            connection, self._connection = self._connection, None
            if connection is not None:
                await connection.close()


def _source_of(config: ConsumerConfig) -> TopicSource:
    topic = config.topic
    if isinstance(topic, re.Pattern):
        return TopicPattern(
            topic, config.pattern_auto_discovery_period, config.regex_subscription_mode
        )
    return ListedTopics([topic] if isinstance(topic, str) else topic)


def _check_queue(config: ConsumerConfig | ReaderConfig, topic: str) -> None:
    """Raises InvalidConfiguration for several topics without a queue, as Pulsar's clients do."""
    if not config.receiver_queue_size:
        raise InvalidConfiguration(
            f"{topic} has several partitions or topics, which a receiver_queue_size of 0 does not "
            "allow: use 1 or more, or a single one."
        )

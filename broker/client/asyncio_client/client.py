"""The client for asyncio, with the names of `pulsar.asyncio`.

    >>> import asyncio
    >>> from ledgerfold import MessageId
    >>> from ledgerfold.aio import Client
    >>> async def example() -> None:
    ...     async with Client("127.0.0.1:7650") as client:
    ...         producer = await client.create_producer("prices")
    ...         await asyncio.gather(*(producer.send(b"%d" % price) for price in (10, 7)))
    ...         reader = await client.create_reader("prices", MessageId.earliest)
    ...         async for message in reader:
    ...             print(message.data())
    >>> asyncio.run(example())
    b'10'
    b'7'

It runs on the caller's event loop, with the same errors, limits and rules as the synchronous API,
whose docstrings explain them. Use only one of the two in a process: gRPC needs a single event loop.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from ledgerfold.broker.client.asyncio_client.opened import (
    Consumer,
    Producer,
    Reader,
    TableView,
    run_here,
)
from ledgerfold.broker.client.core.client_core import ClientCore
from ledgerfold.broker.client.messages.arguments import (
    AIO_CONSUMER_NOT_EMULATED,
    AIO_READER_NOT_EMULATED,
    CLIENT_NOT_EMULATED,
    PRODUCER_NOT_EMULATED,
    takes,
)
from ledgerfold.broker.client.messages.configs import (
    ConsumerConfig,
    ProducerConfig,
    ReaderConfig,
    TableViewConfig,
)
from ledgerfold.broker.client.streams import forks
from ledgerfold.broker.client.streams.connection import ClientSettings
from ledgerfold.storage.errors import InvalidRequest

__all__ = ["Client", "Consumer", "Producer", "Reader", "TableView"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingProducerConfig(ProducerConfig):
    """The arguments of `Client.create_producer`, with batching by default."""

    batching_enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternConsumerConfig(ConsumerConfig):
    """The arguments of `Client.subscribe`: `topic` may be the text of a pattern."""

    is_pattern_topic: bool = False

    def __post_init__(self) -> None:
        ConsumerConfig.__post_init__(self)
        if not self.is_pattern_topic:
            return
        if not isinstance(self.topic, str):
            raise InvalidRequest("With is_pattern_topic, the topic must be one string.")
        try:
            object.__setattr__(self, "topic", re.compile(self.topic))
            # A copy of this configuration has the pattern.
            object.__setattr__(self, "is_pattern_topic", False)
        except re.error as error:
            raise InvalidRequest(f"{self.topic!r} is not a regular expression: {error}.") from error


class Client:
    """A connection to one broker, for the running event loop. See `ledgerfold.Client`."""

    @takes(ClientSettings, CLIENT_NOT_EMULATED)
    def __init__(self, settings: ClientSettings) -> None:
        # Nothing here may block, so messages are added without waiting.
        self._core = ClientCore(settings, lambda: True)
        forks.invalidate_after_fork(self)

    @takes(BatchingProducerConfig, PRODUCER_NOT_EMULATED)
    async def create_producer(self, config: BatchingProducerConfig) -> Producer:
        """Opens a producer, as `ledgerfold.Client.create_producer`, with batching by default."""
        return await self._core.open_producer(config, Producer)

    @takes(PatternConsumerConfig, AIO_CONSUMER_NOT_EMULATED)
    async def subscribe(self, config: PatternConsumerConfig) -> Consumer:
        """Subscribes, as `ledgerfold.Client.subscribe`, without message listeners.

        `is_pattern_topic`: whether `topic` is the text of a pattern.
        """
        return await self._core.open_consumer(config, Consumer)

    @takes(ReaderConfig, AIO_READER_NOT_EMULATED)
    async def create_reader(self, config: ReaderConfig) -> Reader:
        """Opens a reader, as `ledgerfold.Client.create_reader`."""
        return await self._core.open_reader(config, Reader)

    @takes(TableViewConfig, {})
    async def create_table_view(self, config: TableViewConfig) -> TableView:
        """Opens a table view, as `ledgerfold.Client.create_table_view`."""
        return await self._core.open_table_view(config, run_here, TableView)

    async def get_topic_partitions(self, topic: str) -> list[str]:
        """Returns the full names of the partitions; only the topic's own if it is not
        partitioned.
        """
        return await self._core.topic_partitions(topic)

    async def close(self) -> None:
        """Closes everything opened from the client, then the connection. Raises the first error."""
        await self._core.close()

    async def shutdown(self) -> None:
        """Closes everything at once; see `ledgerfold.Client.shutdown`."""
        await self._core.shut_down()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

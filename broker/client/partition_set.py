"""The partitions of a topic on the client's side: one stream each, and more when there are more.

A client asks once how many partitions a topic has; 0 means that the topic is none of these, and is
opened as itself. Otherwise one producer, consumer, reader or follower is opened on each partition
(all, or none when one fails), and from then on it asks now and then whether there are more. What
fails then is tried again at the next interval. Source: Pulsar's PartitionedProducerImpl and
MultiTopicsConsumerImpl (`partitionsAutoUpdate`).

    >>> names_of("orders", 2)[1]
    'persistent://public/default/orders-partition-1'
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Generic, Protocol, TypeVar

from ledgerfold.broker.client.connection import Connection, full_topic_name
from ledgerfold.broker.client.message_id import MessageId
from ledgerfold.broker.ground.uncancelled import runs_to_its_end
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError
from ledgerfold.storage.partition_names import partition_name
from ledgerfold.v1 import data_pb2

_log = logging.getLogger(__name__)


class Closable(Protocol):
    async def close(self) -> None: ...


Core = TypeVar("Core", bound=Closable)
Answer = TypeVar("Answer")


async def partition_count(connection: Connection, topic: str) -> int:
    """0: the topic is not partitioned, or not there yet."""
    request = data_pb2.GetPartitionsRequest(topic=topic)
    response = await connection.call(connection.stub.GetPartitions, request)
    return int(response.partitions)


def names_of(topic: str, count: int) -> list[str]:
    """The full names of so many partitions; the topic's own for 0."""
    full = full_topic_name(topic)
    return [partition_name(full, index) for index in range(count)] or [full]


class PartitionSet(Generic[Core]):
    """`open_one(name, is_new)` opens a partition's; `is_new`: the partition came later."""

    def __init__(
        self,
        connection: Connection,
        topic: str,
        open_one: Callable[[str, bool], Coroutine[Any, Any, Core]],
        on_opened: Callable[[Core], object] = lambda core: None,
    ) -> None:
        self.topic = full_topic_name(topic)
        # In order of partition; replaced as a whole when there are more.
        self.cores: tuple[Core, ...] = ()
        self._connection = connection
        self._open_one = open_one
        self._on_opened = on_opened
        self._following: asyncio.Task[None] | None = None

    async def open(self, count: int) -> None:
        """Opens so many, and keeps up from then on; for 0 the topic itself.

        Raises what opening one of them raises.
        """
        await self._open(names_of(self.topic, count), is_new=False)
        if count:
            self._following = asyncio.create_task(self._follow())

    async def _open(self, names: Iterable[str], *, is_new: bool) -> None:
        opened = await open_all(self._open_one(name, is_new) for name in names)
        self.cores += tuple(opened)
        for core in opened:
            self._on_opened(core)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._connection.settings.partitions_update_interval_s)
            try:
                count = await partition_count(self._connection, self.topic)
                await self._open(names_of(self.topic, count)[len(self.cores) :], is_new=True)
            except LedgerfoldError as error:
                _log.warning("Looking for new partitions of %s: %s", self.topic, error)

    def of(self, message_id: MessageId) -> Core:
        """That of the partition which holds the message. Raises InvalidRequest."""
        index = message_id.partition()
        if not 0 <= index < len(self.cores):
            raise InvalidRequest(
                f"{message_id} is of partition {index}; {self.topic} has {len(self.cores)}."
            )
        return self.cores[index]

    async def for_each(self, call: Callable[[Core], Awaitable[Answer]]) -> list[Answer]:
        """All at once; when some fail, the others are done, and the first error is raised."""
        answers = await asyncio.gather(*map(call, self.cores), return_exceptions=True)
        return [_answer(each) for each in answers]

    async def stop_following(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait({self._following})

    @runs_to_its_end
    async def close(self) -> None:
        """Raises the first error of these, once all are closed, whether or not the caller waits."""
        await self.stop_following()
        await self.for_each(lambda core: core.close())


def _answer(outcome: Answer | BaseException) -> Answer:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


async def open_all(openings: Iterable[Coroutine[Any, Any, Core]]) -> list[Core]:
    """All of them or, when one fails, none: those that are open are closed again."""
    tasks = [asyncio.ensure_future(each) for each in openings]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        for opened in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(opened, BaseException):
                await opened.close()
        raise

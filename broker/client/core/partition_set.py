"""The partitions of a topic on the client: one stream each, with new ones added over time.

The client requests the partition count once; 0 means that the topic is not partitioned. Otherwise
it opens one producer, consumer, reader or follower on each partition (all, or none if one fails),
and then checks for new partitions at intervals. A failure is retried at the next interval. Source:
Pulsar's PartitionedProducerImpl and MultiTopicsConsumerImpl (`partitionsAutoUpdate`).

    >>> names_of("orders", 2)[1]
    'persistent://public/default/orders-partition-1'
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Generic, Self, TypeVar

from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.streams.connection import Connection, full_topic_name
from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError
from ledgerfold.storage.partition_names import partition_name

_log = logging.getLogger(__name__)


class Core(ABC):
    """A producer, consumer, reader or table view without its waiting, shared by both APIs."""

    # The full topic name.
    topic: str

    @abstractmethod
    async def close(self) -> None: ...

    async def shut_down(self) -> None:
        """Closes at once, without waiting for confirmations by the broker."""
        await self.close()


AnyCore = TypeVar("AnyCore", bound=Core)
Answer = TypeVar("Answer")


def names_of(topic: str, count: int) -> list[str]:
    """Returns the full names of `count` partitions; the topic's own for 0."""
    full = full_topic_name(topic)
    return [partition_name(full, index) for index in range(count)] or [full]


class PartitionSet(Core, Generic[AnyCore]):
    """The open streams on a topic's partitions. Create it on the event loop."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self.topic = full_topic_name(topic)
        # In order of partition; a longer tuple replaces it when partitions are added.
        self.cores: tuple[AnyCore, ...] = ()
        self._connection = connection
        self._following: asyncio.Task[None] | None = None

    @abstractmethod
    async def _open_one(self, topic: str, *, is_new: bool) -> AnyCore:
        """Opens the stream of one partition. `is_new`: the partition was added later."""

    def _on_opened(self, core: AnyCore) -> None:
        """Handles an opened stream."""

    async def open(self, count: int) -> Self:
        """Opens `count` partitions, and new ones from then on; for 0 the topic itself.

        Raises the errors of the streams.
        """
        await self._open(names_of(self.topic, count), is_new=False)
        if count:
            self._following = asyncio.create_task(self._follow())
        return self

    async def _open(self, names: Iterable[str], *, is_new: bool) -> None:
        opened = await open_all(self._open_one(name, is_new=is_new) for name in names)
        self.cores += tuple(opened)
        for core in opened:
            self._on_opened(core)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._connection.settings.partitions_update_interval_seconds)
            try:
                count = await self._connection.partition_count(self.topic)
                await self._open(names_of(self.topic, count)[len(self.cores) :], is_new=True)
            except LedgerfoldError as error:
                _log.warning("The check for new partitions of %s failed: %s", self.topic, error)

    def of(self, message_id: MessageId) -> AnyCore:
        """Returns the stream of the partition that holds the message. Raises InvalidRequest."""
        index = message_id.partition()
        if not 0 <= index < len(self.cores):
            raise InvalidRequest(
                f"{message_id} is in partition {index}, but {self.topic} has {len(self.cores)}."
            )
        return self.cores[index]

    async def for_each(self, call: Callable[[AnyCore], Awaitable[Answer]]) -> list[Answer]:
        """Runs `call` on all concurrently. If some fail, the others complete and the first error is
        raised.
        """
        answers = await asyncio.gather(*map(call, self.cores), return_exceptions=True)
        return [_answer(each) for each in answers]

    async def stop_following(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait({self._following})

    @runs_to_completion
    async def close(self) -> None:
        """Closes all, even if the caller is cancelled. Raises the first error once all are
        closed.
        """
        await self.stop_following()
        await self.for_each(lambda core: core.close())

    async def shut_down(self) -> None:
        await self.stop_following()
        await self.for_each(lambda core: core.shut_down())


def _answer(outcome: Answer | BaseException) -> Answer:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


async def open_all(openings: Iterable[Coroutine[Any, Any, AnyCore]]) -> list[AnyCore]:
    """Opens all or, if one fails, none: those that are open are closed again."""
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

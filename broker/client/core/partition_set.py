"""The streams on the partitions of a topic, or on several topics, with new ones added over time.

It opens one producer, consumer, reader or follower on each partition (all, or none if one fails).
Then it asks its source (topic_sources.py) for the names at intervals: it opens new ones (all
partitions of a topic, or none), and closes those that no longer exist. A failure is retried at the
next interval. Source: Pulsar's PartitionedProducerImpl and MultiTopicsConsumerImpl
(`partitionsAutoUpdate`).

Receivers take turns: up to MESSAGES_PER_TURN messages are taken from one while it has any, then
from the next. So each partition keeps its order, and a busy one does not starve the others.

    >>> rotation = Rotation([iter([1, 2]), iter([7])])
    >>> [rotation.take(lambda numbers: next(numbers, None)) for _ in range(4)]
    [1, 2, 7, None]
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from itertools import groupby
from typing import Any, Generic, Self, TypeVar

from ledgerfold.broker.client.core.topic_sources import (
    ListedTopics,
    TopicSource,
    names_of,
)
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.streams.connection import Connection, full_topic_name
from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.partition_names import base_topic, partition_name

_log = logging.getLogger(__name__)
# Large enough that polling the others costs little, small enough to serve all promptly.
MESSAGES_PER_TURN = 100
Member = TypeVar("Member")
Found = TypeVar("Found")


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


class PartitionSet(Core, Generic[AnyCore]):
    """The open streams on a topic's partitions, or those of `source`. Create it on the event
    loop.
    """

    def __init__(
        self, connection: Connection, topic: str, source: TopicSource | None = None
    ) -> None:
        self.topic = full_topic_name(topic) if source is None else source.title
        # In order of partition; another tuple replaces it when partitions are added.
        self.cores: tuple[AnyCore, ...] = ()
        self._by_name: dict[str, AnyCore] = {}
        self._source = ListedTopics([topic]) if source is None else source
        self._connection = connection
        self._following: asyncio.Task[None] | None = None

    @abstractmethod
    async def _open_one(self, topic: str, *, is_new: bool) -> AnyCore:
        """Opens the stream of one partition. `is_new`: the partition was added later."""

    def _on_opened(self, core: AnyCore) -> None:
        """Handles an opened stream."""

    def _on_gone(self, core: AnyCore) -> None:
        """Handles a stream whose topic no longer exists, before it is closed."""

    async def open(self, count: int) -> Self:
        """Opens `count` partitions, and new ones from then on; for 0 the topic itself.

        Raises the errors of the streams.
        """
        await self._open(names_of(self.topic, count))
        if count:
            self.follow()
        return self

    def follow(self) -> None:
        """Starts asking the source."""
        self._following = asyncio.create_task(self._follow())

    async def _open(self, names: Sequence[str]) -> None:
        known = set(map(base_topic, self._by_name))
        opened = await open_all(
            self._open_one(name, is_new=base_topic(name) in known) for name in names
        )
        self._by_name |= dict(zip(names, opened, strict=True))
        self.cores += tuple(opened)
        for core in opened:
            self._on_opened(core)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._source.interval_s(self._connection))
            try:
                await self._update(await self._source.names(self._connection))
            except Exception as error:  # any error, also of a schema: the next check may succeed
                _log.warning("The check for new partitions of %s failed: %s", self.topic, error)

    async def _update(self, names: Sequence[str]) -> None:
        """Opens new streams, and closes those whose topics no longer exist."""
        if self._source.may_lose:
            for name in self._by_name.keys() - set(names):
                await self._close_one(name)
        # A topic whose partitions are open is listed itself only if it was deleted meanwhile.
        known = {base_topic(name) for name in self._by_name} | self._by_name.keys()
        new = [name for name in names if name not in known]
        for _, partitions in groupby(new, base_topic):
            try:
                await self._open(list(partitions))
            except Exception as error:  # any error, as above: others are opened
                _log.warning("A new stream of %s was not opened: %s", self.topic, error)

    async def _close_one(self, name: str) -> None:
        core = self._by_name.pop(name)
        self.cores = tuple(each for each in self.cores if each is not core)
        self._on_gone(core)
        await core.shut_down()

    def of(self, message_id: MessageId) -> AnyCore:
        """Returns the stream of the topic that holds the message. Raises InvalidRequest."""
        if (topic := message_id.topic) is not None:
            return self._named(full_topic_name(topic), message_id)
        if not isinstance(self._source, ListedTopics) or self._source.is_several:
            raise InvalidRequest(
                f"{message_id} does not name its topic, and this is a consumer of several: pass "
                "the message, or its message_id(), or MessageId.deserialize(..., topic)."
            )
        return self._named(partition_name(self.topic, message_id.partition()), message_id)

    def _named(self, name: str, message_id: MessageId) -> AnyCore:
        core = self._by_name.get(name)
        if core is None:
            raise InvalidRequest(
                f"{message_id} belongs to {name}, which is not one of the {len(self.cores)} open "
                f"partitions or topics of {self.topic}."
            )
        return core

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
    """Opens all or, if one fails, none: those that are open are closed again.

    The first is opened before the others: of two producers that wait for exclusive access, the one
    that gets the first partition gets all partitions.
    """
    waiting = list(openings)
    tasks: list[asyncio.Future[AnyCore]] = []
    try:
        while waiting:
            count = len(waiting) if tasks else 1
            tasks += map(asyncio.ensure_future, waiting[:count])
            del waiting[:count]
            await asyncio.gather(*tasks)
        return [task.result() for task in tasks]
    except BaseException:
        for unopened in waiting:
            unopened.close()
        for task in tasks:
            task.cancel()
        for opened in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(opened, BaseException):
                await opened.close()
        raise


class Rotation(Generic[Member]):
    """A rotation over `members`, which may be none. Not thread-safe, but another thread may replace
    `members` by a longer tuple.
    """

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self.members: tuple[Member, ...] = tuple(members)
        self._turn = 0
        self._remaining = MESSAGES_PER_TURN

    @property
    def current(self) -> Member:
        """The member whose turn it is; after `find` and `take`, the one that had something."""
        return self.members[self._turn % len(self.members)]

    def next_turn(self) -> None:
        self._turn = (self._turn + 1) % max(len(self.members), 1)
        self._remaining = MESSAGES_PER_TURN

    def find(self, has_any: Callable[[Member], bool]) -> bool:
        """Advances to the first member that `has_any`. After an error of a member, the turn is
        still that member's.
        """
        for _ in self.members:
            if has_any(self.current):
                return True
            self.next_turn()
        return False

    def take(self, poll: Callable[[Member], Found | None]) -> Found | None:
        """Returns the next item, or None if no member has one. After an error of a member, the turn
        is still that member's.
        """
        if not self._remaining:
            self.next_turn()
        for _ in self.members:
            result = poll(self.current)
            if result is not None:
                self._remaining -= 1
                return result
            self.next_turn()
        return None

"""A consumer of a partitioned topic or of several topics: one consumer each, in rotation.

Rules (Pulsar's MultiTopicsConsumerImpl):

* Messages of one partition are delivered in order; partitions take turns (Rotation).
* An acknowledgement is sent to the topic or partition that its id names; a cumulative one covers
  only that topic or partition.
* A seek to a message id moves only that id's partition; one to earliest, latest or a time moves
  all.
* There is no last message id for all together.

A partition added later is read from its beginning: all its messages were published after this
consumer had subscribed. A topic that a pattern finds later is read from the configured position, as
in Pulsar: with "latest", messages published before it was found are not received.

Memory: together they queue `max_total_receiver_queue_size_across_partitions` messages; each topic
found later adds at least one.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from ledgerfold.broker.client.core.consumer_core import ConsumerCore, id_of
from ledgerfold.broker.client.core.partition_set import PartitionSet, Rotation
from ledgerfold.broker.client.core.topic_sources import TopicSource
from ledgerfold.broker.client.messages.configs import ConsumerConfig
from ledgerfold.broker.client.messages.message import Message
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.messages.options import InitialPosition
from ledgerfold.broker.client.streams.connection import Connection
from ledgerfold.broker.client.streams.inbox import MergedInbox
from ledgerfold.storage.errors import NotAllowed


class ConsumerSet(PartitionSet[ConsumerCore]):
    """The counterpart of ConsumerCore for partitioned topics, lists and patterns."""

    def __init__(self, connection: Connection, config: ConsumerConfig, source: TopicSource) -> None:
        super().__init__(connection, source.title, source)
        # The name has the length of names that the broker generates. (The broker would generate
        # another name on each topic.)
        name = config.consumer_name or secrets.token_hex(5)
        self.config = replace(config, consumer_name=name)
        self.inbox = MergedInbox()
        self._rotation: Rotation[ConsumerCore] = Rotation()
        self._count = 1
        # Held while a message is taken, and while the members change.
        self._lock = threading.Lock()

    async def open_source(self) -> Self:
        """Subscribes to everything that the source has. Raises the errors of the streams."""
        await self._open(await self._source.names(self._connection))
        self.follow()
        return self

    async def _open_one(self, topic: str, *, is_new: bool) -> ConsumerCore:
        config = config_of_each(self.config, self._count)
        if is_new:
            config = replace(config, initial_position=InitialPosition.Earliest)
        return await ConsumerCore.open(self._connection, topic, config)

    async def _open(self, names: Sequence[str]) -> None:
        self._count = len(self.cores) + len(names)
        await super()._open(names)

    def _on_opened(self, core: ConsumerCore) -> None:
        with self._lock:
            self._rotation.members += (core,)
        self.inbox.add(core.inbox)

    def _on_gone(self, core: ConsumerCore) -> None:
        with self._lock:
            members = self._rotation.members
            self._rotation.members = tuple(each for each in members if each is not core)
        self.inbox.remove(core.inbox)

    @property
    def consumer_name(self) -> str:
        """The name, the same on every partition."""
        return self.config.consumer_name or ""

    @property
    def is_connected(self) -> bool:
        """True if every partition is connected."""
        return all(core.is_connected for core in self.cores)

    # Receiving.

    def poll(self) -> Message | None:
        """Returns the next message, or None if none has been received."""
        with self._lock:
            return self._rotation.take(ConsumerCore.poll)

    def has_message_now(self) -> bool:
        with self._lock:
            return self._rotation.find(ConsumerCore.has_message_now)

    # Acknowledging.

    def acknowledge(self, message: Message | MessageId) -> None:
        self._of(message).acknowledge(message)

    def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        self._of(message).acknowledge_cumulative(message)

    def negative_acknowledge(self, message: Message | MessageId) -> None:
        self._of(message).negative_acknowledge(message)

    def _of(self, message: Message | MessageId) -> ConsumerCore:
        return self.of(id_of(message))

    async def redeliver_unacknowledged(self) -> None:
        await self.for_each(lambda core: core.redeliver_unacknowledged())

    # Seek, queries, close.

    async def seek(self, place: MessageId | int) -> None:
        if isinstance(place, MessageId) and not place.is_boundary:
            await self.of(place).seek(place)
        else:
            await self.for_each(lambda core: core.seek(place))

    async def last_message_id(self) -> MessageId:
        raise NotAllowed(
            f"{self.topic} has several partitions or topics: subscribe to one for its last id."
        )

    async def is_behind(self) -> bool:
        """Returns whether a partition's last message is after the last one received from it."""
        return any(await self.for_each(lambda core: core.is_behind()))

    async def unsubscribe(self) -> None:
        await self.stop_following()
        await self.for_each(lambda core: core.unsubscribe())


def config_of_each(config: ConsumerConfig, count: int) -> ConsumerConfig:
    """Returns the configuration of each of `count` consumers: with its share of the queue."""
    share = max(1, config.max_total_receiver_queue_size_across_partitions // count)
    return replace(config, receiver_queue_size=min(config.receiver_queue_size, share))

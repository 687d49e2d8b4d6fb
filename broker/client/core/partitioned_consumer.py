"""A consumer of a partitioned topic: one consumer per partition, in rotation.

Rules (Pulsar's MultiTopicsConsumerImpl):

* Messages of one partition are delivered in order; partitions take turns (rotation.py).
* An acknowledgement is sent to the partition that its id names; a cumulative one covers only that
  partition.
* A seek to a message id moves only that id's partition; one to earliest, latest or a time moves
  all.
* There is no last message id for all partitions together.

A partition added later is read from its beginning: all its messages were published after this
consumer had subscribed.
"""

from __future__ import annotations

import secrets
import threading
from dataclasses import replace

from ledgerfold.broker.client.core.consumer_core import ConsumerCore, id_of
from ledgerfold.broker.client.core.partition_set import PartitionSet
from ledgerfold.broker.client.core.rotation import Rotation
from ledgerfold.broker.client.messages.configs import ConsumerConfig
from ledgerfold.broker.client.messages.message import Message
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.messages.options import InitialPosition
from ledgerfold.broker.client.streams.connection import Connection
from ledgerfold.broker.client.streams.inbox import MergedInbox
from ledgerfold.storage.errors import NotAllowed


class PartitionedConsumerCore(PartitionSet[ConsumerCore]):
    """The counterpart of ConsumerCore for partitioned topics."""

    def __init__(self, connection: Connection, config: ConsumerConfig, count: int) -> None:
        super().__init__(connection, config.topic)
        self.config = config_of_each(config, count)
        self.inbox = MergedInbox()
        self._rotation: Rotation[ConsumerCore] = Rotation()
        self._lock = threading.Lock()

    async def _open_one(self, topic: str, *, is_new: bool) -> ConsumerCore:
        config = replace(self.config, topic=topic)
        if is_new:
            config = replace(config, initial_position=InitialPosition.Earliest)
        return await ConsumerCore.open(self._connection, config)

    def _on_opened(self, core: ConsumerCore) -> None:
        self._rotation.members += (core,)
        self.inbox.add(core.inbox)

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
            f"{self.topic} is partitioned: subscribe to one partition for its last id."
        )

    async def is_behind(self) -> bool:
        """Returns whether a partition's last message is after the last one received from it."""
        return any(await self.for_each(lambda core: core.is_behind()))

    async def unsubscribe(self) -> None:
        await self.stop_following()
        await self.for_each(lambda core: core.unsubscribe())


def config_of_each(config: ConsumerConfig, count: int) -> ConsumerConfig:
    """Returns the configuration of each of `count` consumers: the name, and its share of the
    queue.
    """
    share = max(1, config.max_total_receiver_queue_size_across_partitions // count)
    return replace(
        config,
        # As long as names that the broker generates; the broker would generate another one on each
        # partition.
        consumer_name=config.consumer_name or secrets.token_hex(5),
        receiver_queue_size=min(config.receiver_queue_size, share),
    )

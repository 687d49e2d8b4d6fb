"""A reader of a partitioned topic: one reader on each partition, taking turns.

Rules (Pulsar's MultiTopicsReaderImpl): it begins at earliest, latest or a time; a seek to a message
id moves the id's partition alone, to earliest, latest or a time all of them. There is more when
there is in one partition. A partition that comes later is read from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ledgerfold.broker.client.core.partition_set import PartitionSet
from ledgerfold.broker.client.core.reader_core import ReaderConfig, ReaderCore
from ledgerfold.broker.client.core.rotation import Rotation
from ledgerfold.broker.client.messages.message import Message
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.streams.connection import Connection
from ledgerfold.broker.client.streams.inbox import MergedInbox
from ledgerfold.broker.client.streams.receiver import Receiver
from ledgerfold.storage.errors import InvalidRequest


class RotatingReceiver:
    """The receivers of all partitions as one. For one thread at a time."""

    def __init__(self) -> None:
        self._rotation: Rotation[Receiver] = Rotation()

    def add(self, receiver: Receiver) -> None:
        self._rotation.members += (receiver,)

    def poll(self) -> Message | None:
        """As Receiver.poll."""
        return self._rotation.take(Receiver.poll)

    def has_row(self) -> bool:
        return self._rotation.find(Receiver.has_row)

    def entry_messages(self) -> Iterator[Message]:
        """What is left of the entry that `has_row` found; the next turn is another partition's."""
        messages = self._rotation.current.entry_messages()
        self._rotation.next_turn()
        return messages


class PartitionedReaderCore:
    """What ReaderCore is to a topic that is not partitioned. Made on the event loop."""

    def __init__(self, connection: Connection, config: ReaderConfig) -> None:
        if isinstance(config.start, MessageId) and not config.start.is_boundary:
            raise InvalidRequest(
                f"{config.topic} is partitioned: a reader begins at earliest or latest, or at a "
                "time, and seeks from there; or it reads the one partition."
            )
        self.config = config
        self.inbox = MergedInbox()
        self.receiver = RotatingReceiver()
        self._connection = connection
        self._partitions = PartitionSet(connection, config.topic, self._open_one, self._on_opened)

    @classmethod
    async def open(
        cls, connection: Connection, config: ReaderConfig, count: int
    ) -> PartitionedReaderCore:
        """Connects to so many partitions. Raises as ReaderCore.open."""
        core = cls(connection, config)
        await core._partitions.open(count)
        return core

    async def _open_one(self, topic: str, is_new: bool) -> ReaderCore:
        config = replace(self.config, topic=topic)
        if is_new:
            config = replace(config, start_message_id=MessageId.earliest, start_time_ms=None)
        return await ReaderCore.open(self._connection, config)

    def _on_opened(self, core: ReaderCore) -> None:
        self.receiver.add(core.receiver)
        self.inbox.add(core.inbox)

    @property
    def is_connected(self) -> bool:
        """To every partition."""
        return all(core.is_connected for core in self._partitions.cores)

    async def has_message_available(self) -> bool:
        if not self.receiver.has_row():
            await self._partitions.for_each(lambda core: core.has_message_available())
        # Passes the turn on to a partition that has one.
        return self.receiver.has_row()

    def has_reached_end(self) -> bool:
        """Every partition was terminated, and all of it was taken."""
        return all(core.has_reached_end() for core in self._partitions.cores)

    async def seek(self, place: MessageId | int, *, inclusive: bool | None = None) -> None:
        """As ReaderCore.seek."""
        if isinstance(place, MessageId) and not place.is_boundary:
            await self._partitions.of(place).seek(place, inclusive=inclusive)
        else:
            await self._partitions.for_each(lambda core: core.seek(place))

    async def close(self) -> None:
        await self._partitions.close()

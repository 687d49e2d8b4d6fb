"""A reader of a partitioned topic: one reader per partition, in rotation.

Rules (Pulsar's MultiTopicsReaderImpl): it begins at earliest, latest or a time. A seek to a message
id moves only that id's partition; one to earliest, latest or a time moves all. A message is
available if one partition has one. A partition added later is read from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ledgerfold.broker.client.core.partition_set import PartitionSet, Rotation
from ledgerfold.broker.client.core.reader_core import ReaderCore
from ledgerfold.broker.client.messages.configs import ReaderConfig
from ledgerfold.broker.client.messages.message import Message
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.streams.connection import Connection
from ledgerfold.broker.client.streams.inbox import MergedInbox
from ledgerfold.broker.client.streams.receiver import Receiver
from ledgerfold.storage.errors import InvalidRequest


class RotatingReceiver:
    """The receivers of all partitions as one. Not thread-safe."""

    def __init__(self) -> None:
        self._rotation: Rotation[Receiver] = Rotation()

    def add(self, receiver: Receiver) -> None:
        self._rotation.members += (receiver,)

    def poll(self) -> Message | None:
        """Returns the next message, as Receiver.poll."""
        return self._rotation.take(Receiver.poll)

    def has_row(self) -> bool:
        return self._rotation.find(Receiver.has_row)

    def entry_messages(self) -> Iterator[Message]:
        """Returns the remaining messages of the entry that `has_row` found, and ends the
        partition's turn.
        """
        messages = self._rotation.current.entry_messages()
        self._rotation.next_turn()
        return messages


class PartitionedReaderCore(PartitionSet[ReaderCore]):
    """The counterpart of ReaderCore for partitioned topics."""

    def __init__(self, connection: Connection, config: ReaderConfig) -> None:
        super().__init__(connection, config.topic)
        if isinstance(config.start, MessageId) and not config.start.is_boundary:
            raise InvalidRequest(
                f"{config.topic} is partitioned: start at earliest, latest or a time, then seek; "
                "or read a single partition."
            )
        self.config = config
        self.inbox = MergedInbox()
        self.receiver = RotatingReceiver()

    async def _open_one(self, topic: str, *, is_new: bool) -> ReaderCore:
        config = replace(self.config, topic=topic)
        if is_new:
            config = replace(config, start_message_id=MessageId.earliest, start_time_ms=None)
        return await ReaderCore.open(self._connection, config)

    def _on_opened(self, core: ReaderCore) -> None:
        self.receiver.add(core.receiver)
        self.inbox.add(core.inbox)

    def poll(self) -> Message | None:
        return self.receiver.poll()

    @property
    def is_connected(self) -> bool:
        """True if every partition is connected."""
        return all(core.is_connected for core in self.cores)

    async def has_message_available(self) -> bool:
        if not self.receiver.has_row():
            await self.for_each(lambda core: core.has_message_available())
        # Advances to a partition that has a message.
        return self.receiver.has_row()

    def has_reached_end(self) -> bool:
        """Returns whether every partition was terminated and read to its end."""
        return all(core.has_reached_end() for core in self.cores)

    async def seek(self, place: MessageId | int, *, inclusive: bool | None = None) -> None:
        """Seeks as ReaderCore.seek."""
        if isinstance(place, MessageId) and not place.is_boundary:
            await self.of(place).seek(place, inclusive=inclusive)
        else:
            await self.for_each(lambda core: core.seek(place))

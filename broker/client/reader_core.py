"""What the readers of both APIs share: what is asked for, and the stream and receiver of one."""

from __future__ import annotations

from dataclasses import dataclass

from ledgerfold.broker.client.connection import Connection, full_topic_name
from ledgerfold.broker.client.inbox import Inbox
from ledgerfold.broker.client.message_id import MessageId
from ledgerfold.broker.client.read_stream import ReadStream
from ledgerfold.broker.client.receiver import FirstMessage, Receiver
from ledgerfold.broker.client.start import start_of, without_latest
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1 import data_pb2


@dataclass(frozen=True, slots=True)
class ReaderConfig:
    """What `Client.create_reader` says (its docstring explains each)."""

    topic: str
    start_message_id: MessageId
    start_message_id_inclusive: bool = False
    is_read_compacted: bool = False
    receiver_queue_size: int = 1000
    reader_name: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.start_message_id, MessageId):
            raise InvalidRequest("start_message_id is a MessageId.")
        if self.receiver_queue_size < 1:
            raise InvalidRequest("receiver_queue_size is 1 message or more.")


class ReaderCore:
    """Stream and receiver of one reader. Made on the event loop."""

    def __init__(self, connection: Connection, config: ReaderConfig) -> None:
        self.config = config
        self._connection = connection
        self.inbox = Inbox()
        self.stream: ReadStream
        self.receiver: Receiver

    @classmethod
    async def open(cls, connection: Connection, config: ReaderConfig) -> ReaderCore:
        """Connects. Raises what the broker answers."""
        core = cls(connection, config)
        start, first = await core._start(config.start_message_id, config.start_message_id_inclusive)
        core.stream = ReadStream(
            connection,
            config.topic,
            start,
            core.inbox,
            read_compacted=config.is_read_compacted,
            reader_name=config.reader_name,
            queue_size=config.receiver_queue_size,
        )
        core.receiver = Receiver(
            core.inbox,
            full_topic_name(config.topic),
            config.receiver_queue_size,
            core.stream.return_permits,
        )
        core.receiver.first = first
        await core.stream.open()
        return core

    async def _start(
        self, place: MessageId | int, inclusive: bool
    ) -> tuple[data_pb2.StartPosition, FirstMessage | None]:
        """Where the broker shall start, and which rows of the first entry are not wanted."""
        config = self.config
        place = await without_latest(
            self._connection, config.topic, place, config.is_read_compacted
        )
        start = start_of(place, inclusive=inclusive)
        if isinstance(place, MessageId):
            return start, FirstMessage(place, inclusive=inclusive)
        return start, None

    @property
    def is_connected(self) -> bool:
        return self.stream.is_connected

    async def check(self) -> bool:
        """Asks the broker whether there is more."""
        self.receiver.flush_permits()
        return await self.stream.check()

    async def has_message_available(self) -> bool:
        while not self.receiver.has_row():
            if not await self.check():
                return self.receiver.has_row()
            # There is more, but all that came may lie before the start: then ask again.
        return True

    def has_reached_end(self) -> bool:
        """The topic was terminated, and all of it was taken."""
        return self.stream.has_reached_end and not self.receiver.has_row() and self.inbox.is_empty

    async def seek(self, place: MessageId | int) -> None:
        """Moves. The reader must not be used meanwhile."""
        start, first = await self._start(place, self.config.start_message_id_inclusive)
        try:
            await self.stream.seek(start)
        finally:
            # Also where the broker is away: the stream goes on from there.
            self.receiver.forget()
            self.receiver.first = first

    async def close(self) -> None:
        await self.stream.close()
        # What waits here is not read any more.
        self.inbox.clear()

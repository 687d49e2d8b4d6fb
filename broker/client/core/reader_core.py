"""The part of a reader that both APIs share, except waiting: configuration, stream, receiver."""

from __future__ import annotations

from ledgerfold.broker.client.core.partition_set import Core
from ledgerfold.broker.client.messages.configs import ReaderConfig
from ledgerfold.broker.client.messages.message import Message
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.messages.start import SOUGHT, start_of
from ledgerfold.broker.client.streams.connection import Connection, full_topic_name
from ledgerfold.broker.client.streams.inbox import Inbox
from ledgerfold.broker.client.streams.read_stream import ReadStream
from ledgerfold.broker.client.streams.receiver import FirstMessage, Receiver
from ledgerfold.broker.client.streams.reconnecting_stream import CLOSE_GRACE_S
from ledgerfold.broker.common.names import is_non_persistent, persistent_topic
from ledgerfold.storage.errors import NotAllowed
from ledgerfold.v1 import data_pb2


class ReaderCore(Core):
    """The stream and receiver of one reader. Create it on the event loop."""

    def __init__(self, connection: Connection, config: ReaderConfig) -> None:
        self.config = config
        self.topic = full_topic_name(config.topic)
        self._connection = connection
        self.inbox = Inbox()
        self.stream: ReadStream
        self.receiver: Receiver

    @classmethod
    async def open(cls, connection: Connection, config: ReaderConfig) -> ReaderCore:
        """Connects. Raises the broker's errors."""
        core = cls(connection, config)
        start, first = await core._start(config.start, config.is_start_inclusive)
        core.stream = ReadStream(connection, config, start, core.inbox)
        core.receiver = Receiver(
            core.stream, core.topic, config.receiver_queue_size, schema=config.schema
        )
        core.receiver.first = first
        await core.stream.open()
        if not core.stream.is_kafka and (config.start_offset is not None or config.read_committed):
            await core.close()
            raise NotAllowed(
                f"{core.topic} is not a Kafka topic: it has no offsets and no "
                "transactions. Start at a message id or at a time."
            )
        return core

    async def _start(
        self, place: MessageId | int, inclusive: bool
    ) -> tuple[data_pb2.StartPosition, FirstMessage | None]:
        """Returns the start for the broker, and the rows of the first entry to skip."""
        config = self.config
        # NOTE: a read_committed reader begins at the last stable offset, which only the broker
        # knows and reports (broker/client/streams/read_stream.py).
        if is_non_persistent(self.topic):
            # Nothing precedes the start, wherever it is.
            return start_of(MessageId.latest, inclusive=False), None
        if not config.read_committed:
            place = await self._connection.without_latest(
                config.topic, place, config.is_read_compacted
            )
        start = start_of(place, inclusive=inclusive)
        if isinstance(place, MessageId):
            return start, FirstMessage(place, inclusive=inclusive)
        return start, None

    @property
    def is_connected(self) -> bool:
        return self.stream.is_connected

    def poll(self) -> Message | None:
        """Returns the next message, or None if none has been received."""
        message = self.receiver.poll()
        if message is None and not self.config.receiver_queue_size:
            self.stream.fetch()
        return message

    async def check(self) -> bool:
        """Asks the broker whether there are more entries."""
        self.receiver.flush_permits()
        if not self.config.receiver_queue_size:
            # The broker answers with the next message, or that there is none.
            self.stream.fetch()
        return await self.stream.check()

    async def has_message_available(self) -> bool:
        while not self.receiver.has_row():
            if not await self.check():
                return self.receiver.has_row()
            # There are more entries, but all messages received may precede the start: check again.
        return True

    def has_reached_end(self) -> bool:
        """Returns whether the topic was terminated and read to its end."""
        return self.stream.has_reached_end and not self.receiver.has_row() and self.inbox.is_empty

    async def seek(self, place: MessageId | int, *, inclusive: bool | None = None) -> None:
        """Moves the reader, which must not be used meanwhile. `inclusive` None: as it was
        opened.
        """
        persistent_topic(self.topic, SOUGHT)
        if inclusive is None:
            inclusive = self.config.start_message_id_inclusive
        start, first = await self._start(place, inclusive)
        try:
            await self.stream.seek(start)
        finally:
            # Also after a failure: the stream moves to `start` once it is connected.
            self.receiver.forget()
            self.receiver.first = first

    async def shut_down(self) -> None:
        await self.close(grace_s=0)

    async def close(self, grace_s: float = CLOSE_GRACE_S) -> None:
        await self.stream.close(grace_s)
        # Queued messages are no longer read.
        self.inbox.clear()

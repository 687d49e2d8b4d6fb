"""A reader without its waiting, shared by both APIs: the configuration, stream and receiver."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from enum import StrEnum

from ledgerfold.broker.client.core.partition_set import Core
from ledgerfold.broker.client.messages.arguments import check_positive, check_topic_argument
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.messages.start import id_of_offset, start_of
from ledgerfold.broker.client.streams.connection import Connection, full_topic_name
from ledgerfold.broker.client.streams.inbox import Inbox
from ledgerfold.broker.client.streams.read_stream import ReadStream
from ledgerfold.broker.client.streams.receiver import FirstMessage, Receiver
from ledgerfold.storage.errors import InvalidRequest, NotAllowed
from ledgerfold.v1 import data_pb2


class Isolation(StrEnum):
    """The isolation level of a reader of a Kafka topic, named as Kafka's isolation.level."""

    READ_UNCOMMITTED = "read_uncommitted"
    # No records of aborted or open transactions, and none after the start of an open one.
    READ_COMMITTED = "read_committed"


@dataclass(frozen=True, slots=True)
class ReaderConfig:
    """The arguments of `Client.create_reader` (see there)."""

    topic: str
    start_message_id: MessageId | None = None
    _: KW_ONLY
    receiver_queue_size: int = 1000
    reader_name: str | None = None
    is_read_compacted: bool = False
    start_message_id_inclusive: bool = False
    start_offset: int | None = None
    start_time_ms: int | None = None
    isolation: str = Isolation.READ_UNCOMMITTED

    def __post_init__(self) -> None:
        check_topic_argument(self.topic)
        starts = (self.start_message_id, self.start_offset, self.start_time_ms)
        if sum(start is not None for start in starts) != 1:
            raise InvalidRequest(
                "Pass exactly one of start_message_id, start_offset and start_time_ms."
            )
        if not isinstance(self.start, MessageId | int):
            raise InvalidRequest("start_message_id must be a MessageId.")
        check_positive(self, "receiver_queue_size")
        if self.isolation not in [*Isolation]:
            raise InvalidRequest(
                f"isolation must be {' or '.join(Isolation)}, not {self.isolation!r}."
            )

    @property
    def start(self) -> MessageId | int:
        """The start: a message id, or ms since the epoch."""
        if self.start_offset is not None:
            return id_of_offset(self.start_offset)
        place = self.start_time_ms if self.start_message_id is None else self.start_message_id
        assert place is not None
        return place

    @property
    def is_start_inclusive(self) -> bool:
        return self.start_message_id_inclusive or self.start_offset is not None

    @property
    def read_committed(self) -> bool:
        return self.isolation == Isolation.READ_COMMITTED


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
    async def open(
        cls, connection: Connection, config: ReaderConfig, subscription: str = ""
    ) -> ReaderCore:
        """Connects. Raises the broker's errors.

        `subscription`: that of a table view, exclusive while it reads.
        """
        core = cls(connection, config)
        start, first = await core._start(config.start, config.is_start_inclusive)
        core.stream = ReadStream(
            connection,
            config.topic,
            start,
            core.inbox,
            read_compacted=config.is_read_compacted,
            read_committed=config.read_committed,
            reader_name=config.reader_name or "",
            subscription=subscription,
            queue_size=config.receiver_queue_size,
        )
        core.receiver = Receiver(
            core.inbox,
            core.topic,
            config.receiver_queue_size,
            core.stream.return_permits,
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

    async def check(self) -> bool:
        """Asks the broker whether there are more entries."""
        self.receiver.flush_permits()
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
        if inclusive is None:
            inclusive = self.config.start_message_id_inclusive
        start, first = await self._start(place, inclusive)
        try:
            await self.stream.seek(start)
        finally:
            # Also after a failure: the stream moves to `start` once it is connected.
            self.receiver.forget()
            self.receiver.first = first

    async def close(self) -> None:
        await self.stream.close()
        # Queued messages are not read any more.
        self.inbox.clear()

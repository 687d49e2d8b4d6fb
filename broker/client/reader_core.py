"""What the readers of both APIs share: what is asked for, and the stream and receiver of one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ledgerfold.broker.client.arguments import one_topic
from ledgerfold.broker.client.connection import Connection, full_topic_name
from ledgerfold.broker.client.inbox import Inbox
from ledgerfold.broker.client.message_id import MessageId
from ledgerfold.broker.client.read_stream import ReadStream
from ledgerfold.broker.client.receiver import FirstMessage, Receiver
from ledgerfold.broker.client.start import id_of_offset, start_of, without_latest
from ledgerfold.storage.errors import InvalidRequest, NotAllowed
from ledgerfold.v1 import data_pb2


class Isolation(StrEnum):
    """Which records of a Kafka topic a reader gets, named as Kafka's isolation.level."""

    READ_UNCOMMITTED = "read_uncommitted"
    # None of a transaction that is not committed, and nothing that lies behind an open one.
    READ_COMMITTED = "read_committed"


@dataclass(frozen=True, slots=True)
class ReaderConfig:
    """What `Client.create_reader` says (its docstring explains each)."""

    topic: str
    start_message_id: MessageId | None
    start_message_id_inclusive: bool = False
    is_read_compacted: bool = False
    receiver_queue_size: int = 1000
    reader_name: str = ""
    start_offset: int | None = None
    start_time_ms: int | None = None
    isolation: str = Isolation.READ_UNCOMMITTED
    # A table view's: nobody else reads under it meanwhile.
    subscription: str = ""

    def __post_init__(self) -> None:
        one_topic(self.topic)
        starts = (self.start_message_id, self.start_offset, self.start_time_ms)
        if sum(start is not None for start in starts) != 1:
            raise InvalidRequest(
                "A reader begins at a start_message_id, a start_offset or a start_time_ms: name "
                "one of them."
            )
        if not isinstance(self.start, MessageId | int):
            raise InvalidRequest("start_message_id is a MessageId.")
        if self.receiver_queue_size < 1:
            raise InvalidRequest("receiver_queue_size is 1 message or more.")
        if self.isolation not in [*Isolation]:
            raise InvalidRequest(f"isolation is {' or '.join(Isolation)}, not {self.isolation!r}.")

    @property
    def start(self) -> MessageId | int:
        """A message id, or ms since the epoch."""
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
        start, first = await core._start(config.start, config.is_start_inclusive)
        core.stream = ReadStream(
            connection,
            config.topic,
            start,
            core.inbox,
            read_compacted=config.is_read_compacted,
            read_committed=config.read_committed,
            reader_name=config.reader_name,
            subscription=config.subscription,
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
        if not core.stream.is_kafka and (config.start_offset is not None or config.read_committed):
            await core.close()
            raise NotAllowed(
                f"{full_topic_name(config.topic)} is no Kafka topic: it has no offsets and no "
                "transactions. Begin at a message id or at a time."
            )
        return core

    async def _start(
        self, place: MessageId | int, inclusive: bool
    ) -> tuple[data_pb2.StartPosition, FirstMessage | None]:
        """Where the broker shall start, and which rows of the first entry are not wanted."""
        config = self.config
        # NOTE: who reads committed records begins at the last stable offset, which only the broker
        # knows; it tells where that was (read_stream.py).
        if not config.read_committed:
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

    async def seek(self, place: MessageId | int, *, inclusive: bool | None = None) -> None:
        """Moves. The reader must not be used meanwhile. `inclusive`: None: as it was opened."""
        if inclusive is None:
            inclusive = self.config.start_message_id_inclusive
        start, first = await self._start(place, inclusive)
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

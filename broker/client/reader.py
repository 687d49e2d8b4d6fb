"""Readers of the synchronous API, and what both APIs share of them.

>>> from ledgerfold.broker.client import Client
>>> client = Client("127.0.0.1:7650")
>>> sent = client.create_producer("prices").send(b"10", partition_key="p3")
>>> reader = client.create_reader("prices", MessageId.earliest, is_read_compacted=True)
>>> for message in reader:  # up to the end of the topic
...     print(message.message_id() == sent, message.partition_key(), message.data())
True p3 b'10'
>>> client.close()
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from ledgerfold.broker.client.connection import Connection, full_topic_name
from ledgerfold.broker.client.forks import belongs_to_this_process
from ledgerfold.broker.client.inbox import Inbox, deadline_after
from ledgerfold.broker.client.io_thread import IoThread
from ledgerfold.broker.client.message import Message
from ledgerfold.broker.client.message_id import MessageId
from ledgerfold.broker.client.read_stream import ReadStream
from ledgerfold.broker.client.receiver import FirstMessage, Receiver
from ledgerfold.broker.client.start import start_of, without_latest
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1 import data_pb2

if TYPE_CHECKING:
    from ledgerfold.broker.client.partitioned_reader import PartitionedReaderCore


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


class Reader:
    """Reads a topic without a subscription (`pulsar.Reader`). For one thread at a time.

    A lost connection is mended behind the scenes: reading goes on where it was.
    """

    def __init__(
        self,
        core: ReaderCore | PartitionedReaderCore,
        io: IoThread,
        on_close: Callable[[object], None],
    ) -> None:
        self._core = core
        self._io = io
        self._on_close = on_close
        self._receiver = core.receiver
        self._inbox = core.inbox
        self._lock = threading.Lock()
        belongs_to_this_process(self)

    def topic(self) -> str:
        """The full name."""
        return full_topic_name(self._core.config.topic)

    def is_connected(self) -> bool:
        return self._core.is_connected

    def read_next(self, timeout_millis: int | None = None) -> Message:
        """The next message; waits for one, without end when no timeout is given.

        Raises Timeout, AlreadyClosed, Corruption (and again at each call: nothing is skipped).
        """
        message = self._receiver.poll()
        if message is not None:
            return message
        deadline_s = deadline_after(timeout_millis)
        while (message := self._receiver.poll()) is None:
            self._inbox.wait(deadline_s)
        return message

    def has_message_available(self) -> bool:
        """Whether `read_next` would return now: True exactly when there is a message to return.

        The broker answers from the view that it delivers from, compacted or not. Raises Unavailable
        or Timeout when it does not, up to the operation timeout.
        """
        return self._receiver.has_row() or self._io.call(self._core.has_message_available())

    def has_reached_end_of_topic(self) -> bool:
        """Whether the topic was terminated and everything in it was read.

        Named as in Pulsar's Java client. `read_next` would wait for ever.
        """
        return self._core.has_reached_end()

    def __iter__(self) -> Iterator[Message]:
        """The messages up to the end of the topic; another loop goes on from there.

        Pulsar's client has no such thing; it is `while has_message_available(): read_next()`.
        """
        return chain.from_iterable(self._entries())

    def _entries(self) -> Iterator[Iterator[Message]]:
        # Entry by entry, so that no Python code runs between the messages of one.
        while self.has_message_available():
            yield self._receiver.entry_messages()

    def seek(self, messageid: MessageId | int) -> None:
        """Moves to a message id, or to the first entry published at or after a time in ms.

        Whether the message of that id itself is read says `start_message_id_inclusive`. On a
        partitioned topic an id moves its partition alone. Raises Unavailable or Timeout when the
        broker does not answer; reading goes on from there all the same, once it is back.
        """
        with self._lock:
            self._io.call(self._core.seek(messageid))

    def close(self) -> None:
        """Further reads raise AlreadyClosed. Closing twice is fine."""
        self._on_close(self)
        self._io.call(self._core.close())

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

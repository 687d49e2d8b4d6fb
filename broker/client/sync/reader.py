"""Readers of the synchronous API.

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
from functools import partial
from itertools import chain

from ledgerfold.broker.client.core.client_core import AnyReader, Forget
from ledgerfold.broker.client.core.opened import BaseReader
from ledgerfold.broker.client.messages.arguments import check_may_time_out
from ledgerfold.broker.client.messages.configs import ReaderConfig
from ledgerfold.broker.client.messages.message import Message
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.messages.start import id_of_offset
from ledgerfold.broker.client.streams.closing import Closing
from ledgerfold.broker.client.streams.inbox import deadline_after
from ledgerfold.broker.client.sync.io_thread import IoThread
from ledgerfold.broker.client.sync.listening import Listened, ListenerThread

ReaderListener = Callable[["Reader", Message], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListeningReaderConfig(ReaderConfig):
    """The arguments of `Client.create_reader` (see there)."""

    reader_listener: ReaderListener | None = None


class Reader(Listened[AnyReader], BaseReader, Closing):
    """A reader of a topic, without a subscription (`pulsar.Reader`). Not thread-safe.

    Reconnects automatically after a lost connection, and continues where it was.
    """

    def __init__(
        self,
        io: IoThread,
        reader_listener: ReaderListener | None,
        core: AnyReader,
        forget: Forget,
    ) -> None:
        super().__init__(core, forget)
        self._io = io
        self._receiver = core.receiver
        self._inbox = core.inbox
        self._queue_size = core.config.receiver_queue_size
        # Held while a seek moves the reader, and while a listener's next message is taken.
        self._lock = threading.Lock()
        if reader_listener is not None:
            name, listen = core.config.reader_name or "reader", partial(reader_listener, self)
            self._begin_listening(ListenerThread(name, self._listened, listen))

    def read_next(self, timeout_millis: int | None = None) -> Message:
        """Returns the next message; waits for one, without limit if no timeout is given.

        Raises Timeout, AlreadyClosed, Corruption (again at each call: nothing is skipped);
        InvalidConfiguration if there is a listener, or for a timeout with a `receiver_queue_size`
        of 0.
        """
        if self._has_listener:
            self._refuse_receiving()
        check_may_time_out(self._queue_size, timeout_millis)
        message = self._receiver.poll()
        if message is not None:
            return message
        deadline_s = deadline_after(timeout_millis)
        while (message := self._core.poll()) is None:
            self._inbox.wait(deadline_s)
        return message

    def _listened(self) -> Message:
        while True:
            with self._lock:
                message = self._core.poll()
            if message is not None:
                return message
            self._inbox.wait(None)

    def has_message_available(self) -> bool:
        """Returns True exactly if `read_next` would return at once.

        The broker answers for the view that it delivers from, compacted or not. With a
        `receiver_queue_size` of 0 it sends the message with its answer. Raises Unavailable or
        Timeout without an answer within the operation timeout; InvalidConfiguration if there is a
        listener.
        """
        if self._has_listener:
            self._refuse_receiving()
        return self._receiver.has_row() or self._io.call(self._core.has_message_available())

    def __iter__(self) -> Iterator[Message]:
        """Iterates over the messages up to the end of the topic; another loop continues from there.

        Pulsar's client has no equivalent; it is `while has_message_available(): read_next()`.
        """
        return chain.from_iterable(self._entries())

    def _entries(self) -> Iterator[Iterator[Message]]:
        # Entry by entry, so that no Python code runs between the messages of one.
        while self.has_message_available():
            yield self._receiver.entry_messages()

    def seek(self, messageid: MessageId | int) -> None:
        """Moves to a message id, or to the first entry published at or after a time in ms.

        `start_message_id_inclusive` decides whether the message of that id is read. On a
        partitioned topic an id moves only its partition. Raises Unavailable or Timeout if the
        broker does not answer; the reader then moves once it is connected again.
        """
        with self._lock:
            self._io.call(self._core.seek(messageid))

    def seek_offset(self, offset: int, partition: int = -1) -> None:
        """Moves to the message at an offset of a Kafka topic, or to the next one that exists.

        `partition`: the one to move, on a partitioned topic. Raises as `seek`; the next read raises
        KafkaError (OFFSET_OUT_OF_RANGE) if the log does not have the offset.
        """
        message_id = id_of_offset(offset, partition)
        with self._lock:
            self._io.call(self._core.seek(message_id, inclusive=True))

    def close(self) -> None:
        """Closes the reader; further reads raise AlreadyClosed. Idempotent."""
        self._io.call(self._close())

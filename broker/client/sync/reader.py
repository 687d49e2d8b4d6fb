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
from itertools import chain

from ledgerfold.broker.client.core.partitioned_reader import PartitionedReaderCore
from ledgerfold.broker.client.core.reader_core import ReaderCore
from ledgerfold.broker.client.messages.message import Message
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.messages.start import id_of_offset
from ledgerfold.broker.client.streams.connection import full_topic_name
from ledgerfold.broker.client.streams.forks import belongs_to_this_process
from ledgerfold.broker.client.streams.inbox import deadline_after
from ledgerfold.broker.client.sync.io_thread import IoThread


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

    def seek_offset(self, offset: int, partition: int = -1) -> None:
        """Of a Kafka topic: the message at that offset is read next, or the first behind it.

        `partition`: of a partitioned topic, the one that moves. Raises as `seek`, and KafkaError
        (OFFSET_OUT_OF_RANGE) with the next read where the log has no such offset.
        """
        place = id_of_offset(offset, partition)
        with self._lock:
            self._io.call(self._core.seek(place, inclusive=True))

    def close(self) -> None:
        """Further reads raise AlreadyClosed. Closing twice is fine."""
        self._on_close(self)
        self._io.call(self._core.close())

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

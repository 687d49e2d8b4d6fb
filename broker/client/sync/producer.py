"""Producers of the synchronous API.

>>> from ledgerfold.broker.client import Client
>>> client = Client("127.0.0.1:7650")
>>> producer = client.create_producer("orders", batching_enabled=True)
>>> producer.send_async(b"12.50", None, partition_key="p3")
>>> tombstone = producer.send(None, partition_key="p7")
>>> producer.flush()
>>> producer.last_sequence_id()
1
>>> client.close()
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from ledgerfold.broker.client.core.partitioned_producer import PartitionedProducerCore
from ledgerfold.broker.client.core.producer_core import ProducerCore
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.messages.new_message import ROW_BYTES
from ledgerfold.broker.client.messages.options import Result
from ledgerfold.broker.client.streams.connection import full_topic_name
from ledgerfold.broker.client.streams.forks import belongs_to_this_process
from ledgerfold.broker.client.sync.io_thread import IoThread
from ledgerfold.storage.errors import NotAllowed


class Producer:
    """Publishes to a topic (`pulsar.Producer`). May be used by several threads.

    Errors are those of storage/errors.py. A producer that the broker refuses for good (damaged
    storage, a forbidden topic) fails what is pending and raises that error from then on; a lost
    connection is mended behind the scenes, without loss, duplicates or change of order.
    """

    def __init__(
        self,
        core: ProducerCore | PartitionedProducerCore,
        io: IoThread,
        on_close: Callable[[object], None],
    ) -> None:
        self._core = core
        self._io = io
        self._on_close = on_close
        self._queue = core.queue
        self._waits_for_room = core.config.block_if_queue_full
        self._add = core.queue.add
        self._quick = core.queue.quick
        belongs_to_this_process(self)

    def topic(self) -> str:
        """The full name."""
        return full_topic_name(self._core.config.topic)

    def producer_name(self) -> str:
        """As given, or as the broker chose it."""
        return self._core.producer_name

    def last_sequence_id(self) -> int:
        """Of the last message that is stored; -1 when there is none.

        A producer that comes back under its name finds here how far it got.
        """
        return self._queue.last_sequence_id_stored

    def is_connected(self) -> bool:
        return self._core.is_connected

    def send(
        self,
        content: bytes | None,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        event_timestamp: int | None = None,
    ) -> MessageId:
        """Publishes one message and waits until it is durable. Arguments as in `send_async`.

        A batch that is open is sent along at once. The id is (-1, -1, -1, -1) when the message was
        resent after a lost connection and the broker had it already. Raises Timeout (it may have
        been stored all the same), InvalidRequest, Overloaded, AlreadyClosed.
        """
        if self._io.is_current:
            raise NotAllowed("A callback runs in the client's I/O thread: use send_async there.")
        future: Future[MessageId] = Future()
        self._add(
            content,
            future,
            properties,
            partition_key,
            ordering_key,
            sequence_id,
            event_timestamp,
            self._waits_for_room,
        )
        self._queue.seal()
        return future.result()

    def send_async(
        self,
        content: bytes | None,
        callback: Callable[[Result, MessageId | None], object] | None,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        event_timestamp: int | None = None,
    ) -> None:
        """Publishes one message without waiting for it.

        `content`: None is a null value and b"" an empty one; both are tombstones to a compaction.
        `callback(result, message_id)` is called in the client's I/O thread, in the order of sending
        (only a message that is too large hears earlier or later); it must not wait. None: `flush`
        raises if the message failed. `sequence_id` must be above the one before; `event_timestamp`
        is in ms since the epoch, 0 counts as not set.

        Waits while the queue is full, unless `block_if_queue_full` is off. Raises Overloaded (the
        queue is full), AlreadyClosed, InvalidRequest (a wrong type, a sequence id that does not
        rise), at once; Pulsar's client hands some of these to the callback.
        """
        if (
            properties is None
            and ordering_key is None
            and sequence_id is None
            and event_timestamp is None
            and type(content) is bytes
            and type(partition_key) is str
        ):
            # NOTE: what nearly every message takes, at a third of the time; it ends in the same
            # state as `add` (tests/unit/client/test_send_queue.py compares the two).
            quick = self._quick
            items = quick.items
            size = quick.size_bytes + len(content) + len(partition_key) + ROW_BYTES
            if size < quick.size_max and len(items) < quick.items_max:
                items += (content, partition_key, callback)
                quick.size_bytes = size
                if not quick.is_watched:
                    quick.watch()
                return
        self._add(
            content,
            callback,
            properties,
            partition_key,
            ordering_key,
            sequence_id,
            event_timestamp,
            self._waits_for_room,
        )

    def flush(self) -> None:
        """Sends the open batch and waits until everything sent so far is durable.

        Raises the first error, since the last flush, of a message without a callback.
        """
        self._queue.flush()

    def close(self) -> None:
        """Flushes, and gives the producer's name back. Closing twice is fine.

        Raises as `flush` does; the producer is closed then, too.
        """
        self._on_close(self)
        self._io.call(self._core.close())

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

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

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, TypeAlias

from ledgerfold.broker.client.core.client_core import Forget
from ledgerfold.broker.client.core.opened import BaseProducer
from ledgerfold.broker.client.core.partitioned_producer import AnyProducer
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.messages.new_message import ROW_BYTES, NewMessage
from ledgerfold.broker.client.messages.options import Result
from ledgerfold.broker.client.streams.closing import Closing
from ledgerfold.broker.client.sync.io_thread import IoThread
from ledgerfold.storage.errors import InvalidRequest, NotAllowed, Overloaded

Callback: TypeAlias = Callable[[Result, MessageId | None], object]


class Producer(BaseProducer, Closing):
    """A producer of a topic (`pulsar.Producer`). Thread-safe.

    Errors are those of storage/errors.py. If the broker refuses the producer permanently (damaged
    storage, a forbidden topic), pending messages fail and later calls raise that error. After a
    lost connection it reconnects automatically, without loss, duplicates or reordering.
    """

    def __init__(self, io: IoThread, core: AnyProducer, forget: Forget) -> None:
        super().__init__(core, forget)
        self._io = io
        self._queue = core.queue
        self._waits_for_room = core.config.block_if_queue_full
        self._add = core.queue.add
        self._quick = core.queue.quick

    def send(
        self,
        content: Any,
        properties: dict[str, str] | None = None,
        partition_key: str | bytes | None = None,
        ordering_key: str | bytes | None = None,
        sequence_id: int | None = None,
        replication_clusters: Sequence[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> MessageId:
        """Publishes one message and waits until it is durable. Arguments as in `send_async`.

        An open batch is sent at once. The id is (-1, -1, -1, -1) if the message was resent after a
        lost connection and the broker had stored it already. Raises Timeout (the message may have
        been stored), InvalidRequest, ProducerQueueIsFull, AlreadyClosed.
        """
        if self._io.is_current:
            raise NotAllowed("A callback runs in the client's I/O thread: use send_async there.")
        message = self._checked(
            self._encoded(content),
            properties,
            partition_key,
            ordering_key,
            sequence_id,
            replication_clusters,
            disable_replication,
            event_timestamp,
            deliver_at,
            deliver_after,
        )
        future: Future[MessageId] = Future()
        self._add(message, future, wait=self._waits_for_room)
        self._queue.seal()
        return future.result()

    def send_async(
        self,
        content: Any,
        callback: Callback | None,
        properties: dict[str, str] | None = None,
        partition_key: str | bytes | None = None,
        ordering_key: str | bytes | None = None,
        sequence_id: int | None = None,
        replication_clusters: Sequence[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> None:
        """Publishes one message without waiting for it.

        `content`: bytes, or what the schema encodes; None is a null value, a tombstone for the
        compaction, like b"". `callback(result, message_id)` is called in the client's I/O thread,
        in the order of sending (except for a message that is too large); it must not block. None:
        `flush` raises if the message failed. `sequence_id` must be above the previous one. A
        `partition_key` of bytes is sent in base64, as by Pulsar's Java client. Times are in ms
        since the epoch. Consumers of Shared and KeyShared subscriptions get a message with
        `deliver_at` or `deliver_after` at that time, others at once; it is not batched.

        While the queue is full, waits if `block_if_queue_full`; otherwise the callback gets
        `Result.ProducerQueueIsFull` at once, in this thread, and without a callback the call raises
        ProducerQueueIsFull. Raises AlreadyClosed, InvalidRequest (a wrong type, a sequence id that
        does not rise), at once; Pulsar's client passes some of these to the callback.
        """
        if (
            self._schema is None
            and properties is None
            and ordering_key is None
            and sequence_id is None
            and replication_clusters is None
            and disable_replication is False
            and event_timestamp is None
            and deliver_at is None
            and deliver_after is None
            and type(content) is bytes
            and type(partition_key) is str
            # Other strings may not be encodable in UTF-8: checked_message refuses those at once.
            and partition_key.isascii()
            and (callback is None or callable(callback))
        ):
            # NOTE: the fast path of nearly every message, at a third of the time, with the same
            # effect as `add` (tests/unit/client/test_send_queue.py compares the two).
            quick = self._quick
            items = quick.items
            size = quick.size_bytes + len(content) + len(partition_key) + ROW_BYTES
            if size < quick.size_max and len(items) < quick.items_max:
                items += (content, partition_key, callback)
                quick.size_bytes = size
                if not quick.is_watched:
                    quick.watch()
                return
        message = self._checked(
            self._encoded(content),
            properties,
            partition_key,
            ordering_key,
            sequence_id,
            replication_clusters,
            disable_replication,
            event_timestamp,
            deliver_at,
            deliver_after,
        )
        self._add_for_callback(message, callback)

    def _add_for_callback(self, message: NewMessage, callback: Callback | None) -> None:
        if callback is not None and not callable(callback):
            raise InvalidRequest(f"A callback must be callable, not {type(callback).__name__}.")
        try:
            self._add(message, callback, wait=self._waits_for_room)
        except Overloaded:
            if callback is None or self._waits_for_room:
                raise
            callback(Result.ProducerQueueIsFull, None)

    def flush(self) -> None:
        """Sends the open batch and waits until all messages so far are durable.

        Raises the first error, since the last flush, of a message without a callback; AlreadyClosed
        after a close.
        """
        self._queue.flush()

    def close(self) -> None:
        """Flushes, and releases the producer's name. Idempotent.

        Messages fail with AlreadyClosed if there is no connection for 5 s or, without a send
        timeout, no receipt for the operation timeout. Raises as `flush`; the producer is closed all
        the same.
        """
        self._io.call(self._close())

"""The stream of a consumer: receives deliveries; sends permits, acknowledgements, redelivery
requests.

After a lost connection the broker redelivers everything unacknowledged, so the inbox is cleared.
Unconfirmed acknowledgements are sent first on the new connection
(broker/client/streams/ack_queue.py), unless a seek by any client, or a restore of a snapshot, has
invalidated them: the cursor then has another incarnation. `close` waits for confirmations.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ledgerfold.broker.client.streams.ack_queue import AckQueue, record_of
from ledgerfold.broker.client.streams.connection import Connection
from ledgerfold.broker.client.streams.inbox import Delivery, Inbox
from ledgerfold.broker.client.streams.receiving_stream import ReceivingStream
from ledgerfold.broker.client.streams.reconnecting_stream import CLOSE_GRACE_S
from ledgerfold.broker.wire.frames import decode_deliveries, is_bulk
from ledgerfold.storage.entry import Buffer, Position
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.storage.served_entry import read_served_header
from ledgerfold.v1 import data_pb2

_log = logging.getLogger(__name__)
# Maximum delay before a confirmation of acknowledgements is requested.
_CONFIRM_DELAY_S = 0.5


class SubscribeStream(ReceivingStream):
    """The stream of one consumer. Event loop only, except where stated."""

    def __init__(
        self,
        connection: Connection,
        opening: data_pb2.SubscribeOpen,
        inbox: Inbox,
        *,
        queue_size: int,
        on_disconnect: Callable[[], None],
        on_moved: Callable[[], None],
        diverted: Callable[[Delivery], bool] = lambda delivery: False,
    ) -> None:
        """`diverted` takes deliveries that are not for the inbox, with their permits."""
        what = f"consumer of {opening.subscription!r} on topic {opening.topic}"
        super().__init__(connection, what, inbox, queue_size)
        self.consumer_name: str = opening.consumer_name
        self._opening = opening
        self._notify_disconnect, self._notify_moved = on_disconnect, on_moved
        self._is_diverted = diverted
        self._acks = AckQueue()
        self._confirm_timer: asyncio.TimerHandle | None = None
        self._all_answered = asyncio.Event()
        self._incarnation = 0

    # Requests of the consumer.

    def _grant(self) -> None:
        if self.is_connected and not self._acks.is_full and (more := self._permits.to_grant()):
            self._ask(data_pb2.SubscribeRequest(permits=more))

    def acknowledge(self, position: Position) -> None:
        """Acknowledges an entry. Acknowledgements are sent in groups. Thread-safe."""
        if self._acks.add(position):
            self.loop.call_soon_threadsafe(self.wake)

    def acknowledge_cumulative(self, position: Position) -> None:
        """Acknowledges all entries through `position`. Thread-safe."""
        if self._acks.add_cumulative(position):
            self.loop.call_soon_threadsafe(self.wake)

    def redeliver(self, positions: Iterable[Position]) -> None:
        redeliver = data_pb2.Redeliver(positions=map(record_of, positions))
        if self.is_connected:  # a new connection redelivers them anyway
            self._ask(data_pb2.SubscribeRequest(redeliver=redeliver))

    def redeliver_all(self) -> None:
        """Clears the inbox and requests redelivery of everything unacknowledged."""
        self._permits.on_taken(self.inbox.clear())
        if self.is_connected:
            self._ask(data_pb2.SubscribeRequest(redeliver=data_pb2.Redeliver()))
            self._grant()

    def moved(self, incarnation: int) -> None:
        """Drops all acknowledgements, after a seek gave the cursor a new incarnation."""
        self._incarnation = incarnation
        self._acks.clear()
        self._all_answered.set()
        self._notify_moved()

    async def close(self, grace_s: float = CLOSE_GRACE_S) -> None:
        """Waits until all acknowledgements are durable, also across a lost connection; then
        closes.
        """
        await self._flush_acks(grace_s)
        await super().close(grace_s)

    async def _flush_acks(self, grace_s: float) -> None:
        if not self._acks or self.error is not None:
            return
        self._all_answered.clear()
        self._request_confirmation()
        try:
            await asyncio.wait_for(self._all_answered.wait(), grace_s)
        except TimeoutError:
            _log.warning(
                "The %s closes with %d acknowledgements that the broker has not confirmed; "
                "their messages may be redelivered.",
                self.description,
                len(self._acks),
            )

    # Implementation of the stream.

    def _start_call(self) -> Any:
        return self.connection.subscribe()

    def _open_frame(self) -> bytes:
        # Acknowledgements come first, if there are any: see _next_frame.
        self._opening.permits = 0 if self._acks else self._permits.missing
        return bytes(data_pb2.SubscribeRequest(open=self._opening).SerializeToString())

    def _on_open(self, response: bytes) -> None:
        ready = data_pb2.SubscribeResponse.FromString(response).ready
        if not self._opened.done():
            # The broker identifies the consumer by this name after a reconnect.
            self.consumer_name = self._opening.consumer_name = ready.consumer_name
            self._incarnation = ready.incarnation
        elif ready.incarnation != self._incarnation:
            self.moved(ready.incarnation)
        self._requests.clear()
        self._permits.grant(ready.permits)
        self._grant()

    def _next_frame(self) -> bytes | None:
        # Acknowledgements first: they reduce the messages that a redelivery or a permit causes.
        ack = self._acks.next_ack()
        if ack is not None:
            self._set_confirm_timer()
            return bytes(data_pb2.SubscribeRequest(ack=ack).SerializeToString())
        return super()._next_frame()

    def _set_confirm_timer(self) -> None:
        if self._confirm_timer is None and self._acks:
            self._confirm_timer = self.loop.call_later(_CONFIRM_DELAY_S, self._request_confirmation)

    def _request_confirmation(self) -> None:
        self._confirm_timer = None
        if self._acks:
            self._acks.request_confirmation()
            self.wake()

    def _on_answers(self, request_ids: Iterable[int]) -> None:
        for request_id in request_ids:
            self._acks.answered(request_id)
        if self._acks:
            # The next confirmation may be due.
            self._set_confirm_timer()
            self.wake()
        else:
            self._all_answered.set()
        self._grant()

    def _on_response(self, response: bytes) -> None:
        if is_bulk(response):
            self._on_deliveries(decode_deliveries(response))
            return
        message = data_pb2.SubscribeResponse.FromString(response)
        if message.acked_request_ids:
            self._on_answers(message.acked_request_ids)
        self._on_deliveries(
            [(memoryview(one.entry), one.redelivery_count) for one in message.deliveries]
        )

    def _on_deliveries(self, pairs: Sequence[tuple[Buffer, int]]) -> None:
        deliveries = [
            Delivery(read_served_header(entry), memoryview(entry), count) for entry, count in pairs
        ]
        self._permits.received(sum(delivery.header.message_count for delivery in deliveries))
        self.inbox.put([each for each in deliveries if not self._is_diverted(each)])

    def _on_disconnect(self) -> None:
        self._acks.on_loss()
        super()._on_disconnect()
        self._permits.on_taken(self.inbox.clear())
        self._notify_disconnect()

    def _on_end(self, error: LedgerfoldError) -> None:
        if self._confirm_timer is not None:
            self._confirm_timer.cancel()
        self._all_answered.set()
        self.inbox.fail(error)

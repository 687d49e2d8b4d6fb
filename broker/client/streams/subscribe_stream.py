"""The stream of a consumer: deliveries in, permits, acknowledgements and redelivery requests out.

After a lost connection the broker delivers anew what was not acknowledged: what waits in the inbox
is dropped then. Acknowledgements that the broker has not answered for go first on the new
connection (broker/client/streams/ack_queue.py), unless a seek, of any client, has made them void:
then the cursor is in another incarnation. `close` waits for the answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ledgerfold.broker.client.streams.ack_queue import AckQueue, record_of
from ledgerfold.broker.client.streams.connection import Connection
from ledgerfold.broker.client.streams.inbox import Delivery, Inbox
from ledgerfold.broker.client.streams.permits import Permits
from ledgerfold.broker.client.streams.reconnecting_stream import CLOSE_GRACE_S, KeptStream
from ledgerfold.broker.wire.frames import decode_deliveries, is_bulk
from ledgerfold.storage.entry import Buffer, Position, read_header
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.v1 import data_pb2

_log = logging.getLogger(__name__)
# How long acknowledgements may wait until an answer to them is asked for.
_ANSWER_DELAY_S = 0.5


class SubscribeStream(KeptStream):
    """One consumer's stream. All on the event loop, but for what says otherwise."""

    def __init__(
        self,
        connection: Connection,
        opening: data_pb2.SubscribeOpen,
        inbox: Inbox,
        *,
        queue_size: int,
        on_disconnect: Callable[[], None],
        on_moved: Callable[[], None],
    ) -> None:
        super().__init__(
            connection, f"consumer of {opening.subscription!r} on topic {opening.topic}"
        )
        self.consumer_name: str = opening.consumer_name
        self._opening = opening
        self._inbox = inbox
        self._tell_disconnect, self._tell_moved = on_disconnect, on_moved
        self._permits = Permits(queue_size)
        self._acks = AckQueue()
        self._answer_timer: asyncio.TimerHandle | None = None
        self._all_answered = asyncio.Event()
        self._incarnation = 0
        self._requests: deque[bytes] = deque()

    # What the consumer asks for.

    def return_permits(self, messages: int) -> None:
        """So many messages were taken. From any thread."""
        self.loop.call_soon_threadsafe(self._taken, messages)

    def _taken(self, messages: int) -> None:
        self._permits.taken(messages)
        self._grant()

    def _grant(self) -> None:
        if self.is_connected and not self._acks.is_full and (more := self._permits.to_grant()):
            self._ask(data_pb2.SubscribeRequest(permits=more))

    def _ask(self, request: data_pb2.SubscribeRequest) -> None:
        self._requests.append(request.SerializeToString())
        self.wake()

    def acknowledge(self, position: Position) -> None:
        """From any thread. Several go together."""
        if self._acks.add(position):
            self.loop.call_soon_threadsafe(self.wake)

    def acknowledge_cumulative(self, position: Position) -> None:
        """From any thread. Of several the last counts."""
        if self._acks.add_upto(position):
            self.loop.call_soon_threadsafe(self.wake)

    def redeliver(self, positions: Iterable[Position]) -> None:
        redeliver = data_pb2.Redeliver(positions=map(record_of, positions))
        if self.is_connected:  # otherwise they come again anyway
            self._ask(data_pb2.SubscribeRequest(redeliver=redeliver))

    def redeliver_all(self) -> None:
        """Everything without an acknowledgement comes again; what waits here is dropped first."""
        self._permits.taken(self._inbox.clear())
        if self.is_connected:
            self._ask(data_pb2.SubscribeRequest(redeliver=data_pb2.Redeliver()))
            self._grant()

    def moved(self, incarnation: int) -> None:
        """A seek made the cursor this one: what was acknowledged before is void."""
        self._incarnation = incarnation
        self._acks.clear()
        self._all_answered.set()
        self._tell_moved()

    async def close(self, grace_s: float = CLOSE_GRACE_S) -> None:
        """Waits until all acknowledgements are durable, across a lost connection too."""
        await self._flush_acks(grace_s)
        await super().close(grace_s)

    async def _flush_acks(self, grace_s: float) -> None:
        if not self._acks or self.error is not None:
            return
        self._all_answered.clear()
        self._want_answer()
        try:
            await asyncio.wait_for(self._all_answered.wait(), grace_s)
        except TimeoutError:
            _log.warning(
                "The %s closes with %d acknowledgements that the broker has not answered for; "
                "their messages may come again.",
                self.what,
                len(self._acks),
            )

    # The stream's own rules.

    def _start_call(self) -> Any:
        return self.connection.subscribe()

    def _open_frame(self) -> bytes:
        return bytes(data_pb2.SubscribeRequest(open=self._opening).SerializeToString())

    def _on_open(self, response: bytes) -> None:
        ready = data_pb2.SubscribeResponse.FromString(response).ready
        if not self._opened.done():
            # From here on under this name: the broker's consumer after a reconnect is the same.
            self.consumer_name = self._opening.consumer_name = ready.consumer_name
            self._incarnation = ready.incarnation
        elif ready.incarnation != self._incarnation:
            self.moved(ready.incarnation)
        self._requests.clear()
        self._grant()

    def _next_frame(self) -> bytes | None:
        # Acknowledgements first: then what a redelivery or a permit brings is less.
        ack = self._acks.next_ack()
        if ack is not None:
            self._set_answer_timer()
            return bytes(data_pb2.SubscribeRequest(ack=ack).SerializeToString())
        return self._requests.popleft() if self._requests else None

    def _set_answer_timer(self) -> None:
        if self._answer_timer is None and self._acks:
            self._answer_timer = self.loop.call_later(_ANSWER_DELAY_S, self._want_answer)

    def _want_answer(self) -> None:
        self._answer_timer = None
        if self._acks:
            self._acks.want_answer()
            self.wake()

    def _on_answers(self, request_ids: Iterable[int]) -> None:
        for request_id in request_ids:
            self._acks.answered(request_id)
        if self._acks:
            # The next question may be due.
            self._set_answer_timer()
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
            Delivery(read_header(entry), memoryview(entry), count) for entry, count in pairs
        ]
        self._permits.came(sum(delivery.header.message_count for delivery in deliveries))
        self._inbox.put(deliveries)

    def _on_disconnect(self) -> None:
        self._acks.lost()
        self._permits.disconnected()
        self._permits.taken(self._inbox.clear())
        self._tell_disconnect()

    def _on_end(self, error: LedgerfoldError) -> None:
        if self._answer_timer is not None:
            self._answer_timer.cancel()
        self._all_answered.set()
        self._inbox.fail(error)

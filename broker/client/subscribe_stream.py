"""The stream of a consumer: deliveries in, permits, acknowledgements and redelivery requests out.

After a lost connection the broker delivers anew what was not acknowledged: what waits in the inbox
is dropped then. Acknowledgements that were not sent yet go first on the new connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ledgerfold.v1 import data_pb2, records_pb2

from broker.client.connection import Connection, KeptStream
from broker.client.inbox import Delivery, Inbox
from broker.client.permits import Permits
from broker.frames import decode_deliveries, is_bulk
from storage.entry import Buffer, Position, read_header
from storage.errors import LedgerfoldError

_ACKS_PER_FRAME_MAX = 5000


def _record(position: Position) -> records_pb2.Position:
    return records_pb2.Position(ledger_id=position.ledger_id, entry_id=position.entry_id)


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
    ) -> None:
        super().__init__(
            connection, f"consumer of {opening.subscription!r} on topic {opening.topic}"
        )
        self.consumer_name: str = opening.consumer_name
        self._opening = opening
        self._inbox = inbox
        self._tell_disconnect = on_disconnect
        self._permits = Permits(queue_size)
        self._acks: deque[Position] = deque()
        self._ack_upto: Position | None = None
        self._requests: deque[bytes] = deque()

    # What the consumer asks for.

    def return_permits(self, messages: int) -> None:
        """So many messages were taken. From any thread."""
        self.loop.call_soon_threadsafe(self._taken, messages)

    def _taken(self, messages: int) -> None:
        self._permits.taken(messages)
        self._grant()

    def _grant(self) -> None:
        if self.is_connected and (more := self._permits.to_grant()):
            self._ask(data_pb2.SubscribeRequest(permits=more))

    def _ask(self, request: data_pb2.SubscribeRequest) -> None:
        self._requests.append(request.SerializeToString())
        self.wake()

    def acknowledge(self, position: Position) -> None:
        """From any thread. Several go together."""
        self._acks.append(position)
        if len(self._acks) == 1:
            self.loop.call_soon_threadsafe(self.wake)

    def acknowledge_cumulative(self, position: Position) -> None:
        """From any thread. Of several the last counts."""
        self._ack_upto = position
        self.loop.call_soon_threadsafe(self.wake)

    def redeliver(self, positions: Iterable[Position]) -> None:
        redeliver = data_pb2.Redeliver(positions=map(_record, positions))
        if self.is_connected:  # otherwise they come again anyway
            self._ask(data_pb2.SubscribeRequest(redeliver=redeliver))

    def redeliver_all(self) -> None:
        """Everything without an acknowledgement comes again; what waits here is dropped first."""
        self._permits.taken(self._inbox.clear())
        if self.is_connected:
            self._ask(data_pb2.SubscribeRequest(redeliver=data_pb2.Redeliver()))
            self._grant()

    def drop_waiting_acks(self) -> None:
        """After a seek: they are about what lies behind."""
        self._acks.clear()
        self._ack_upto = None

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
        self._requests.clear()
        self._grant()

    def _next_frame(self) -> bytes | None:
        # Acknowledgements first: then what a redelivery or a permit brings is less.
        ack = self._next_ack()
        if ack is not None:
            return bytes(data_pb2.SubscribeRequest(ack=ack).SerializeToString())
        return self._requests.popleft() if self._requests else None

    def _next_ack(self) -> data_pb2.Ack | None:
        upto, self._ack_upto = self._ack_upto, None
        if upto is not None:
            return data_pb2.Ack(positions=[_record(upto)], cumulative=True)
        positions: list[records_pb2.Position] = []
        while self._acks and len(positions) < _ACKS_PER_FRAME_MAX:
            positions.append(_record(self._acks.popleft()))
        return data_pb2.Ack(positions=positions) if positions else None

    def _on_response(self, response: bytes) -> None:
        if is_bulk(response):
            self._on_deliveries(decode_deliveries(response))
            return
        message = data_pb2.SubscribeResponse.FromString(response)
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
        self._permits.disconnected()
        self._permits.taken(self._inbox.clear())
        self._tell_disconnect()

    def _on_end(self, error: LedgerfoldError) -> None:
        self._inbox.fail(error)

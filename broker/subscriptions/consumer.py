"""A connected consumer: what waits to be sent to it.

The subscription pushes, whoever serves the stream takes. The queue is bounded in bytes by the room
that dispatch spends (broker/subscriptions/dispatcher.py): OUTGOING_BYTES_MAX and one entry more;
what was taken is one frame, and the next is taken when that one is on its way. Both count to what
all streams may hold (broker/ground/outgoing.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from ledgerfold.broker.ground.outgoing import Share
from ledgerfold.broker.ground.traffic import Peer, Traffic
from ledgerfold.broker.subscriptions.dispatcher import ConsumerState
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import LedgerfoldError, Overloaded

OUTGOING_BYTES_MAX = 2 * 1024 * 1024
FRAME_BYTES_MAX = 1024 * 1024
# To acknowledgements, for a client that takes none.
ANSWERS_MAX = 100_000


class Delivery(NamedTuple):
    """An entry on its way to a consumer."""

    position: Position
    messages: int
    entry: bytes
    redelivery_count: int


class Output(NamedTuple):
    """What to send next, in this order: the change, the acknowledgements, the deliveries."""

    active: bool | None
    acked_request_ids: list[int]
    deliveries: list[Delivery]


class Consumer:
    """Belongs to one stream. Made by Subscription.attach."""

    def __init__(
        self,
        state: ConsumerState,
        share: Share,
        *,
        read_compacted: bool,
        on_room: Callable[[], None],
    ) -> None:
        self.state, self.share = state, share
        # What of `share` is being sent.
        self._given_bytes = 0
        self.read_compacted = read_compacted
        self.traffic = Traffic()
        # Who opened the stream says it.
        self.peer = Peer()
        self._on_room = on_room
        self._deliveries: deque[Delivery] = deque()
        self._acked_request_ids: list[int] = []
        self._active: bool | None = None
        self._is_ended = False
        self._error: LedgerfoldError | None = None
        self._ready = asyncio.Event()

    @property
    def name(self) -> str:
        return self.state.name

    def push(self, delivery: Delivery) -> None:
        self._deliveries.append(delivery)
        self.share.hold(self.share.held + len(delivery.entry))
        self._ready.set()

    def answer_ack(self, request_id: int) -> None:
        """That acknowledgement is durable."""
        if len(self._acked_request_ids) >= ANSWERS_MAX:
            self.end(Overloaded(f"{ANSWERS_MAX} answers to acknowledgements were not taken."))
            return
        self._acked_request_ids.append(request_id)
        self._ready.set()

    def tell_active(self, active: bool) -> None:
        self._active = active
        self._ready.set()

    def end(self, error: LedgerfoldError | None) -> None:
        """The stream is to end, with `error` or quietly. What was not taken is dropped."""
        if not self._is_ended:
            self._is_ended, self._error = True, error
            self._deliveries.clear()
            self.share.hold(self._given_bytes)
            self._ready.set()

    def finish(self) -> None:
        """The client has nothing more to say: it is leaving."""
        self.end(None)

    def withdraw(self, positions: AbstractSet[Position] | None = None) -> set[Position]:
        """Takes back what was not sent yet, of `positions` or all, and its permits."""
        kept, withdrawn, size_bytes = deque[Delivery](), set[Position](), 0
        for delivery in self._deliveries:
            if positions is None or delivery.position in positions:
                self.state.refund(delivery.messages, len(delivery.entry))
                withdrawn.add(delivery.position)
                size_bytes += len(delivery.entry)
            else:
                kept.append(delivery)
        self._deliveries = kept
        self.share.hold(self.share.held - size_bytes)
        return withdrawn

    async def take(self) -> Output | None:
        """The next things to send: waits for them. None: the stream is to end.

        What it gave before has been sent then. Raises the error that the consumer was ended with.
        """
        self.share.sent()
        self.share.hold(self.share.held - self._given_bytes)
        self._given_bytes = 0
        while True:
            if self._is_ended:
                if self._error is not None:
                    raise self._error
                return None
            if self._deliveries or self._acked_request_ids or self._active is not None:
                return self._next_output()
            self._ready.clear()
            await self._ready.wait()

    def _next_output(self) -> Output:
        deliveries, size_bytes = list[Delivery](), 0
        while self._deliveries and size_bytes < FRAME_BYTES_MAX:
            delivery = self._deliveries.popleft()
            size_bytes += len(delivery.entry)
            self.traffic.messages += delivery.messages
            deliveries.append(delivery)
        self._given_bytes = size_bytes
        self.share.sending()
        output = Output(self._active, self._acked_request_ids, deliveries)
        self._active, self._acked_request_ids = None, []
        self.traffic.entries += len(deliveries)
        self.traffic.bytes += size_bytes
        had_room = self.state.room_bytes > 0
        self.state.room_bytes += size_bytes
        if not had_room and self.state.room_bytes > 0:
            self._on_room()
        return output

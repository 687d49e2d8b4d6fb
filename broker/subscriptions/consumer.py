"""A connected consumer: its queue of output.

The subscription adds frames to the queue; the stream handler takes one at a time, the next when the
previous one has been sent. Dispatch bounds the queue (broker/subscriptions/dispatcher.py): it has
at most OUTGOING_BYTES_MAX and one entry. Queued frames and the one being sent count towards the
limit of all streams (broker/common/outgoing.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from ledgerfold.broker.common.outgoing import Share
from ledgerfold.broker.common.traffic import Peer, Traffic
from ledgerfold.broker.subscriptions.dispatcher import ConsumerState, SubscriptionType
from ledgerfold.broker.subscriptions.key_owners import AUTO_SPLIT, KeySharedPolicy
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import LedgerfoldError, NotAllowed, Overloaded

OUTGOING_BYTES_MAX = 2 * 1024 * 1024
FRAME_BYTES_MAX = 1024 * 1024
# Unsent answers to acknowledgements, if a client reads none.
ANSWERS_MAX = 100_000


@dataclass(frozen=True)
class ConsumerOptions:
    """The options of a consumer. `priority` applies to Failover and Shared: the lowest is first."""

    type: SubscriptionType
    durable: bool = True
    read_compacted: bool = False
    name: str = ""
    priority: int = 0
    key_shared: KeySharedPolicy = AUTO_SPLIT

    def check(self) -> None:
        """Raises NotAllowed for options that no subscription supports, InvalidHashRanges."""
        self.key_shared.check()
        if self.read_compacted and not self.type.is_ordered:
            raise NotAllowed(
                f"Read-compacted needs an Exclusive or Failover subscription, not {self.type}."
            )

    def state(self, number: int) -> ConsumerState:
        """Returns the state of a new consumer, the subscription's `number`-th."""
        return ConsumerState(
            self.name or f"consumer-{number}",
            number,
            priority=self.priority,
            room_bytes=OUTGOING_BYTES_MAX,
            ranges=self.key_shared.ranges,
        )


class Delivery(NamedTuple):
    """An entry queued for a consumer."""

    position: Position
    messages: int
    entry: bytes
    redelivery_count: int


class Output(NamedTuple):
    """The next output, sent in this order: the change, the acknowledgements, the deliveries."""

    active: bool | None
    acked_request_ids: list[int]
    deliveries: list[Delivery]


class Consumer:
    """A consumer that belongs to one stream. Created by Subscription.attach()."""

    def __init__(
        self,
        state: ConsumerState,
        share: Share,
        *,
        read_compacted: bool,
        on_room: Callable[[], None],
    ) -> None:
        self.state, self.share = state, share
        # The part of `share` that is being sent.
        self._given_bytes = 0
        self.read_compacted = read_compacted
        self.traffic = Traffic()
        # Set by the stream handler. `takes_any_schema`: it decodes messages of any schema.
        self.peer, self.takes_any_schema = Peer(), False
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
        self.share.hold(self.share.size_bytes + len(delivery.entry))
        self._ready.set()

    def answer_ack(self, request_id: int) -> None:
        """Queues the answer to an acknowledgement, which is durable."""
        if len(self._acked_request_ids) >= ANSWERS_MAX:
            self.end(Overloaded(f"{ANSWERS_MAX} answers to acknowledgements are unread."))
            return
        self._acked_request_ids.append(request_id)
        self._ready.set()

    def notify_active(self, active: bool) -> None:
        self._active = active
        self._ready.set()

    def end(self, error: LedgerfoldError | None) -> None:
        """Makes the stream end, with `error` or without one.

        Output that was not taken is dropped.
        """
        if not self._is_ended:
            self._is_ended, self._error = True, error
            self._deliveries.clear()
            self.share.hold(self._given_bytes)
            self._ready.set()

    def finish(self) -> None:
        """Notes that the client has finished sending: it is leaving."""
        self.end(None)

    def withdraw(self, positions: AbstractSet[Position] | None = None) -> set[Position]:
        """Takes back unsent deliveries, of `positions` or all, and their permits."""
        remaining, withdrawn, size_bytes = deque[Delivery](), set[Position](), 0
        for delivery in self._deliveries:
            if positions is None or delivery.position in positions:
                self.state.refund(delivery.messages, len(delivery.entry))
                withdrawn.add(delivery.position)
                size_bytes += len(delivery.entry)
            else:
                remaining.append(delivery)
        self._deliveries = remaining
        self.share.hold(self.share.size_bytes - size_bytes)
        return withdrawn

    async def take(self) -> Output | None:
        """Waits for and returns the next output; None if the stream is to end.

        Everything returned before has been sent by then. Raises the error of end().
        """
        self.share.sent()
        self.share.hold(self.share.size_bytes - self._given_bytes)
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

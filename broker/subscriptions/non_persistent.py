"""The subscriptions of a non-persistent topic: a message is delivered at once, or never.

Each message goes to one consumer of each subscription, which the dispatcher of its type chooses
(dispatcher.py). If that consumer has no permits or no room, or nobody is connected, the message is
dropped for the subscription, and counted. Nothing is remembered: acknowledgements and requests for
redelivery have no effect, and there is no backlog.

Rules, as in Pulsar:

* Types, and who may connect, are those of other subscriptions (subscription.py).
* Without consumers, a durable subscription stays until it is deleted or its topic ends; a
  non-durable one ends.

Bounds: a consumer's queue has the same bounds as on other topics (consumer.py). While the broker
has no room for unsent bytes (broker/common/outgoing.py), messages are dropped.

Source: Pulsar's NonPersistentSubscription and NonPersistentDispatcher.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ledgerfold.broker.common.clock import Clock
from ledgerfold.broker.common.outgoing import Outgoing
from ledgerfold.broker.common.traffic import MessageRate, Traffic
from ledgerfold.broker.subscriptions.consumer import (
    Consumer,
    ConsumerOptions,
    Delivery,
)
from ledgerfold.broker.subscriptions.dispatcher import (
    ConsumerState,
    Dispatcher,
    SubscriptionType,
)
from ledgerfold.broker.subscriptions.key_owners import AUTO_SPLIT
from ledgerfold.broker.subscriptions.session import dispatcher_of, notify_active, why_busy
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import LedgerfoldError, SubscriptionBusy
from ledgerfold.storage.ledger import StoredEntry

# The position of every message, as in Pulsar: none is stored anywhere.
EVERYWHERE = Position(0, 0)


class NonPersistentSubscription:
    """A subscription in memory. `on_unused`: called when it has ended by itself."""

    def __init__(
        self,
        topic: str,
        name: str,
        clock: Clock,
        outgoing: Outgoing,
        *,
        is_durable: bool,
        on_unused: Callable[[NonPersistentSubscription], object],
    ) -> None:
        self.topic, self.name, self.is_durable = topic, name, is_durable
        self.created_ms = clock.now_ms()
        self._clock, self._outgoing, self._on_unused = clock, outgoing, on_unused
        # The total of disconnected consumers; messages that no consumer got.
        self.traffic_before, self.dropped = Traffic(), MessageRate(self.created_ms)
        self._type: SubscriptionType | None = None
        self._key_shared = AUTO_SPLIT
        # The dispatcher of the present type; replaced when the last consumer has left.
        self._dispatcher: Dispatcher | None = None
        # The consumers by number, in the order of connection.
        self._consumers: dict[int, Consumer] = {}
        self._last_number = 0
        self._closed: LedgerfoldError | None = None

    # State

    @property
    def type(self) -> SubscriptionType | None:
        """The current type; None while no consumer is connected."""
        return self._type if self._consumers else None

    @property
    def last_type(self) -> SubscriptionType | None:
        """The type of the last consumer; None if there was none."""
        return self._type

    @property
    def consumers(self) -> list[Consumer]:
        return list(self._consumers.values())

    @property
    def dispatcher(self) -> Dispatcher | None:
        """The dispatcher of the connected consumers; None if there are none."""
        return self._dispatcher

    @property
    def active_consumer(self) -> Consumer | None:
        active = None if self._dispatcher is None else self._dispatcher.active
        return None if active is None else self._consumers[active.number]

    @property
    def incarnation(self) -> int:
        """A number that differs from that of an earlier subscription of the same name."""
        return self.created_ms

    def backlog_entries(self) -> int:
        return 0

    # Consumers

    def attach(self, options: ConsumerOptions) -> Consumer:
        """Connects a consumer without permits.

        Raises SubscriptionBusy, InvalidHashRanges, or the error that it was closed with.
        """
        dispatcher = self._joined(options)
        self._type, self._key_shared = options.type, options.key_shared
        before, self._dispatcher = self.active_consumer, dispatcher
        self._last_number += 1
        state = options.state(self._last_number)
        consumer = self._consumers[self._last_number] = Consumer(
            state, self._outgoing.share(), read_compacted=False, on_room=lambda: None
        )
        dispatcher.add(state)
        self._notify_active(before, joined=consumer)
        return consumer

    def _joined(self, options: ConsumerOptions) -> Dispatcher:
        """Returns the dispatcher for a new consumer. Raises the reason if the consumer is
        refused.
        """
        if self._closed is not None:
            raise self._closed
        if self._dispatcher is None:
            return dispatcher_of(options.type, self.topic, options.key_shared)
        assert self._type is not None
        why = why_busy(self._type, self._key_shared, options)
        if why is not None:
            raise SubscriptionBusy(self.topic, self.name, why)
        self._dispatcher.check(options.key_shared.ranges)
        return self._dispatcher

    def detach(self, consumer: Consumer) -> None:
        """Disconnects the consumer; its unsent messages are lost. Idempotent."""
        if not self._is_connected(consumer) or self._dispatcher is None:
            return
        before = self.active_consumer
        self._dispatcher.remove(consumer.state)
        del self._consumers[consumer.state.number]
        self.traffic_before = self.traffic_before.plus(consumer.traffic)
        consumer.end(None)
        self._notify_active(before)
        if not self._consumers:
            self._dispatcher = None
            if not self.is_durable:
                self._on_unused(self)

    def add_permits(self, consumer: Consumer, messages: int) -> None:
        if self._is_connected(consumer):
            consumer.state.permits += messages

    def acknowledge(
        self,
        consumer: Consumer,
        positions: Sequence[Position],
        *,
        cumulative: bool = False,
        request_id: int = 0,
    ) -> None:
        """Answers, and has no other effect."""
        if request_id and self._is_connected(consumer):
            consumer.answer_ack(request_id)

    def redeliver(self, consumer: Consumer, positions: Collection[Position]) -> None:
        """Has no effect: delivered messages no longer exist."""

    def close(self, error: LedgerfoldError) -> None:
        """Ends all consumers with `error`; no other may connect."""
        self._closed = error
        for consumer in self.consumers:
            consumer.end(error)
            self.detach(consumer)

    # Delivery

    def deliver(self, entry: StoredEntry, key: Callable[[], bytes]) -> None:
        """Delivers an entry to one consumer, or drops it. `key`: returns the key for Key_Shared."""
        messages, size_bytes = entry.header.message_count, len(entry.data)
        taker = self._taker(key)
        if taker is None or not self._outgoing.has_room:
            self.dropped.count(messages, self._clock.now_ms())
            return
        taker.spend(messages, size_bytes)
        self._consumers[taker.number].push(Delivery(EVERYWHERE, messages, entry.data, 0))

    def _taker(self, key: Callable[[], bytes]) -> ConsumerState | None:
        dispatcher = self._dispatcher
        if dispatcher is None:
            return None
        has_slots = self._type is SubscriptionType.KEY_SHARED
        return dispatcher.taker(dispatcher.slot_of(key()) if has_slots else 0)

    def _is_connected(self, consumer: Consumer) -> bool:
        return self._consumers.get(consumer.state.number) is consumer

    def _notify_active(self, before: Consumer | None, joined: Consumer | None = None) -> None:
        if self._type is SubscriptionType.FAILOVER:
            notify_active(self.consumers, before, self.active_consumer, joined)

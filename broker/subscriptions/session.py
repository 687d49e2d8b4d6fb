"""A session of a subscription, from the first consumer's connection until the last one leaves.

It has one type, one dispatcher and one pump, and connects them: when a dispatcher asks for a
rewind, the consumer's unsent deliveries are taken back first, with their permits.

When another consumer of a Failover subscription becomes active, or the first one connects, delivery
pauses for `activeConsumerFailoverDelayTimeMillis`, as in Pulsar: what was in flight can be
acknowledged meanwhile, and is then not delivered twice. After the delay reading restarts at the
cursor, and all consumers are notified. A further change within the delay does not prolong it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from ledgerfold.broker.common.clock import Timer
from ledgerfold.broker.subscriptions.consumer import Consumer, ConsumerOptions
from ledgerfold.broker.subscriptions.delayed import DelayedEntries
from ledgerfold.broker.subscriptions.delivery import Pump, Source
from ledgerfold.broker.subscriptions.dispatcher import (
    ConsumerState,
    Dispatcher,
    SingleActiveDispatcher,
    SubscriptionType,
)
from ledgerfold.broker.subscriptions.key_owners import KeySharedPolicy
from ledgerfold.broker.subscriptions.key_shared import KeySharedDispatcher
from ledgerfold.broker.subscriptions.shared import SharedDispatcher
from ledgerfold.storage.entry import Position


def dispatcher_of(
    type_: SubscriptionType,
    topic: str,
    key_shared: KeySharedPolicy,
    delayed: DelayedEntries | None = None,
) -> Dispatcher:
    if type_ is SubscriptionType.SHARED:
        return SharedDispatcher(delayed)
    if type_ is SubscriptionType.KEY_SHARED:
        return KeySharedDispatcher(key_shared, delayed=delayed)
    return SingleActiveDispatcher(topic)


class Session:
    """The consumers of a subscription, their dispatcher and their pump."""

    def __init__(
        self,
        type_: SubscriptionType,
        source: Source,
        key_shared: KeySharedPolicy,
        consumers: Callable[..., Consumer],
    ) -> None:
        """Begins a session. `consumers`: creates a consumer, as the class does."""
        self.type, self.key_shared, self._outgoing = type_, key_shared, source.outgoing
        self._consumers = consumers
        self._clock, self._delay_ms = source.clock, source.rules.failover_delay_ms
        # Runs while delivery pauses for the delay.
        self._pause: Timer | None = None
        delayed = DelayedEntries(places=source.outgoing.delayed, on_room=self._wake)
        self.dispatcher = dispatcher_of(type_, source.topic, key_shared, delayed)
        self.pump = Pump(source, self.dispatcher, looks_inside=not type_.is_ordered)
        self.consumers: list[Consumer] = []

    def _wake(self) -> None:
        self.pump.wake()

    @property
    def active(self) -> Consumer | None:
        return self.pump.consumer_of(self.dispatcher.active)

    def connect(self, state: ConsumerState, *, read_compacted: bool) -> Consumer:
        """Connects a new consumer."""
        share, wake = self._outgoing.share(), self.pump.wake
        consumer = self._consumers(state, share, read_compacted=read_compacted, on_room=wake)
        self._add(consumer)
        self.pump.wake()
        return consumer

    def stop(self) -> None:
        """Ends the delivery: the last consumer has left."""
        if self._pause is not None:
            self._pause.cancel()
        self.pump.stop()

    def _add(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)
        self.pump.add(consumer)
        rewind = self.dispatcher.add(consumer.state)
        if consumer is not self.active and self.type is SubscriptionType.FAILOVER:
            consumer.notify_active(False)
        if rewind or len(self.consumers) == 1:
            self._change_over()

    def remove(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        rewind = self.dispatcher.remove(consumer.state)
        self.pump.remove(consumer)
        if rewind:
            # Perhaps a passive consumer left, and the partition moves to another one.
            self._change_over()

    def _change_over(self) -> None:
        """Serves the consumer that has become active, at once or after the delay."""
        if self.type is not SubscriptionType.FAILOVER or self._delay_ms <= 0:
            self._serve_active()
        elif self._pause is None:
            self.dispatcher.is_paused = True
            self._pause = self._clock.call_later(self._delay_ms / 1000, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        self.dispatcher.is_paused = False
        self._serve_active()

    def _serve_active(self) -> None:
        for each in self.consumers:
            each.withdraw()
        self._rewind()
        if self.type is SubscriptionType.FAILOVER:
            for each in self.consumers:
                each.notify_active(each is self.active)

    def redeliver(self, consumer: Consumer, positions: AbstractSet[Position]) -> None:
        requested = None if self.type.is_ordered or not positions else positions
        unsent = consumer.withdraw(requested)
        if self.dispatcher.redeliver(consumer.state, requested, unsent):
            self._rewind()

    def _rewind(self) -> None:
        active = self.active
        self.pump.rewind(read_compacted=active is not None and active.read_compacted)


def why_busy(
    type_: SubscriptionType, key_shared: KeySharedPolicy, options: ConsumerOptions
) -> str | None:
    """Returns why a consumer cannot join those of a subscription of that type; None: it can."""
    if type_ is not options.type:
        return f"it is currently {type_}. Use that type, or close its consumers."
    if type_ is SubscriptionType.EXCLUSIVE:
        return "it is Exclusive and has a consumer. Close that one, or use another type."
    if not key_shared.agrees_with(options.key_shared):
        return "its consumers share keys in another way. Use theirs, or close them."
    return None


def notify_active(
    consumers: Sequence[Consumer],
    before: Consumer | None,
    active: Consumer | None,
    joined: Consumer | None,
) -> None:
    """Tells consumers of a Failover subscription which of them is active now, if that changed."""
    if joined is not None and joined is not active:
        joined.notify_active(False)
    if active is not before:
        if before in consumers and before is not None:
            before.notify_active(False)
        if active is not None:
            active.notify_active(True)

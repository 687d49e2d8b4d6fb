"""A session of a subscription, from the first consumer's connection until the last one leaves.

It has one type, one dispatcher and one pump, and connects them: when a dispatcher asks for a
rewind, the consumer's unsent deliveries are taken back first, with their permits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from ledgerfold.broker.common.outgoing import Share
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


class ConsumerKind(Protocol):
    """Creates consumers: the class Consumer, or a replacement."""

    def __call__(
        self,
        state: ConsumerState,
        share: Share,
        *,
        read_compacted: bool,
        on_room: Callable[[], None],
    ) -> Consumer: ...


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
        consumers: ConsumerKind,
    ) -> None:
        self.type, self.key_shared, self._outgoing = type_, key_shared, source.outgoing
        self._consumers = consumers
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

    def _add(self, consumer: Consumer) -> None:
        before = self.active
        self.consumers.append(consumer)
        self.pump.add(consumer)
        rewind = self.dispatcher.add(consumer.state)
        if rewind and before is not None:
            before.withdraw()
        if rewind or len(self.consumers) == 1:
            self._rewind()
        self._notify_active(before, joined=consumer)

    def remove(self, consumer: Consumer) -> None:
        before = self.active
        self.consumers.remove(consumer)
        rewind = self.dispatcher.remove(consumer.state)
        self.pump.remove(consumer)
        if rewind:
            if before is not None:
                # Perhaps a passive consumer left, and the partition moves to another one.
                before.withdraw()
            self._rewind()
        self._notify_active(before)

    def redeliver(self, consumer: Consumer, positions: AbstractSet[Position]) -> None:
        requested = None if self.type.is_ordered or not positions else positions
        unsent = consumer.withdraw(requested)
        if self.dispatcher.redeliver(consumer.state, requested, unsent):
            self._rewind()

    def _rewind(self) -> None:
        active = self.active
        self.pump.rewind(read_compacted=active is not None and active.read_compacted)

    def _notify_active(self, before: Consumer | None, joined: Consumer | None = None) -> None:
        if self.type is SubscriptionType.FAILOVER:
            notify_active(self.consumers, before, self.active, joined)


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

"""A session of a subscription: from the first consumer's coming to the last one's leaving.

It has one type, one dispatcher and one pump, and does what connects them: when a dispatcher asks
for a rewind, what waits in the consumer's queue is taken back first, and its permits with it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from ledgerfold.broker.ground.outgoing import Outgoing
from ledgerfold.broker.policies.profiles import Emulation
from ledgerfold.broker.subscriptions.consumer import Consumer
from ledgerfold.broker.subscriptions.cursor import Cursor
from ledgerfold.broker.subscriptions.delivery import Pump
from ledgerfold.broker.subscriptions.dispatcher import (
    ConsumerState,
    Dispatcher,
    SingleActiveDispatcher,
    SubscriptionType,
)
from ledgerfold.broker.subscriptions.key_shared import KeySharedDispatcher
from ledgerfold.broker.subscriptions.reading import LogReader
from ledgerfold.broker.subscriptions.shared import SharedDispatcher
from ledgerfold.storage.entry import Position


def _dispatcher(type_: SubscriptionType, partition: int) -> Dispatcher:
    if type_ is SubscriptionType.SHARED:
        return SharedDispatcher()
    if type_ is SubscriptionType.KEY_SHARED:
        return KeySharedDispatcher()
    return SingleActiveDispatcher(partition)


class Session:
    """`on_passed`: the cursor moved by reading alone. `on_error`: the pump ended with it.

    `partition`: the topic's index, -1 when it is no partition.
    """

    def __init__(
        self,
        type_: SubscriptionType,
        log: LogReader,
        cursor: Cursor,
        *,
        partition: int,
        is_durable: bool,
        emulation: Callable[[], Emulation],
        outgoing: Outgoing,
        on_passed: Callable[[], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self.type, self._outgoing = type_, outgoing
        self.dispatcher = _dispatcher(type_, partition)
        self.pump = Pump(
            log,
            cursor,
            self.dispatcher,
            is_durable=is_durable,
            emulation=emulation,
            by_key=type_ is SubscriptionType.KEY_SHARED,
            share=outgoing.share(),
            on_passed=on_passed,
            on_error=on_error,
        )
        self.consumers: list[Consumer] = []

    @property
    def active(self) -> Consumer | None:
        return self.pump.consumer_of(self.dispatcher.active)

    def connect(self, state: ConsumerState, *, read_compacted: bool) -> Consumer:
        """A new consumer of it."""
        share, wake = self._outgoing.share(), self.pump.wake
        consumer = Consumer(state, share, read_compacted=read_compacted, on_room=wake)
        self._add(consumer)
        self.pump.wake()
        return consumer

    def _add(self, consumer: Consumer) -> None:
        before = self.active
        self.consumers.append(consumer)
        self.pump.add(consumer)
        rewind = self.dispatcher.add(consumer.state)
        if rewind and before is not None:
            self._rewind(before.withdraw())
        elif len(self.consumers) == 1:
            self._rewind(frozenset())
        self._tell_active(before, joined=consumer)

    def remove(self, consumer: Consumer) -> None:
        before = self.active
        unsent = consumer.withdraw()
        self.consumers.remove(consumer)
        rewind = self.dispatcher.remove(consumer.state, unsent)
        self.pump.remove(consumer)
        if rewind:
            if before is not None and before is not consumer:
                # A passive one left, and the partition goes to another one all the same.
                unsent = before.withdraw()
            self._rewind(unsent)
        self._tell_active(before)

    def redeliver(self, consumer: Consumer, positions: frozenset[Position]) -> None:
        if self.type.is_ordered and consumer is not self.active:
            return
        asked = None if self.type.is_ordered or not positions else positions
        unsent = consumer.withdraw(asked)
        if self.dispatcher.redeliver(consumer.state, asked, unsent):
            self._rewind(unsent)

    def _rewind(self, unsent: AbstractSet[Position]) -> None:
        active = self.active
        if self.type.is_ordered:
            self.dispatcher.rewound(unsent)
        self.pump.rewind(read_compacted=active is not None and active.read_compacted)

    def _tell_active(self, before: Consumer | None, joined: Consumer | None = None) -> None:
        if self.type is not SubscriptionType.FAILOVER:
            return
        active = self.active
        if joined is not None and joined is not active:
            joined.tell_active(False)
        if active is not before:
            if before in self.consumers and before is not None:
                before.tell_active(False)
            if active is not None:
                active.tell_active(True)

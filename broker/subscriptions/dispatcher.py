"""Dispatch: who gets which entry. Pure: no task, no gRPC, no clock, no entry bytes.

A subscription reads candidates from the log and asks its dispatcher. This module has the words
that all types share, and the two ordered types:

* **Exclusive**: one consumer. **Failover**: the active one is that with the lowest priority
  number, then the one that connected first; the others wait and are told so. On partition n of a
  topic it is the n-th of those with the lowest number, by name and round and round: so partitions
  spread over consumers (Pulsar's AbstractDispatcherSingleActiveConsumer).
* Order is kept by rewinding: after a redelivery, or when another consumer becomes active, reading
  starts again at the cursor, as in Pulsar's PersistentDispatcherSingleActiveConsumer. So nothing is
  kept per delivered entry, however late acknowledgements come.

broker/subscriptions/shared.py has Shared, broker/subscriptions/key_shared.py has Key_Shared.

Permits are messages: while a consumer has any, it gets the next entry, which costs all its messages
at once (permits may become negative). Room is bytes of the consumer's outgoing queue and is spent
the same way, so that a consumer that does not read costs a bounded amount of memory.

    >>> dispatcher = SingleActiveDispatcher()
    >>> consumer = ConsumerState("c", 1, permits=5, room_bytes=100)
    >>> dispatcher.add(consumer)
    False
    >>> decision = dispatcher.assign(
    ...     [Candidate(Position(1, n), messages=3, size_bytes=10) for n in range(4)])
    >>> decision.taken, consumer.permits
    (2, -1)
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from ledgerfold.storage.entry import Position

# Pulsar's maxUnackedMessagesPerConsumer and maxUnackedMessagesPerSubscription. They bound what
# Shared and Key_Shared remember; dispatch pauses above them.
UNACKED_PER_CONSUMER_MAX = 50_000
UNACKED_PER_SUBSCRIPTION_MAX = 200_000
# How many rewinds are told apart when redeliveries are counted.
_REWINDS_MAX = 64


class SubscriptionType(StrEnum):
    """Spelled as in Pulsar's stats."""

    EXCLUSIVE = "Exclusive"
    SHARED = "Shared"
    FAILOVER = "Failover"
    KEY_SHARED = "Key_Shared"

    @property
    def is_ordered(self) -> bool:
        """One consumer at a time: cumulative acknowledgement and read-compacted are allowed."""
        return self in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)


class Candidate(NamedTuple):
    """An entry that was read and may be dispatched. `slot`: what its key hashes to."""

    position: Position
    messages: int
    size_bytes: int
    slot: int = 0


class Unsettled(NamedTuple):
    """What is remembered of an entry that was dispatched and is not acknowledged."""

    messages: int
    redeliveries: int
    slot: int


@dataclass(eq=False, slots=True)
class ConsumerState:
    """A consumer as dispatch sees it. `number` rises in order of connecting."""

    name: str
    number: int
    priority: int = 0
    permits: int = 0
    room_bytes: int = 0
    unacked_messages: int = 0
    # Shared and Key_Shared only.
    pending: dict[Position, Unsettled] = field(default_factory=dict)

    @property
    def can_take(self) -> bool:
        return (
            self.permits > 0
            and self.room_bytes > 0
            and self.unacked_messages < UNACKED_PER_CONSUMER_MAX
        )

    def spend(self, messages: int, size_bytes: int) -> None:
        self.permits -= messages
        self.room_bytes -= size_bytes

    def refund(self, messages: int, size_bytes: int) -> None:
        """Of an entry that was assigned and taken back before it was sent."""
        self.permits += messages
        self.room_bytes += size_bytes


class Assignment(NamedTuple):
    """Candidate number `at` goes to `consumer`."""

    at: int
    consumer: ConsumerState
    redeliveries: int


class Decision(NamedTuple):
    """The first `taken` candidates are dealt with; the rest is to be read again."""

    assignments: list[Assignment]
    taken: int


class Budget(NamedTuple):
    """How much may be read on: messages and bytes. No messages: nothing."""

    messages: int
    size_bytes: int


def budget_of(consumers: Sequence[ConsumerState]) -> Budget:
    able = [each for each in consumers if each.can_take]
    return Budget(sum(each.permits for each in able), sum(each.room_bytes for each in able))


class Dispatcher(Protocol):
    """What a subscription asks. Methods that answer a bool say: rewind, and call `rewound`."""

    consumers: list[ConsumerState]

    @property
    def active(self) -> ConsumerState | None:
        """The one that gets everything, where there is such a one."""
        ...

    def add(self, consumer: ConsumerState) -> bool: ...

    def remove(self, consumer: ConsumerState, unsent: AbstractSet[Position]) -> bool:
        """`unsent`: assigned to it, but never sent; not counted as a delivery."""
        ...

    def budget(self) -> Budget: ...

    def assign(self, candidates: Sequence[Candidate]) -> Decision:
        """Newly read entries, in order."""
        ...

    def replay_positions(self) -> list[Position]:
        """What is to be delivered again, or was held back, and can be dispatched now. In order."""
        ...

    def assign_replayed(self, candidates: Sequence[Candidate]) -> list[Assignment]:
        """Entries read for replay_positions."""
        ...

    def settle(self, consumer: ConsumerState | None, position: Position) -> None:
        """Acknowledged, most likely by the `consumer` that has it; not delivered again."""
        ...

    def settle_cumulative(self, position: Position) -> None: ...

    def pass_over(self, position: Position) -> None:
        """Nothing at or below it is delivered again, acknowledged or not."""
        ...

    def redeliver(
        self,
        consumer: ConsumerState,
        positions: AbstractSet[Position] | None,
        unsent: AbstractSet[Position],
    ) -> bool:
        """`positions` None: all that `consumer` has not acknowledged."""
        ...

    def rewound(self, unsent: AbstractSet[Position]) -> None:
        """Reading starts again at the cursor; only ordered types are rewound.

        `unsent`: of what the consumer that was active had been assigned.
        """
        ...


class SingleActiveDispatcher:
    """Exclusive and Failover. Whether a second consumer may join is the subscription's business."""

    def __init__(self, partition: int = -1) -> None:
        self.consumers: list[ConsumerState] = []
        self._partition = partition
        # The first position that was never sent, or None before anything was since the last rewind.
        self._sent_end: Position | None = None
        # Entries before the key were sent and taken back that many times.
        self._rewinds: dict[Position, int] = {}

    @property
    def active(self) -> ConsumerState | None:
        if self._partition < 0 or not self.consumers:
            return min(self.consumers, key=lambda each: (each.priority, each.number), default=None)
        lowest = min(each.priority for each in self.consumers)
        able = [each for each in self.consumers if each.priority == lowest]
        able.sort(key=lambda each: (each.name, each.number))
        return able[self._partition % len(able)]

    def add(self, consumer: ConsumerState) -> bool:
        before = self.active
        self.consumers.append(consumer)
        return before is not None and self.active is not before

    def remove(self, consumer: ConsumerState, unsent: AbstractSet[Position]) -> bool:
        before = self.active
        self.consumers.remove(consumer)
        return bool(self.consumers) and self.active is not before

    def budget(self) -> Budget:
        return Budget(0, 0) if self.active is None else budget_of([self.active])

    def assign(self, candidates: Sequence[Candidate]) -> Decision:
        active, assignments = self.active, list[Assignment]()
        if active is None:
            return Decision(assignments, 0)
        for index, candidate in enumerate(candidates):
            if not active.can_take:
                break
            active.spend(candidate.messages, candidate.size_bytes)
            self._sent_end = candidate.position.next
            assignments.append(Assignment(index, active, self._redeliveries(candidate.position)))
        return Decision(assignments, len(assignments))

    def replay_positions(self) -> list[Position]:
        return []

    def assign_replayed(self, candidates: Sequence[Candidate]) -> list[Assignment]:
        raise AssertionError("Ordered types rewind; they replay nothing.")

    def settle(self, consumer: ConsumerState | None, position: Position) -> None:
        """Nothing is remembered of single entries."""

    def settle_cumulative(self, position: Position) -> None:
        for end in [end for end in self._rewinds if end <= position]:
            del self._rewinds[end]

    def pass_over(self, position: Position) -> None:
        self.settle_cumulative(position)

    def redeliver(
        self,
        consumer: ConsumerState,
        positions: AbstractSet[Position] | None,
        unsent: AbstractSet[Position],
    ) -> bool:
        # As in Pulsar: single entries cannot be delivered again without breaking the order.
        return consumer is self.active

    def rewound(self, unsent: AbstractSet[Position]) -> None:
        end, self._sent_end = self._sent_end, None
        if unsent:
            end = min(unsent)
        if end is None:
            return
        self._rewinds[end] = self._rewinds.get(end, 0) + 1
        if len(self._rewinds) > _REWINDS_MAX:
            lowest, next_lowest = sorted(self._rewinds)[:2]
            self._rewinds[lowest] += self._rewinds.pop(next_lowest)

    def _redeliveries(self, position: Position) -> int:
        return sum(times for end, times in self._rewinds.items() if position < end)

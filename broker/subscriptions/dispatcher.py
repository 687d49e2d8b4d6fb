"""Dispatch: the assignment of entries to consumers. Pure.

A subscription reads candidates from the log and asks its dispatcher. This module has the terms that
all types share, and the two ordered types:

* **Exclusive**: one consumer. **Failover**: one of those with the lowest priority number is active;
  the others wait and are notified. On partition n of a topic, the active one is the n-th by name,
  modulo their count, so that partitions are spread over consumers. On other topics, a
  consistent-hash ring of their names decides (Pulsar's AbstractDispatcherSingleActiveConsumer).
* Order is kept by rewinding: after a redelivery, or when another consumer becomes active, reading
  restarts at the cursor, as in Pulsar's PersistentDispatcherSingleActiveConsumer. So no state is
  kept per delivered entry, even if acknowledgements arrive late, and redeliveries are not counted.

broker/subscriptions/shared.py has Shared, broker/subscriptions/key_shared.py has Key_Shared.

Permits are messages: while a consumer has any, it gets the next entry, which costs all its messages
at once (permits may become negative). Room is bytes of the consumer's outgoing queue and is spent
the same way, so that a consumer that does not read uses a bounded amount of memory.

  >>> dispatcher = SingleActiveDispatcher()
  >>> consumer = ConsumerState("c", 1, permits=5, room_bytes=100)
  >>> dispatcher.add(consumer)
  False
  >>> decision = dispatcher.assign(
  ...     [Candidate(Position(1, n), messages=3, size_bytes=10) for n in range(4)])
  >>> decision.candidate_count, consumer.permits
  (2, -1)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import mmh3

from ledgerfold.broker.common.settings import (
    UNACKED_PER_CONSUMER_MAX,
    UNACKED_PER_SUBSCRIPTION_MAX,
)
from ledgerfold.storage.entry import Position
from ledgerfold.storage.partition_names import partition_index

# Of a consumer, on the ring: Pulsar's CONSUMER_CONSISTENT_HASH_REPLICAS.
_POINTS_PER_CONSUMER = 100


class UnackedLimits(NamedTuple):
    """The numbers of unacknowledged messages at which dispatch pauses: they bound what Shared and
    Key_Shared remember. 0: no limit.
    """

    of_consumer: int = UNACKED_PER_CONSUMER_MAX
    of_subscription: int = UNACKED_PER_SUBSCRIPTION_MAX


class HashRange(NamedTuple):
    """Slots from `first` to `last`, both inclusive."""

    first: int
    last: int


class SubscriptionType(StrEnum):
    """The subscription types, spelled as in Pulsar's stats."""

    EXCLUSIVE = "Exclusive"
    SHARED = "Shared"
    FAILOVER = "Failover"
    KEY_SHARED = "Key_Shared"

    @property
    def is_ordered(self) -> bool:
        """Returns whether one consumer at a time is served, which allows cumulative acknowledgement
        and read-compacted.
        """
        return self in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)


class Candidate(NamedTuple):
    """An entry that was read and may be dispatched.

    `slot`: the hash slot of its key. `deliver_at_ms`: the time before which it is not delivered; 0:
    none.
    """

    position: Position
    messages: int
    size_bytes: int
    slot: int = 0
    deliver_at_ms: int = 0


class Unsettled(NamedTuple):
    """The state of an entry that was dispatched and is not acknowledged."""

    messages: int
    redeliveries: int
    slot: int


@dataclass(eq=False, slots=True)
class ConsumerState:
    """The dispatch state of a consumer. `number` rises in connection order."""

    name: str
    number: int
    priority: int = 0
    permits: int = 0
    room_bytes: int = 0
    unacked_messages: int = 0
    # It must acknowledge before it gets more.
    is_blocked: bool = False
    # Key_Shared, sticky: the slots that it owns (key_owners.py).
    ranges: tuple[HashRange, ...] = ()
    # Shared and Key_Shared only.
    pending: dict[Position, Unsettled] = field(default_factory=dict)

    @property
    def can_take(self) -> bool:
        return self.permits > 0 and self.room_bytes > 0 and not self.is_blocked

    def spend(self, messages: int, size_bytes: int) -> None:
        self.permits -= messages
        self.room_bytes -= size_bytes

    def refund(self, messages: int, size_bytes: int) -> None:
        """Returns the cost of an entry that was assigned and taken back before it was sent."""
        self.permits += messages
        self.room_bytes += size_bytes


class Assignment(NamedTuple):
    """The assignment of candidate number `at` to `consumer`."""

    at: int
    consumer: ConsumerState
    redeliveries: int


class Decision(NamedTuple):
    """The assignments of one call.

    Candidates after the first `candidate_count` must be read again.
    """

    assignments: list[Assignment]
    candidate_count: int


class Budget(NamedTuple):
    """The messages and bytes that may be read next. 0 messages: read nothing."""

    messages: int
    size_bytes: int


def budget_of(consumers: Sequence[ConsumerState]) -> Budget:
    able = [each for each in consumers if each.can_take]
    return Budget(sum(each.permits for each in able), sum(each.room_bytes for each in able))


class Dispatcher(ABC):
    """The base of all dispatchers. A True result means: rewind."""

    def __init__(self) -> None:
        self.consumers: list[ConsumerState] = []
        # Nothing is assigned for now: the active consumer has changed (session.py).
        self.is_paused = False

    def slot_of(self, key: bytes) -> int:
        """Returns the hash slot of a key, for Key_Shared."""
        return 0

    def check(self, ranges: Sequence[HashRange]) -> None:
        """Checks that a consumer may have these slots. Raises InvalidHashRanges."""
        return

    @property
    def active(self) -> ConsumerState | None:
        """The consumer that gets all entries, for the ordered types."""
        return None

    @abstractmethod
    def taker(self, slot: int) -> ConsumerState | None:
        """Returns the consumer that gets a new entry of this slot; None: no consumer accepts it
        now.
        """

    @abstractmethod
    def add(self, consumer: ConsumerState) -> bool: ...

    @abstractmethod
    def remove(self, consumer: ConsumerState) -> bool: ...

    @abstractmethod
    def budget(self) -> Budget: ...

    @abstractmethod
    def assign(self, candidates: Sequence[Candidate]) -> Decision:
        """Assigns newly read entries, in order."""

    @property
    def is_blocked(self) -> bool:
        """Returns whether the consumers must acknowledge before any gets more."""
        return False

    def limit(self, limits: UnackedLimits) -> None:
        """Applies limits of unacknowledged messages. The ordered types have none."""
        return

    @property
    def waiting(self) -> int:
        """The number of entries in the replay queue."""
        return 0

    @property
    def delayed(self) -> int:
        """The number of entries that are held back until they are due."""
        return 0

    @property
    def next_due_ms(self) -> int | None:
        """The time when the next delayed entry is due; None if there is none."""
        return None

    def release(self, now_ms: int, is_acknowledged: Callable[[Position], bool]) -> bool:
        """Makes some entries that are due, and not acknowledged, ready for replay.

        Returns whether it can be called again for more.
        """
        return False

    def close(self) -> None:
        """Ends the dispatch: the last consumer has left."""
        return

    def replay_positions(self) -> list[Position]:
        """Returns, in order, entries to redeliver, or held back before, that can be dispatched now.

        In order.
        """
        return []

    def assign_replayed(self, candidates: Sequence[Candidate]) -> list[Assignment]:
        """Assigns entries read for replay_positions()."""
        raise AssertionError("Ordered types rewind; they replay nothing.")

    @abstractmethod
    def settle(self, consumer: ConsumerState | None, position: Position) -> None:
        """Records an acknowledgement, usually by the `consumer` that has the entry."""

    @abstractmethod
    def pass_over(self, position: Position) -> None:
        """Prevents redelivery of entries at or below `position`, acknowledged or not."""

    @abstractmethod
    def redeliver(
        self,
        consumer: ConsumerState,
        positions: AbstractSet[Position] | None,
        unsent: AbstractSet[Position],
    ) -> bool:
        """Requests redelivery. `positions` None: all that `consumer` has not acknowledged.

        `unsent`: assigned but never sent, so not counted as a redelivery.
        """


def active_of(topic: str, consumers: Sequence[ConsumerState]) -> ConsumerState | None:
    """Returns the consumer that gets all entries of an ordered subscription."""
    if not consumers:
        return None
    lowest = min(each.priority for each in consumers)
    able = [each for each in consumers if each.priority == lowest]
    able.sort(key=lambda each: (each.name, each.number))
    partition = partition_index(topic)
    if partition >= 0:
        return able[partition % len(able)]
    # Of equal points, that of the last consumer is on the ring.
    return min(reversed(able), key=lambda each: _ring_distance(topic, each.name))


@lru_cache(maxsize=4096)
def _ring_distance(topic: str, consumer: str) -> int:
    """Returns the distance on the ring from the topic to the consumer's next point."""
    at = _ring_hash(topic)
    points = (_ring_hash(f"{consumer}{number}") for number in range(_POINTS_PER_CONSUMER))
    return min((point - at) % 2**31 for point in points)


def _ring_hash(text: str) -> int:
    return int(mmh3.hash(text.encode(errors="replace"), 0, False)) & 0x7FFFFFFF


class SingleActiveDispatcher(Dispatcher):
    """The dispatcher of Exclusive and Failover. The subscription decides who may connect."""

    def __init__(self, topic: str = "") -> None:
        super().__init__()
        self._topic = topic
        self._active: ConsumerState | None = None

    @property
    def active(self) -> ConsumerState | None:
        return self._active

    def taker(self, slot: int) -> ConsumerState | None:
        active = self._served
        return active if active is not None and active.can_take else None

    @property
    def _served(self) -> ConsumerState | None:
        return None if self.is_paused else self._active

    def add(self, consumer: ConsumerState) -> bool:
        before = self.active
        self.consumers.append(consumer)
        self._active = active_of(self._topic, self.consumers)
        return before is not None and self.active is not before

    def remove(self, consumer: ConsumerState) -> bool:
        before = self.active
        self.consumers.remove(consumer)
        self._active = active_of(self._topic, self.consumers)
        return self.active is not None and self.active is not before

    def budget(self) -> Budget:
        return Budget(0, 0) if self._served is None else budget_of([self._served])

    def assign(self, candidates: Sequence[Candidate]) -> Decision:
        active, assignments = self._served, list[Assignment]()
        if active is None:
            return Decision(assignments, 0)
        for index, candidate in enumerate(candidates):
            if not active.can_take:
                break
            active.spend(candidate.messages, candidate.size_bytes)
            assignments.append(Assignment(index, active, redeliveries=0))
        return Decision(assignments, len(assignments))

    def settle(self, consumer: ConsumerState | None, position: Position) -> None:
        """Does nothing: no state is kept per entry."""

    def pass_over(self, position: Position) -> None:
        """Does nothing: a rewind restarts at the cursor."""

    def redeliver(
        self,
        consumer: ConsumerState,
        positions: AbstractSet[Position] | None,
        unsent: AbstractSet[Position],
    ) -> bool:
        # As in Pulsar: single entries cannot be delivered again without breaking the order.
        return consumer is self.active

"""Shared dispatch: consumers with permits and the lowest priority number take turns. Pure.

Each entry that was dispatched and not acknowledged is *pending* at one consumer. Entries that a
consumer returns (negative acknowledgement, disconnection) wait in the replay queue, ordered by id,
and are sent before new ones; they are read from the log again, so that only positions are kept. A
disconnection is not counted as a redelivery. (Pulsar: PersistentDispatcherMultipleConsumers.)

Invariants (tests/unit/subscriptions/test_dispatch_model.py):

* an entry is either pending at one consumer, or waits in the replay queue, or is settled;
* a consumer without permits or room gets nothing;
* when UnackedLimits are reached, a consumer, or all, get nothing until half of it is acknowledged;
* delayed entries that are due wait while LOOK_AHEAD_MAX entries are in the replay queue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet

from ledgerfold.broker.subscriptions.delayed import DelayedEntries
from ledgerfold.broker.subscriptions.dispatcher import (
    Assignment,
    Budget,
    Candidate,
    ConsumerState,
    Decision,
    Dispatcher,
    UnackedLimits,
    Unsettled,
    budget_of,
)
from ledgerfold.broker.subscriptions.replay_queue import ReplayQueue
from ledgerfold.storage.entry import Position

# The maximum number of delayed entries released at once.
RELEASED_MAX = 1_000
# Pulsar's keySharedLookAheadMsgInReplayThresholdPerSubscription is 20,000.
LOOK_AHEAD_MAX = 10_000
# The maximum number of replay positions returned at once.
REPLAY_BATCH_MAX = 1_000


class SharedDispatcher(Dispatcher):
    """Round robin by priority and permits. Key_Shared overrides the choice."""

    def __init__(
        self, delayed: DelayedEntries | None = None, look_ahead_max: int = LOOK_AHEAD_MAX
    ) -> None:
        super().__init__()
        self._look_ahead_max = look_ahead_max
        self._turn = self._lowest_priority = 0
        self._unacked_messages, self._is_blocked = 0, False
        self._limits = UnackedLimits()
        self._waiting = ReplayQueue()
        self._delayed = DelayedEntries() if delayed is None else delayed

    @property
    def delayed(self) -> int:
        return len(self._delayed)

    @property
    def next_due_ms(self) -> int | None:
        return self._delayed.next_ms

    def release(self, now_ms: int, is_acknowledged: Callable[[Position], bool]) -> bool:
        room = min(RELEASED_MAX, self._look_ahead_max - len(self._waiting))
        for each in self._delayed.take_due(now_ms, room):
            if not is_acknowledged(each.position):
                self._wait(each.position, Unsettled(each.messages, 0, each.slot))
        next_ms = self._delayed.next_ms
        is_more_due = next_ms is not None and next_ms <= now_ms
        return is_more_due and len(self._waiting) < self._look_ahead_max

    def close(self) -> None:
        self._delayed.close()

    @property
    def is_blocked(self) -> bool:
        return self._is_blocked

    def limit(self, limits: UnackedLimits) -> None:
        if limits != self._limits:
            self._limits, self._is_blocked = limits, False
            for each in self.consumers:
                each.is_blocked = False
                self._count(each, 0)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def add(self, consumer: ConsumerState) -> bool:
        self.consumers.append(consumer)
        self._consumers_changed()
        return False

    def remove(self, consumer: ConsumerState) -> bool:
        self.consumers.remove(consumer)
        self._consumers_changed()
        given = set(consumer.pending)
        self._give_back(consumer, given, uncounted=given)
        return False

    def _consumers_changed(self) -> None:
        self._lowest_priority = min((each.priority for each in self.consumers), default=0)

    def budget(self) -> Budget:
        if self._delayed.is_full:
            return Budget(0, 0)
        budget = self._whole_budget()
        # All entries read may be delayed.
        return budget._replace(messages=min(budget.messages, self._delayed.free))

    def _whole_budget(self) -> Budget:
        if self.is_blocked:
            return Budget(0, 0)
        return budget_of(self.consumers)

    def assign(self, candidates: Sequence[Candidate]) -> Decision:
        assignments: list[Assignment] = []
        for index, candidate in enumerate(candidates):
            if not self._has_taker() or not self._can_look_further():
                return Decision(assignments, index)
            if candidate.deliver_at_ms:
                if not self._delayed.add(candidate):
                    return Decision(assignments, index)
                continue
            consumer = self._choose(candidate.position, candidate.slot, is_new=True)
            if consumer is None:
                self._wait(candidate.position, Unsettled(candidate.messages, 0, candidate.slot))
            else:
                assignments.append(self._hand_out(index, candidate, consumer, redeliveries=0))
        return Decision(assignments, len(candidates))

    def replay_positions(self) -> list[Position]:
        budget, positions = self._whole_budget().messages, list[Position]()
        if not budget:
            return positions
        for position in self._waiting:
            positions.append(position)
            budget -= self._waiting[position].messages
            if budget <= 0 or len(positions) == REPLAY_BATCH_MAX:
                break
        return positions

    def assign_replayed(self, candidates: Sequence[Candidate]) -> list[Assignment]:
        assignments = []
        for index, candidate in enumerate(candidates):
            waiting = self._waiting.get(candidate.position)
            if waiting is None:
                continue
            if not self._has_taker():
                break
            consumer = self._choose(candidate.position, waiting.slot, is_new=False)
            if consumer is not None:
                self._stop_waiting(candidate.position)
                assignments.append(self._hand_out(index, candidate, consumer, waiting.redeliveries))
        return assignments

    def settle(self, consumer: ConsumerState | None, position: Position) -> None:
        if consumer is not None and self._take_back(consumer, position) is not None:
            return
        for holder in self.consumers:
            if self._take_back(holder, position) is not None:
                return
        self._stop_waiting(position)

    def pass_over(self, position: Position) -> None:
        given = [each for consumer in self.consumers for each in consumer.pending]
        for passed in [each for each in (*given, *self._waiting) if each <= position]:
            self.settle(None, passed)
        self._delayed.pass_over(position)

    def redeliver(
        self,
        consumer: ConsumerState,
        positions: AbstractSet[Position] | None,
        unsent: AbstractSet[Position],
    ) -> bool:
        given = set(consumer.pending) if positions is None else positions & consumer.pending.keys()
        self._give_back(consumer, given, uncounted=unsent)
        return False

    def _has_taker(self) -> bool:
        return not self.is_blocked and any(each.can_take for each in self.consumers)

    def _choose(self, position: Position, slot: int, *, is_new: bool) -> ConsumerState | None:
        """Returns the consumer for an entry; None: it waits in the replay queue."""
        return self.taker(slot)

    def taker(self, slot: int) -> ConsumerState | None:
        count, chosen = len(self.consumers), None
        for step in range(count):
            index = (self._turn + step) % count
            each = self.consumers[index]
            if each.can_take and (
                chosen is None or each.priority < self.consumers[chosen].priority
            ):
                chosen = index
                if each.priority == self._lowest_priority:
                    break
        if chosen is None:
            return None
        self._turn = chosen + 1
        return self.consumers[chosen]

    def _can_look_further(self) -> bool:
        return True

    def _hand_out(
        self, index: int, candidate: Candidate, consumer: ConsumerState, redeliveries: int
    ) -> Assignment:
        consumer.spend(candidate.messages, candidate.size_bytes)
        consumer.pending[candidate.position] = Unsettled(
            candidate.messages, redeliveries, candidate.slot
        )
        self._count(consumer, candidate.messages)
        return Assignment(index, consumer, redeliveries)

    def _take_back(self, consumer: ConsumerState, position: Position) -> Unsettled | None:
        entry = consumer.pending.pop(position, None)
        if entry is not None:
            self._count(consumer, -entry.messages)
        return entry

    def _count(self, consumer: ConsumerState, messages: int) -> None:
        """Counts unacknowledged messages.

        As in Pulsar, what has reached its limit is blocked until half of it is acknowledged.

        NOTE: Pulsar would never unblock a subscription with a limit of 1.
        """
        of_consumer, of_subscription = self._limits
        unacked = consumer.unacked_messages = consumer.unacked_messages + messages
        consumer.is_blocked = of_consumer > 0 and unacked > (
            of_consumer // 2 if consumer.is_blocked else of_consumer - 1
        )
        unacked = self._unacked_messages = self._unacked_messages + messages
        self._is_blocked = of_subscription > 0 and unacked >= (
            max(of_subscription // 2, 1) if self._is_blocked else of_subscription
        )

    def _give_back(
        self,
        consumer: ConsumerState,
        positions: Collection[Position],
        uncounted: Collection[Position],
    ) -> None:
        for position in positions:
            entry = self._take_back(consumer, position)
            if entry is not None:
                count = 0 if position in uncounted else 1
                self._wait(position, entry._replace(redeliveries=entry.redeliveries + count))

    def _wait(self, position: Position, entry: Unsettled) -> None:
        self._waiting.add(position, entry)

    def _stop_waiting(self, position: Position) -> Unsettled | None:
        return self._waiting.pop(position)

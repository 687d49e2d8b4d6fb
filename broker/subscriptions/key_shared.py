"""Key_Shared dispatch: entries of one key are sent to one consumer, in order. Pure.

1. The ordering key of an entry's first message, or its key, is hashed to a slot; entries without
   either have slots of their own. (A batch of several keys follows its first key: producers batch
   by key for these subscriptions, as in Pulsar.)
2. Slots belong to consumers (key_owners.py).
3. While entries of a slot are pending at one consumer, no other consumer gets one: a slot that
   moved is handed over when the old owner has acknowledged them, or disconnected.
4. An entry that cannot be sent waits in the replay queue, and so do later entries of its slot. So
   a slow consumer does not stop the others until LOOK_AHEAD_MAX entries wait.
5. If the consumers allow delivery out of order, a slot's owner gets its entries at once, even if
   another consumer has earlier ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

from ledgerfold.broker.subscriptions.delayed import DelayedEntries
from ledgerfold.broker.subscriptions.dispatcher import (
    Assignment,
    Budget,
    Candidate,
    ConsumerState,
    HashRange,
    Unsettled,
)
from ledgerfold.broker.subscriptions.key_owners import (
    AUTO_SPLIT,
    KeySharedPolicy,
    key_slot,
    owners_by,
)
from ledgerfold.broker.subscriptions.shared import (
    LOOK_AHEAD_MAX,
    REPLAY_BATCH_MAX,
    SharedDispatcher,
)
from ledgerfold.storage.entry import Position


class KeySharedDispatcher(SharedDispatcher):
    """The dispatcher of Key_Shared: shared dispatch with an owner for each slot."""

    def __init__(
        self,
        policy: KeySharedPolicy = AUTO_SPLIT,
        look_ahead_max: int = LOOK_AHEAD_MAX,
        delayed: DelayedEntries | None = None,
    ) -> None:
        super().__init__(delayed, look_ahead_max)
        self.policy = policy
        self._owners = owners_by(policy)
        # Slot -> the one consumer with pending entries of it, and their number.
        self._holders: dict[int, tuple[ConsumerState, int]] = {}
        # Slot -> heap of its entries in the replay queue; may contain removed ones.
        self._waiting_slots: dict[int, list[Position]] = {}
        # Changes that may make a waiting entry deliverable; the count at the last empty scan.
        self._changes = 0
        self._empty_scan: tuple[int, list[int]] | None = None

    def slot_of(self, key: bytes) -> int:
        return key_slot(key, on_ring=self.policy.on_ring and not self.policy.is_sticky)

    def check(self, ranges: Sequence[HashRange]) -> None:
        self._owners.check(ranges)

    def ranges(self) -> Mapping[int, Sequence[HashRange]]:
        """Returns the slots of each consumer, by its number."""
        return self._owners.ranges()

    def add(self, consumer: ConsumerState) -> bool:
        self._owners.add(consumer)
        self._changes += 1
        return super().add(consumer)

    def remove(self, consumer: ConsumerState) -> bool:
        self._owners.remove(consumer)
        self._changes += 1
        return super().remove(consumer)

    def budget(self) -> Budget:
        return super().budget() if self._can_look_further() else Budget(0, 0)

    def replay_positions(self) -> list[Position]:
        """Returns positions to replay, skipping slots whose owner cannot accept any, or must
        wait.
        """
        # An empty scan is not repeated before a change.
        takers = [each.number for each in self.consumers if each.can_take]
        if not self._has_taker() or self._empty_scan == (self._changes, takers):
            return []
        positions = self._scan()
        self._empty_scan = None if positions else (self._changes, takers)
        return positions

    def _scan(self) -> list[Position]:
        positions: list[Position] = []
        permits = {each.number: each.permits for each in self.consumers}
        blocked: set[int] = set()
        for position in self._waiting:
            entry = self._waiting[position]
            if entry.slot in blocked:
                continue
            taker = self.taker(entry.slot)
            if taker is None or permits[taker.number] <= 0:
                blocked.add(entry.slot)
                continue
            permits[taker.number] -= entry.messages
            positions.append(position)
            if len(positions) == REPLAY_BATCH_MAX:
                break
        return positions

    def taker(self, slot: int) -> ConsumerState | None:
        owner = self._owners.owner(slot)
        if owner is None or not owner.can_take:
            return None
        if self.policy.allows_out_of_order:
            return owner
        holder = self._holders.get(slot)
        return owner if holder is None or holder[0] is owner else None

    def _choose(self, position: Position, slot: int, *, is_new: bool) -> ConsumerState | None:
        waiting = self._waiting_slots.get(slot)
        if self.policy.allows_out_of_order:
            return self.taker(slot)
        if waiting and (is_new or waiting[0] != position):
            return None
        return self.taker(slot)

    def _can_look_further(self) -> bool:
        return len(self._waiting) < self._look_ahead_max

    def _hand_out(
        self, index: int, candidate: Candidate, consumer: ConsumerState, redeliveries: int
    ) -> Assignment:
        _, count = self._holders.get(candidate.slot, (consumer, 0))
        self._holders[candidate.slot] = (consumer, count + 1)
        return super()._hand_out(index, candidate, consumer, redeliveries)

    def _take_back(self, consumer: ConsumerState, position: Position) -> Unsettled | None:
        entry = super()._take_back(consumer, position)
        if entry is not None:
            holder, count = self._holders.pop(entry.slot)
            if count > 1:
                self._holders[entry.slot] = (holder, count - 1)
            else:
                self._changes += 1
        return entry

    def _wait(self, position: Position, entry: Unsettled) -> None:
        super()._wait(position, entry)
        self._changes += 1
        heappush(self._waiting_slots.setdefault(entry.slot, []), position)

    def _stop_waiting(self, position: Position) -> Unsettled | None:
        entry = super()._stop_waiting(position)
        if entry is not None:
            heap = self._waiting_slots[entry.slot]
            while heap and heap[0] not in self._waiting:
                heappop(heap)
            if not heap:
                del self._waiting_slots[entry.slot]
        return entry

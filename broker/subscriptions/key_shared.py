"""Key_Shared dispatch: entries of one key are sent to one consumer, in order. Pure.

1. The key of an entry's first message is hashed to one of 65,536 slots; entries without a key
   share the slot of the empty key. (A batch of several keys follows its first key: producers batch
   by key for these subscriptions, as in Pulsar.)
2. Slots belong to consumers by a consistent-hash ring: each consumer has POINTS_PER_CONSUMER points
   on it, so a consumer that joins or leaves moves only its own share of the slots.
3. While entries of a slot are pending at one consumer, no other consumer gets one: a slot that
   moved is handed over when the old owner has acknowledged them, or disconnected.
4. An entry that cannot be sent waits in the replay queue, and so do later entries of its slot. So
   a slow consumer does not stop the others until LOOK_AHEAD_MAX entries wait.

Source: PIP-34, PIP-119, PIP-379 and Pulsar's ConsistentHashingStickyKeyConsumerSelector; the hash
here is BLAKE2b (Pulsar: Murmur3), which no client can see.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from heapq import heappop, heappush

from ledgerfold.broker.subscriptions.dispatcher import (
    Assignment,
    Budget,
    Candidate,
    ConsumerState,
    Unsettled,
)
from ledgerfold.broker.subscriptions.shared import REPLAY_BATCH_MAX, SharedDispatcher
from ledgerfold.storage.entry import Position

# Pulsar's subscriptionKeySharedConsistentHashingReplicaPoints.
POINTS_PER_CONSUMER = 100
# Pulsar's keySharedLookAheadMsgInReplayThresholdPerSubscription is 20,000.
LOOK_AHEAD_MAX = 10_000


def key_slot(key: bytes | None) -> int:
    """Returns the slot 0..65535 of a key, the same in every process."""
    return int.from_bytes(blake2b(key or b"", digest_size=2).digest(), "big")


class KeyRing:
    """A consistent-hash ring of slot owners."""

    def __init__(self) -> None:
        self._points: list[tuple[int, str]] = []
        self._owners: dict[str, ConsumerState] = {}

    def add(self, consumer: ConsumerState) -> None:
        # By name if it is unused: a reconnecting consumer gets its previous slots.
        label = consumer.name
        if label in self._owners:
            label = f"{label}#{consumer.number}"
        self._owners[label] = consumer
        self._points = sorted([*self._points, *((point, label) for point in _points(label))])

    def remove(self, consumer: ConsumerState) -> None:
        removed = next(label for label, owner in self._owners.items() if owner is consumer)
        del self._owners[removed]
        self._points = [(point, label) for point, label in self._points if label != removed]

    def owner(self, slot: int) -> ConsumerState | None:
        if not self._points:
            return None
        at = bisect_right(self._points, (slot << 16, ""))
        return self._owners[self._points[at % len(self._points)][1]]


def _points(label: str) -> Iterator[int]:
    for number in range(POINTS_PER_CONSUMER):
        digest = blake2b(f"{label}/{number}".encode(), digest_size=4).digest()
        yield int.from_bytes(digest, "big")


class KeySharedDispatcher(SharedDispatcher):
    """The dispatcher of Key_Shared: shared dispatch with an owner for each slot."""

    def __init__(self, look_ahead_max: int = LOOK_AHEAD_MAX) -> None:
        super().__init__()
        self._look_ahead_max = look_ahead_max
        self._ring = KeyRing()
        # Slot -> the one consumer with pending entries of it, and their number.
        self._holders: dict[int, tuple[ConsumerState, int]] = {}
        # Slot -> heap of its entries in the replay queue; may contain removed ones.
        self._waiting_slots: dict[int, list[Position]] = {}
        # Changes that may make a waiting entry deliverable; the count at the last empty scan.
        self._changes = 0
        self._empty_scan: tuple[int, list[int]] | None = None

    def add(self, consumer: ConsumerState) -> bool:
        self._ring.add(consumer)
        self._changes += 1
        return super().add(consumer)

    def remove(self, consumer: ConsumerState, unsent: AbstractSet[Position]) -> bool:
        self._ring.remove(consumer)
        self._changes += 1
        return super().remove(consumer, unsent)

    def budget(self) -> Budget:
        return super().budget() if self._can_look_further() else Budget(0, 0)

    def replay_positions(self) -> list[Position]:
        """Returns positions to replay, skipping slots whose owner cannot take any or must wait."""
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
        for position in self._in_order():
            entry = self._waiting[position]
            if entry.slot in blocked:
                continue
            taker = self._taker(entry.slot)
            if taker is None or permits[taker.number] <= 0:
                blocked.add(entry.slot)
                continue
            permits[taker.number] -= entry.messages
            positions.append(position)
            if len(positions) == REPLAY_BATCH_MAX:
                break
        return positions

    def _taker(self, slot: int) -> ConsumerState | None:
        owner = self._ring.owner(slot)
        if owner is None or not owner.can_take:
            return None
        holder = self._holders.get(slot)
        return owner if holder is None or holder[0] is owner else None

    def _choose(self, position: Position, slot: int, *, is_new: bool) -> ConsumerState | None:
        waiting = self._waiting_slots.get(slot)
        if waiting and (is_new or waiting[0] != position):
            return None
        return self._taker(slot)

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

"""Owners of keys on a Key_Shared subscription: maps a key to a slot, and a slot to a consumer.
Pure.

As in Pulsar 4.0, whose consumers get the same keys:

* Split automatically, slots 1 to 65,535 are points of a ring. Each consumer has POINTS_PER_CONSUMER
  of them, by hashes of its name, and owns the slots up to each, so that one who joins or leaves
  moves only its own share. Consumers of the same name are numbered.
* If the broker is configured so (subscriptionKeySharedUseConsistentHashing=false), each consumer
  has one range of slots instead: one who joins gets the lower half of the largest.
* With explicit ranges (sticky), a consumer owns the slots that it names, 0 to 65,535. Entries of
  slots that no consumer names wait.

  >>> key_slot(b"key-0"), key_slot(b"key-0", on_ring=False)
  (23544, 63679)

Source: PIP-34, PIP-119, PIP-379; Pulsar's ConsistentHashingStickyKeyConsumerSelector,
HashRangeAutoSplitStickyKeyConsumerSelector and HashRangeExclusiveStickyKeyConsumerSelector.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import mmh3

from ledgerfold.broker.subscriptions.dispatcher import ConsumerState, HashRange
from ledgerfold.storage.errors import InvalidHashRanges

# Pulsar's subscriptionKeySharedConsistentHashingReplicaPoints.
POINTS_PER_CONSUMER = 100
HASH_RANGES_MAX = 1000
_SLOTS = 65536


@dataclass(frozen=True)
class KeySharedPolicy:
    """The way that consumers share keys. `ranges`: those of one consumer, if sticky.

    `on_ring`: whether the broker hashes consistently, if not sticky.
    """

    is_sticky: bool = False
    ranges: tuple[HashRange, ...] = ()
    allows_out_of_order: bool = False
    on_ring: bool = True

    def agrees_with(self, other: KeySharedPolicy) -> bool:
        """Returns whether consumers of both can share a subscription."""
        mine, theirs = self.allows_out_of_order, other.allows_out_of_order
        return self.is_sticky == other.is_sticky and mine == theirs

    def check(self) -> None:
        """Raises InvalidHashRanges."""
        if not self.is_sticky:
            return
        if not 1 <= len(self.ranges) <= HASH_RANGES_MAX:
            raise InvalidHashRanges(
                f"The consumer has {len(self.ranges)} hash ranges; a sticky consumer needs 1 to "
                f"{HASH_RANGES_MAX}."
            )
        for first, last in self.ranges:
            if not 0 <= first <= last < _SLOTS:
                raise InvalidHashRanges(f"The hash range [{first}, {last}] is not in [0, 65535].")
        in_order = sorted(self.ranges)
        for one, other in pairwise(in_order):
            if other.first <= one.last:
                both = f"[{one.first}, {one.last}] and [{other.first}, {other.last}]"
                raise InvalidHashRanges(f"The hash ranges {both} overlap.")


AUTO_SPLIT = KeySharedPolicy()


def key_slot(key: bytes, *, on_ring: bool = True) -> int:
    """Returns the slot of a key. 0 stands for no hash in Pulsar: it becomes 1."""
    hash_ = int(mmh3.hash(key, 0, False)) & 0x7FFFFFFF
    return hash_ % (_SLOTS - 1) + 1 if on_ring else hash_ % _SLOTS or 1


class KeyRing:
    """A consistent-hash ring of owners."""

    def __init__(self) -> None:
        # The slots that are points, in order, and the consumers at each: the first one owns it.
        self._slots: list[int] = []
        self._consumers: dict[int, list[ConsumerState]] = {}
        self._points: dict[int, tuple[str, int]] = {}
        # Computed at most once a change: every scrape of the metrics reads the stats.
        self._ranges: Mapping[int, Sequence[HashRange]] | None = None

    def check(self, ranges: Sequence[HashRange]) -> None:
        """Does nothing: every consumer has a share."""

    def add(self, consumer: ConsumerState) -> None:
        used = {index for name, index in self._points.values() if name == consumer.name}
        index = next(each for each in range(len(used) + 1) if each not in used)
        self._points[consumer.number] = (consumer.name, index)
        for slot in _points(consumer.name, index):
            self._consumers.setdefault(slot, []).append(consumer)
        self._slots, self._ranges = sorted(self._consumers), None

    def remove(self, consumer: ConsumerState) -> None:
        for slot in _points(*self._points.pop(consumer.number)):
            self._consumers[slot].remove(consumer)
            if not self._consumers[slot]:
                del self._consumers[slot]
        self._slots, self._ranges = sorted(self._consumers), None

    def ranges(self) -> Mapping[int, Sequence[HashRange]]:
        """Returns the slots of each consumer, by its number."""
        if self._ranges is None:
            ends = [(slot, self._consumers[slot][0]) for slot in self._slots]
            # After the last point, the first one's owner continues.
            ends += [(_SLOTS - 1, owner) for _, owner in ends[:1]]
            self._ranges = _by_consumer(ends, first=1)
        return self._ranges

    def owner(self, slot: int) -> ConsumerState | None:
        if not self._slots:
            return None
        at = bisect_left(self._slots, slot)
        return self._consumers[self._slots[at % len(self._slots)]][0]


def _points(name: str, index: int) -> Iterable[int]:
    for number in range(POINTS_PER_CONSUMER):
        yield key_slot(f"{name}\0{index}\0{number}".encode(errors="replace"))


class KeyHalves:
    """Owners of one range each. Those up to each end belong to the consumer there."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._consumers: list[ConsumerState] = []

    def check(self, ranges: Sequence[HashRange]) -> None:
        """Does nothing: every consumer gets a share."""

    def add(self, consumer: ConsumerState) -> None:
        at, end = 0, _SLOTS
        if self._ends:
            sizes = [end - low for low, end in pairwise((0, *self._ends))]
            # Of equal ones, the first.
            at = sizes.index(max(sizes))
            end = self._ends[at] - sizes[at] // 2
        self._ends.insert(at, end)
        self._consumers.insert(at, consumer)

    def remove(self, consumer: ConsumerState) -> None:
        """Gives a consumer's range to the one above it; the last range, to the one below."""
        at = self._consumers.index(consumer)
        del self._consumers[at]
        del self._ends[at if at < len(self._consumers) else at - 1]

    def ranges(self) -> Mapping[int, Sequence[HashRange]]:
        """Returns the slots of each consumer, by its number."""
        ends = [min(end, _SLOTS - 1) for end in self._ends]
        return _by_consumer(list(zip(ends, self._consumers, strict=True)), first=0)

    def owner(self, slot: int) -> ConsumerState | None:
        return self._consumers[bisect_left(self._ends, slot)] if self._ends else None


class KeyRanges:
    """Owners by the ranges that they name."""

    def __init__(self) -> None:
        self._ranges: list[tuple[HashRange, ConsumerState]] = []

    def check(self, ranges: Sequence[HashRange]) -> None:
        """Checks that nobody owns a slot of the ranges. Raises InvalidHashRanges."""
        for each in ranges:
            # Owned ranges do not overlap: the last range that begins before its end decides.
            at = bisect_right(self._ranges, each.last, key=_first) - 1
            if at >= 0 and self._ranges[at][0].last >= each.first:
                owned, consumer = self._ranges[at]
                raise InvalidHashRanges(
                    f"The hash range [{each.first}, {each.last}] overlaps "
                    f"[{owned.first}, {owned.last}] of consumer {consumer.name!r}."
                )

    def add(self, consumer: ConsumerState) -> None:
        self._ranges += [(each, consumer) for each in consumer.ranges]
        self._ranges.sort(key=_first)

    def remove(self, consumer: ConsumerState) -> None:
        self._ranges = [each for each in self._ranges if each[1] is not consumer]

    def ranges(self) -> Mapping[int, Sequence[HashRange]]:
        """Returns the slots of each consumer, by its number."""
        return {consumer.number: consumer.ranges for _, consumer in self._ranges}

    def owner(self, slot: int) -> ConsumerState | None:
        at = bisect_right(self._ranges, slot, key=_first) - 1
        if at < 0 or self._ranges[at][0].last < slot:
            return None
        return self._ranges[at][1]


def owners_by(policy: KeySharedPolicy) -> KeyRing | KeyHalves | KeyRanges:
    """Returns owners without consumers, by the rules of a policy."""
    if policy.is_sticky:
        return KeyRanges()
    return KeyRing() if policy.on_ring else KeyHalves()


def _by_consumer(
    ends: Sequence[tuple[int, ConsumerState]], first: int
) -> Mapping[int, Sequence[HashRange]]:
    """Returns ranges that cover all slots from `first` on. `ends`: the last slot of each, in order,
    and its owner; adjacent ranges of one owner are one.
    """
    ranges = defaultdict[int, list[HashRange]](list)
    for at, (end, consumer) in enumerate(ends):
        is_last_of_owner = at + 1 == len(ends) or ends[at + 1][1] is not consumer
        if is_last_of_owner and first <= end:
            ranges[consumer.number].append(HashRange(first, end))
            first = end + 1
    return ranges


def _first(owned: tuple[HashRange, ConsumerState]) -> int:
    return owned[0].first

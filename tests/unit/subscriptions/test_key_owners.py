"""Compares the owners of keys with those that Pulsar 4.0.7's classes gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.subscriptions.dispatcher import Candidate, ConsumerState, HashRange
from ledgerfold.broker.subscriptions.key_owners import (
    HASH_RANGES_MAX,
    KeyHalves,
    KeyRanges,
    KeyRing,
    KeySharedPolicy,
    key_slot,
)
from ledgerfold.broker.subscriptions.key_shared import KeySharedDispatcher
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import InvalidHashRanges

NAMES = ("a", "b", "c", "a", "ü")
SLOTS = (23544, 11858, 51461, 55278, 23426, 58952, 22295, 8664, 32525, 37479, 37838, 21191, 25709)
OWNERS = "1043440043103244100120410142124131304200"
# After the second and the first consumer have left, and another one with the name "a" came.
OWNERS_LATER = "2543445543353244555325455442524234354255"
ALL_SLOTS_LATER = 36200528


def consumer(name: str, number: int, *ranges: tuple[int, int]) -> ConsumerState:
    named = tuple(HashRange(*each) for each in ranges)
    return ConsumerState(name, number, permits=1000, room_bytes=1 << 30, ranges=named)


def keys() -> list[bytes]:
    return [f"key-{number}".encode() for number in range(40)]


def test_keys_have_the_same_slots_as_in_pulsar() -> None:
    assert tuple(map(key_slot, keys()[: len(SLOTS)])) == SLOTS
    assert [key_slot(each, on_ring=False) for each in keys()[:2]] == [63679, 5536]
    assert key_slot(b"") == key_slot(b"", on_ring=False) == 1


def test_a_ring_has_the_same_owners_as_in_pulsar() -> None:
    ring, states = KeyRing(), [consumer(name, number) for number, name in enumerate(NAMES)]
    assert ring.owner(1) is None
    for state in states:
        ring.add(state)

    def owner(slot: int) -> int:
        found = ring.owner(slot)
        assert found is not None
        return found.number

    assert "".join(str(owner(key_slot(each))) for each in keys()) == OWNERS
    ring.remove(states[1])
    ring.remove(states[0])
    ring.add(consumer("a", 5))
    assert "".join(str(owner(key_slot(each))) for each in keys()) == OWNERS_LATER
    digest = 0
    for slot in range(1, 65536):
        digest = (digest * 31 + owner(slot)) % 1_000_000_007
    assert digest == ALL_SLOTS_LATER


def shown(ranges: Mapping[int, Sequence[HashRange]], number: int) -> list[tuple[int, int]]:
    return [(each.first, each.last) for each in ranges[number]]


def test_the_ranges_of_a_ring_equal_pulsars() -> None:
    """Stats show them. 1 follows the last point; two consumers have one name."""
    names = ("c0", "c1", "c2", "c1")
    ring, states = KeyRing(), [consumer(name, number) for number, name in enumerate(names)]
    assert ring.ranges() == {}
    for state in states:
        ring.add(state)
    ranges = ring.ranges()
    assert [len(ranges[number]) for number in range(4)] == [80, 77, 77, 77]
    assert shown(ranges, 0)[:3] == [(1032, 1299), (1552, 1626), (2410, 2507)]
    assert shown(ranges, 1)[-2:] == [(63347, 63540), (64801, 64838)]
    assert (shown(ranges, 3)[0], shown(ranges, 3)[-1]) == ((1, 996), (65334, 65535))
    for left in states[:3]:
        ring.remove(left)
    assert shown(ring.ranges(), 3) == [(1, 65535)]


def test_all_ranges_are_those_of_the_owners() -> None:
    for owners in (KeyRing(), KeyHalves()):
        for number in range(3):
            owners.add(consumer("abc"[number], number))
        ranges = owners.ranges()
        for number, found in ranges.items():
            for first, last in found:
                ends = [owners.owner(max(1, first)), owners.owner(last)]
                assert [each.number for each in ends if each] == [number, number]
        whole = sorted(each for found in ranges.values() for each in found)
        assert all(one.last + 1 == other.first for one, other in pairwise(whole))
        assert (whole[0].first <= 1, whole[-1].last) == (True, 65535)


def test_a_sticky_consumer_shows_its_own_ranges() -> None:
    owners = KeyRanges()
    owners.add(consumer("a", 1, (20, 30), (0, 10)))
    assert shown(owners.ranges(), 1) == [(20, 30), (0, 10)]


def test_auto_split_ranges_equal_pulsars() -> None:
    """With the ranges of Pulsar's HashRangeAutoSplitStickyKeyConsumerSelectorTest, by 1,024."""
    halves, states = KeyHalves(), [consumer("c", number) for number in range(4)]
    assert halves.owner(1) is None
    for state in states:
        halves.add(state)

    def owners() -> list[tuple[int, int]]:
        """Returns each first slot of an owner, in units of 1,024."""
        found: list[tuple[int, int]] = []
        for slot in range(1, 65536):
            owner = halves.owner(slot)
            assert owner is not None
            if not found or found[-1][1] != owner.number:
                found.append((slot // 1024, owner.number))
        return found

    assert owners() == [(0, 2), (16, 1), (32, 3), (48, 0)]
    assert halves.owner(49_152) is states[3]
    assert halves.owner(49_153) is states[0]
    # The last range goes to the consumer below it, any other to the one above.
    halves.remove(states[0])
    assert owners() == [(0, 2), (16, 1), (32, 3)]
    halves.remove(states[2])
    assert owners() == [(0, 1), (32, 3)]
    halves.add(states[0])
    assert owners() == [(0, 0), (16, 1), (32, 3)]
    for left in (0, 1, 3):
        halves.remove(states[left])
    assert halves.owner(1) is None
    halves.add(states[2])
    assert owners() == [(0, 2)]


def test_two_consumers_share_keys_by_auto_split() -> None:
    """The keys of the Go client's test of Key_Shared, under the configuration that it runs with."""
    dispatcher = KeySharedDispatcher(KeySharedPolicy(on_ring=False))
    consumers = [consumer(name, number) for number, name in enumerate("ab")]
    for each in consumers:
        dispatcher.add(each)
    slots = [dispatcher.slot_of(f"key-shared-{number}".encode()) for number in range(3)]
    takers = [dispatcher.taker(slot) for slot in slots]
    assert {taker.name for taker in takers if taker} == {"a", "b"}


@given(st.lists(st.tuples(st.integers(0, 65535), st.integers(0, 65535)), max_size=8))
def test_a_range_belongs_to_one_consumer(pairs: list[tuple[int, int]]) -> None:
    """A slot with another owner is refused; slots outside of all ranges have no owner."""
    owners, expected = KeyRanges(), dict[int, int]()
    for number, pair in enumerate(pairs):
        state = consumer("c", number, (min(pair), max(pair)))
        slots = range(min(pair), max(pair) + 1)
        if any(slot in expected for slot in slots):
            with pytest.raises(InvalidHashRanges, match="overlaps"):
                owners.check(state.ranges)
            continue
        owners.check(state.ranges)
        owners.add(state)
        expected.update(dict.fromkeys(slots, number))
    ends = {slot for pair in pairs for slot in pair}
    edges = {0, 65535} | {max(0, min(65535, each + by)) for each in ends for by in (-1, 0, 1)}
    for slot in edges:
        owner = owners.owner(slot)
        assert (None if owner is None else owner.number) == expected.get(slot)


class CountedRange(HashRange):
    """Counts every look at its ends."""

    looks: ClassVar[int] = 0

    def __getattribute__(self, name: str) -> Any:
        if name in ("first", "last"):
            CountedRange.looks += 1
        return super().__getattribute__(name)


def test_a_consumer_with_many_ranges_is_checked_quickly() -> None:
    """A comparison with all ranges of all consumers would block all other tasks for seconds."""
    owners = KeyRanges()
    for number in range(8):
        own = ((slot, slot) for slot in range(number, 8_000, 8))
        state = consumer("c", number)
        state.ranges = tuple(CountedRange(*each) for each in own)
        owners.add(state)
    new = [HashRange(slot, slot) for slot in range(8_000, 9_000)]
    CountedRange.looks = 0
    owners.check(new)
    assert CountedRange.looks < 50 * len(new)
    with pytest.raises(InvalidHashRanges, match="overlaps"):
        owners.check([*new, HashRange(7_999, 8_100)])


@pytest.mark.parametrize(
    "ranges",
    [
        (),
        ((5, 4),),
        ((-1, 4),),
        ((0, 65536),),
        ((0, 10), (10, 20)),
        tuple((n, n) for n in range(HASH_RANGES_MAX + 1)),
    ],
)
def test_invalid_ranges_are_refused(ranges: tuple[tuple[int, int], ...]) -> None:
    policy = KeySharedPolicy(is_sticky=True, ranges=tuple(HashRange(*each) for each in ranges))
    with pytest.raises(InvalidHashRanges):
        policy.check()


def test_a_sticky_consumer_releases_its_slots() -> None:
    policy = KeySharedPolicy(is_sticky=True)
    dispatcher = KeySharedDispatcher(policy)
    first, second = consumer("first", 1, (0, 99)), consumer("second", 2, (100, 199))
    dispatcher.add(first)
    dispatcher.add(second)
    candidates = [Candidate(Position(1, n), 1, 10, slot) for n, slot in enumerate((5, 105, 205))]
    decision = dispatcher.assign(candidates)
    assert [each.consumer.name for each in decision.assignments] == ["first", "second"]
    assert (decision.candidate_count, dispatcher.waiting) == (3, 1)
    dispatcher.remove(first)
    third = consumer("third", 3, (0, 99), (200, 299))
    dispatcher.check(third.ranges)
    dispatcher.add(third)
    replayed = dispatcher.replay_positions()
    assert replayed == [Position(1, 0), Position(1, 2)]


def test_with_out_of_order_delivery_a_new_owner_does_not_wait() -> None:
    dispatcher = KeySharedDispatcher(KeySharedPolicy(allows_out_of_order=True))
    first, second = consumer("first", 1), consumer("second", 2)
    dispatcher.add(first)
    dispatcher.add(second)
    slot = next(s for s in range(1, 65536) if dispatcher._owners.owner(s) is second)
    dispatcher.remove(second)
    for entry, owner in ((0, first), (1, second)):
        if owner is second:
            dispatcher.add(second)
        (given_out,) = dispatcher.assign([Candidate(Position(1, entry), 1, 10, slot)]).assignments
        assert given_out.consumer is owner

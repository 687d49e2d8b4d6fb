"""Dispatch, case by case: which consumer gets which entry."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ledgerfold.broker.subscriptions.dispatcher import (
    Candidate,
    ConsumerState,
    Dispatcher,
    SingleActiveDispatcher,
    UnackedLimits,
)
from ledgerfold.broker.subscriptions.key_owners import KeyRing
from ledgerfold.broker.subscriptions.key_shared import KeySharedDispatcher
from ledgerfold.broker.subscriptions.shared import REPLAY_BATCH_MAX, SharedDispatcher
from ledgerfold.storage.entry import Position

TOPIC = "persistent://public/default/t"
FOUR = "consumer-1 consumer-2 consumer-3 consumer-4"


def consumer(name: str, number: int, permits: int = 100, priority: int = 0) -> ConsumerState:
    return ConsumerState(name, number, priority=priority, permits=permits, room_bytes=10_000)


def candidates(
    entry_ids: Iterable[int], messages: int = 1, slots: dict[int, int] | None = None
) -> list[Candidate]:
    return [Candidate(Position(1, n), messages, 10, (slots or {}).get(n, 0)) for n in entry_ids]


def given_out(dispatcher: Dispatcher, entries: list[Candidate]) -> dict[str, list[int]]:
    """Dispatches new entries and returns the entry ids of each consumer."""
    result: dict[str, list[int]] = {each.name: [] for each in dispatcher.consumers}
    for at, state, _ in dispatcher.assign(entries).assignments:
        result[state.name].append(entries[at].position.entry_id)
    return result


def replayed(dispatcher: Dispatcher, slots: dict[int, int] | None = None) -> list[str]:
    """Dispatches entries to replay: "consumer:entry id*redelivery count"."""
    entries = candidates([p.entry_id for p in dispatcher.replay_positions()], slots=slots)
    return [
        f"{state.name}:{entries[at].position.entry_id}*{count}"
        for at, state, count in dispatcher.assign_replayed(entries)
    ]


def test_an_entry_costs_its_messages_and_is_never_split() -> None:
    """One entry may make permits negative; then the consumer gets nothing until they are
    positive.
    """
    dispatcher, c = SingleActiveDispatcher(), consumer("c", 1, permits=5)
    dispatcher.add(c)
    assert given_out(dispatcher, candidates(range(4), messages=4)) == {"c": [0, 1]}
    assert c.permits == -3
    assert dispatcher.budget().messages == 0
    c.permits += 3
    assert given_out(dispatcher, candidates([2])) == {"c": []}
    c.permits += 1
    assert given_out(dispatcher, candidates([2])) == {"c": [2]}


def test_queue_space_is_used_like_permits() -> None:
    """A consumer whose queue is full gets nothing more, with any permits."""
    dispatcher, c = SharedDispatcher(), consumer("c", 1)
    c.room_bytes = 15
    dispatcher.add(c)
    assert given_out(dispatcher, candidates(range(4))) == {"c": [0, 1]}
    c.room_bytes += 6
    assert given_out(dispatcher, candidates([2, 3])) == {"c": [2]}


def test_shared_prefers_the_lowest_priority_number_that_has_permits() -> None:
    dispatcher = SharedDispatcher()
    low, high = consumer("low", 1, priority=5), consumer("high", 2, permits=2)
    for each in (low, high, consumer("also", 3, permits=2), consumer("last", 4, priority=9)):
        dispatcher.add(each)
    given = {"low": [4, 5], "high": [0, 2], "also": [1, 3], "last": []}
    assert given_out(dispatcher, candidates(range(6))) == given
    high.permits += 1
    given = {"low": [7], "high": [6], "also": [], "last": []}
    assert given_out(dispatcher, candidates(range(6, 8))) == given
    dispatcher.remove(high)
    assert replayed(dispatcher) == ["low:0*0", "low:2*0", "low:6*0"]


def test_failover_selects_the_lowest_priority_number_then_by_the_ring() -> None:
    """A consumer with a lower number takes over at once."""
    dispatcher = SingleActiveDispatcher(TOPIC)
    first, second, better = (
        consumer("z-first", 1, priority=5),
        consumer("a-second", 2, priority=5),
        consumer("better", 3, priority=1),
    )
    assert not dispatcher.add(first)
    assert dispatcher.active is first
    assert dispatcher.add(second)
    assert dispatcher.active is second
    assert dispatcher.add(better)
    assert dispatcher.active is better
    assert not dispatcher.remove(first)
    assert dispatcher.remove(better)
    assert dispatcher.active is second
    assert not dispatcher.remove(second)
    assert dispatcher.active is None


@pytest.mark.parametrize(
    ("topic", "names", "active"),
    [
        (TOPIC, "a b c", "b"),
        (TOPIC, FOUR, "consumer-1"),
        ("persistent://public/default/orders", "a b c", "c"),
        ("non-persistent://public/default/t", FOUR, "consumer-3"),
        ("persistent://a/b/c", "x é", "é"),
        # The hash of the topic is above all points.
        ("persistent://public/default/t474", "a b c", "a"),
        ("persistent://public/default/t2101", "a b c", "a"),
    ],
)
def test_failover_selects_as_pulsar(topic: str, names: str, active: str) -> None:
    """Computed with the hashes of Pulsar 4.0's jars. The order of arrival does not matter."""
    for in_order in (names.split(), names.split()[::-1]):
        dispatcher = SingleActiveDispatcher(topic)
        for number, name in enumerate(in_order):
            dispatcher.add(consumer(name, number))
        assert dispatcher.active is not None
        assert dispatcher.active.name == active


def test_failover_selects_the_last_of_consumers_of_one_name() -> None:
    dispatcher = SingleActiveDispatcher(TOPIC)
    for number in range(3):
        dispatcher.add(consumer("same", number))
    assert dispatcher.active is dispatcher.consumers[-1]


@pytest.mark.parametrize(("partition", "active"), [(0, "a"), (1, "b"), (2, "c"), (3, "a")])
def test_failover_distributes_partitions_over_the_lowest_priority_number(
    partition: int, active: str
) -> None:
    """By name, not by arrival: so each consumer knows its partitions."""
    dispatcher = SingleActiveDispatcher(f"{TOPIC}-partition-{partition}")
    for number, name in enumerate(("c", "a", "later", "b")):
        dispatcher.add(consumer(name, number, priority=1 if name == "later" else 0))
    assert dispatcher.active is not None
    assert dispatcher.active.name == active


def test_failover_on_a_partition_hands_over_when_a_passive_consumer_leaves() -> None:
    """Then reading starts again at the cursor, as with every other change."""
    dispatcher = SingleActiveDispatcher(f"{TOPIC}-partition-1")
    a, b, c = (consumer(name, number) for number, name in enumerate("abc"))
    assert not dispatcher.add(a)
    assert dispatcher.add(b)
    assert not dispatcher.add(c)
    assert dispatcher.active is b
    assert dispatcher.remove(a)
    assert dispatcher.active is c
    assert dispatcher.remove(c)
    assert not dispatcher.remove(b)


def test_ordered_types_count_no_redeliveries() -> None:
    """As in Pulsar: a program must not rely on counts that it does not get there."""
    dispatcher, c = SingleActiveDispatcher(), consumer("c", 1)
    dispatcher.add(c)
    for _ in range(3):
        decision = dispatcher.assign(candidates(range(6)))
        assert [each.redeliveries for each in decision.assignments] == [0] * 6
        assert dispatcher.redeliver(c, None, set())


def test_shared_rotates_among_consumers_with_permits() -> None:
    """Each gets its turn; consumers without permits are skipped; without any, the rest is not
    taken.
    """
    dispatcher = SharedDispatcher()
    for state in (consumer("a", 1, 2), consumer("b", 2, 0), consumer("c", 3, 3)):
        dispatcher.add(state)
    decision = dispatcher.assign(candidates(range(8)))
    assert [each.consumer.name for each in decision.assignments] == ["a", "c", "a", "c", "c"]
    assert decision.candidate_count == 5


def test_shared_redelivers_in_order_with_counts() -> None:
    """Negative acks and a disconnect put entries into the replay queue, ordered by id.

    As in Pulsar, a disconnect does not count as a redelivery.
    """
    dispatcher, a, b = SharedDispatcher(), consumer("a", 1), consumer("b", 2, permits=0)
    dispatcher.add(a)
    dispatcher.add(b)
    given_out(dispatcher, candidates(range(5)))
    dispatcher.redeliver(a, {Position(1, 3), Position(1, 9)}, set())
    dispatcher.redeliver(a, {Position(1, 1)}, set())
    assert replayed(dispatcher) == ["a:1*1", "a:3*1"]
    dispatcher.settle(a, Position(1, 0))
    b.permits = 100
    dispatcher.remove(a)
    assert replayed(dispatcher) == ["b:1*1", "b:2*0", "b:3*1", "b:4*0"]
    assert b.unacked_messages == 4


def test_an_ack_removes_an_entry_from_any_state() -> None:
    """Pending at another consumer or waiting for replay: acknowledged is acknowledged."""
    dispatcher, a, b = SharedDispatcher(), consumer("a", 1), consumer("b", 2)
    dispatcher.add(a)
    dispatcher.add(b)
    given_out(dispatcher, candidates(range(4)))
    dispatcher.settle(b, Position(1, 0))
    dispatcher.redeliver(a, None, set())
    dispatcher.settle(b, Position(1, 2))
    assert replayed(dispatcher) == []
    assert (a.unacked_messages, b.unacked_messages) == (0, 2)


def test_dispatch_pauses_at_the_limits_of_unacknowledged_messages() -> None:
    """Per consumer, then per subscription; as in Pulsar it resumes when half is acknowledged."""
    dispatcher, a, b = SharedDispatcher(), consumer("a", 1), consumer("b", 2)
    dispatcher.limit(UnackedLimits(3, 5))
    dispatcher.add(a)
    assert given_out(dispatcher, candidates(range(9))) == {"a": [0, 1, 2]}
    dispatcher.add(b)
    assert (a.is_blocked, b.is_blocked, dispatcher.is_blocked) == (True, False, False)
    assert given_out(dispatcher, candidates(range(3, 9)))["b"] == [3, 4]
    assert dispatcher.budget().messages == 0
    assert dispatcher.is_blocked
    dispatcher.settle(a, Position(1, 0))
    assert (a.is_blocked, dispatcher.is_blocked) == (True, True)
    dispatcher.settle(a, Position(1, 1))
    assert (a.is_blocked, dispatcher.is_blocked) == (False, True)
    assert given_out(dispatcher, candidates([5, 6])) == {"a": [], "b": []}
    dispatcher.settle(b, Position(1, 3))
    dispatcher.settle(b, Position(1, 4))
    assert not dispatcher.is_blocked
    assert given_out(dispatcher, candidates([5, 6])) == {"a": [5], "b": [6]}


@pytest.mark.parametrize(("limits", "count"), [((0, 3), 3), ((3, 0), 3), ((0, 0), 9), ((1, 1), 1)])
def test_a_limit_of_0_is_none(limits: tuple[int, int], count: int) -> None:
    dispatcher, c = SharedDispatcher(), consumer("c", 1)
    dispatcher.limit(UnackedLimits(*limits))
    dispatcher.add(c)
    assert len(given_out(dispatcher, candidates(range(9)))["c"]) == count
    dispatcher.pass_over(Position(1, 9))
    assert (c.is_blocked, dispatcher.is_blocked) == (False, False)


def test_a_new_limit_applies_to_what_is_delivered_already() -> None:
    dispatcher, c = SharedDispatcher(), consumer("c", 1)
    dispatcher.add(c)
    given_out(dispatcher, candidates(range(4)))
    dispatcher.limit(UnackedLimits(4, 4))
    assert c.is_blocked
    assert dispatcher.is_blocked
    dispatcher.limit(UnackedLimits(9, 9))
    assert (c.is_blocked, dispatcher.is_blocked) == (False, False)


def test_a_join_or_leave_moves_only_its_share_of_the_ring() -> None:
    """Other consumers keep their slots; shares are roughly even; a returning name gets its slots
    back.
    """
    ring, states = KeyRing(), [consumer(f"c{n}", n) for n in range(4)]
    for state in states[:3]:
        ring.add(state)
    before = [ring.owner(slot) for slot in range(1, 65536, 16)]
    ring.add(states[3])
    after = [ring.owner(slot) for slot in range(1, 65536, 16)]
    assert all(new in (old, states[3]) for old, new in zip(before, after, strict=True))
    assert all(after.count(state) > len(after) // 8 for state in states)
    ring.remove(states[3])
    assert [ring.owner(slot) for slot in range(1, 65536, 16)] == before
    ring.add(consumer("c0", 9))
    assert {ring.owner(slot) for slot in range(1, 65536, 16)} > set(states[:3])


def slots_of(dispatcher: KeySharedDispatcher, state: ConsumerState, count: int) -> list[int]:
    """Slots that `state` owns."""
    return [slot for slot in range(65536) if dispatcher._owners.owner(slot) is state][:count]


def test_key_shared_holds_a_key_back_until_its_old_owner_acknowledged() -> None:
    """A joining consumer gets a key only when nothing earlier of it is pending elsewhere."""
    dispatcher, old, new = KeySharedDispatcher(), consumer("old", 1), consumer("new", 2)
    dispatcher.add(old)
    dispatcher.add(new)
    slot = slots_of(dispatcher, new, 1)[0]
    dispatcher.remove(new)
    slots = dict.fromkeys(range(10), slot)
    assert given_out(dispatcher, candidates([0, 1], slots=slots)) == {"old": [0, 1]}
    dispatcher.add(new)
    assert given_out(dispatcher, candidates([2, 3], slots=slots)) == {"old": [], "new": []}
    dispatcher.settle(old, Position(1, 0))
    assert replayed(dispatcher, slots) == []
    dispatcher.settle(old, Position(1, 1))
    assert given_out(dispatcher, candidates([4], slots=slots)) == {"old": [], "new": []}
    assert replayed(dispatcher, slots) == ["new:2*0", "new:3*0", "new:4*0"]


def test_key_shared_a_slow_consumer_does_not_stop_others() -> None:
    """Its entries wait, the others' go out, until the look-ahead is used up."""
    dispatcher = KeySharedDispatcher(look_ahead_max=3)
    slow, quick = consumer("slow", 1, permits=0), consumer("quick", 2)
    dispatcher.add(slow)
    dispatcher.add(quick)
    a, b = slots_of(dispatcher, slow, 1)[0], slots_of(dispatcher, quick, 1)[0]
    slots = {0: a, 1: b, 2: a, 3: b, 4: a, 5: b}
    decision = dispatcher.assign(candidates(range(6), slots=slots))
    assert [(each.at, each.consumer.name) for each in decision.assignments] == [
        (1, "quick"),
        (3, "quick"),
    ]
    assert (decision.candidate_count, dispatcher.waiting, dispatcher.budget().messages) == (5, 3, 0)
    slow.permits = 2
    assert replayed(dispatcher, slots) == ["slow:0*0", "slow:2*0"]
    assert dispatcher.budget().messages == 98


def test_key_shared_new_entries_wait_for_redelivered_ones() -> None:
    """After a negative ack, later entries of that key wait for it."""
    dispatcher, c = KeySharedDispatcher(), consumer("c", 1)
    dispatcher.add(c)
    given_out(dispatcher, candidates([0], slots={0: 7}))
    dispatcher.redeliver(c, {Position(1, 0)}, set())
    assert given_out(dispatcher, candidates([1, 2], slots={1: 7, 2: 8})) == {"c": [2]}
    assert replayed(dispatcher, {0: 7, 1: 7}) == ["c:0*1", "c:1*0"]


def test_key_shared_entries_read_before_a_negative_ack_wait_for_it() -> None:
    """Entries read before the entry was given back are not sent before it."""
    dispatcher, c = KeySharedDispatcher(), consumer("c", 1)
    dispatcher.add(c)
    slots = dict.fromkeys(range(4), 7)
    given_out(dispatcher, candidates([0, 1, 2], slots=slots))
    dispatcher.redeliver(c, {Position(1, 1), Position(1, 2)}, set())
    read = candidates([p.entry_id for p in dispatcher.replay_positions()], slots=slots)
    dispatcher.redeliver(c, {Position(1, 0)}, set())
    assert dispatcher.assign_replayed(read) == []
    assert given_out(dispatcher, candidates([3], slots=slots)) == {"c": []}
    assert replayed(dispatcher, slots) == ["c:0*1", "c:1*1", "c:2*1", "c:3*0"]


@pytest.mark.parametrize("make", [SharedDispatcher, KeySharedDispatcher])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_replay_reads_a_bounded_number_of_entries(
    make: type[SharedDispatcher], more: int
) -> None:
    """The bound itself is read at once; the entry after it waits for the next read."""
    dispatcher, c = make(), consumer("c", 1, permits=10 * REPLAY_BATCH_MAX)
    c.room_bytes = 100 * REPLAY_BATCH_MAX
    dispatcher.add(c)
    count = REPLAY_BATCH_MAX + more
    given_out(dispatcher, candidates(range(count)))
    dispatcher.redeliver(c, {Position(1, n) for n in range(count)}, set())
    expected = [Position(1, n) for n in range(min(count, REPLAY_BATCH_MAX))]
    assert dispatcher.replay_positions() == expected


@pytest.mark.parametrize("make", [SharedDispatcher, KeySharedDispatcher])
def test_a_replay_reads_as_many_entries_as_there_are_permits(make: type[SharedDispatcher]) -> None:
    """Not one less, nor one more; in every other test the permits had been plenty."""
    dispatcher, c = make(), consumer("c", 1, permits=3)
    dispatcher.add(c)
    given_out(dispatcher, candidates(range(3)))
    c.permits = 2
    dispatcher.redeliver(c, {Position(1, n) for n in range(3)}, set())
    assert dispatcher.replay_positions() == [Position(1, 0), Position(1, 1)]

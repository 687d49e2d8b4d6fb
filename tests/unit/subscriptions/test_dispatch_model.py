"""The dispatchers against a model, in any order of events.

The model is the clients' view: which entries each consumer holds, what is acknowledged, and each
consumer's permits. Invariants are checked at every single assignment; at the end everything must be
acknowledged, so nothing was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ledgerfold.broker.client.messages.routing import murmur3_32
from ledgerfold.broker.subscriptions.cursor import Cursor
from ledgerfold.broker.subscriptions.dispatcher import (
    Candidate,
    ConsumerState,
    Dispatcher,
    SingleActiveDispatcher,
)
from ledgerfold.broker.subscriptions.key_shared import KeySharedDispatcher
from ledgerfold.broker.subscriptions.shared import SharedDispatcher
from ledgerfold.storage.entry import Position
from tests.support.property_tests import examples

# Few and far apart, so that consumers share them in every way.
SLOTS = [0, 21_000, 47_000]


class DispatchMachine(RuleBasedStateMachine):
    """Subclasses choose the dispatcher and the invariant for each assignment."""

    make: ClassVar[Callable[[], Dispatcher]]
    is_ordered = False
    consumers_max = 4

    @initialize(page=st.integers(1, 5), is_eager=st.booleans(), consumers=st.integers(1, 3))
    def begin(self, page: int, is_eager: bool, consumers: int) -> None:
        self.page = page
        # Whether dispatch follows each event at once, or only now and then.
        self.is_eager = is_eager
        self.dispatcher = type(self).make()
        self.cursor = Cursor(Position(1, -1))
        self.log: list[tuple[int, int]] = []
        self.acknowledged: set[int] = set()
        self.held: dict[ConsumerState, set[int]] = {}
        self.permits: dict[ConsumerState, int] = {}
        self.read_next = 0
        self.numbers = 0
        self.delivered_last = -1
        # A read that was begun: whether of the replay queue, and the entries.
        self.in_flight: tuple[bool, list[int]] | None = None
        for _ in range(min(consumers, self.consumers_max)):
            self.connect(priority=1, permits=10)

    # Actions

    @rule(
        messages=st.lists(
            st.tuples(st.integers(1, 3), st.sampled_from(SLOTS)), min_size=1, max_size=6
        )
    )
    def publish(self, messages: list[tuple[int, int]]) -> None:
        self.log += messages
        self.happened()

    @precondition(lambda self: len(self.held) < self.consumers_max)
    @rule(priority=st.integers(0, 2), permits=st.integers(0, 8))
    def connect(self, priority: int, permits: int) -> None:
        self.numbers += 1
        state = ConsumerState(
            f"c{self.numbers}", self.numbers, priority, permits=permits, room_bytes=1 << 30
        )
        self.held[state], self.permits[state] = set(), permits
        self.happened(rewind=self.dispatcher.add(state))

    @precondition(lambda self: len(self.held) > 1)
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        self.leave(data.draw(st.sampled_from(list(self.held))))

    @precondition(lambda self: len(self.held) == self.consumers_max)
    @rule()
    def everybody_leaves(self) -> None:
        for state in list(self.held):
            self.leave(state)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), messages=st.integers(1, 8))
    def permit(self, data: st.DataObject, messages: int) -> None:
        state = data.draw(st.sampled_from(list(self.held)))
        state.permits += messages
        self.permits[state] += messages
        self.happened()

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        state = data.draw(st.sampled_from([each for each in self.held if self.held[each]]))
        self.acknowledge_entry(state, data.draw(st.sampled_from(sorted(self.held[state]))))
        self.happened()

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data(), all_of_it=st.booleans())
    def give_back(self, data: st.DataObject, all_of_it: bool) -> None:
        state = data.draw(st.sampled_from([each for each in self.held if self.held[each]]))
        some = data.draw(st.sets(st.sampled_from(sorted(self.held[state])), min_size=1))
        positions = None if all_of_it else {Position(1, each) for each in some}
        self.held[state] -= self.held[state] if all_of_it else some
        self.happened(rewind=self.dispatcher.redeliver(state, positions, set()))

    @rule()
    def dispatch(self) -> None:
        """Dispatches as the pump does, until nothing can be sent."""
        for _ in range(1_000):
            if not (self.finish_read() or self.begin_read()):
                return
        raise AssertionError("dispatch does not come to an end")

    @rule()
    def overtaken_read(self) -> None:
        """A read that other events overtake."""
        self.begin_read()

    def begin_read(self) -> bool:
        if self.in_flight is not None:
            return False
        positions = self.dispatcher.replay_positions()[: self.page]
        if positions:
            self.in_flight = (True, [each.entry_id for each in positions])
        elif self.dispatcher.budget().messages > 0 and self.read_next < len(self.log):
            end = min(self.read_next + self.page, len(self.log))
            self.in_flight = (False, list(range(self.read_next, end)))
        return self.in_flight is not None

    def finish_read(self) -> bool:
        if self.in_flight is None:
            return False
        is_replay, entries = self.in_flight
        self.in_flight = None
        if is_replay:
            run = [self.candidate(each) for each in entries]
            assignments = self.dispatcher.assign_replayed(run)
        else:
            run = [self.candidate(each) for each in entries if each not in self.acknowledged]
            assignments, taken = self.dispatcher.assign(run)
            untaken = run[taken:]
            self.read_next = untaken[0].position.entry_id if untaken else entries[-1] + 1
        for at, state, _ in assignments:
            self.deliver(state, run[at].position.entry_id)
        return True

    # Invariants

    def deliver(self, state: ConsumerState, entry: int) -> None:
        assert self.permits[state] > 0, "permits are respected"
        assert entry not in self.acknowledged, "acknowledged entries stay away"
        self.check_delivery(state, entry)
        self.permits[state] -= self.log[entry][0]
        self.held[state].add(entry)
        self.delivered_last = entry

    def check_delivery(self, state: ConsumerState, entry: int) -> None:
        raise NotImplementedError

    @invariant()
    def the_dispatcher_counts_as_the_model_does(self) -> None:
        assert {each: each.permits for each in self.held} == self.permits
        if not self.is_ordered:
            for state, held in self.held.items():
                assert {each.entry_id for each in state.pending} == held
                assert state.unacked_messages == sum(self.log[each][0] for each in held)

    def teardown(self) -> None:
        if not hasattr(self, "dispatcher"):
            return
        if not self.held:
            self.connect(priority=0, permits=1)
        self.is_eager = True
        for _ in range(3 * len(self.log) + 3):
            if len(self.acknowledged) == len(self.log):
                break
            for state in list(self.held):
                state.permits += 2
                self.permits[state] += 2
                self.dispatch()
                for entry in sorted(self.held[state])[:2]:
                    self.acknowledge_entry(state, entry)
        assert self.acknowledged == set(range(len(self.log))), "nothing is lost"
        assert self.cursor.mark_delete == Position(1, len(self.log) - 1)

    # Inside

    def happened(self, *, rewind: bool = False) -> None:
        if rewind or not self.held:
            self.read_next = self.cursor.mark_delete.entry_id + 1
            self.delivered_last, self.in_flight = -1, None
        if not self.held:
            self.dispatcher = type(self).make()
        if self.is_eager:
            self.dispatch()

    def leave(self, state: ConsumerState) -> None:
        del self.held[state], self.permits[state]
        self.happened(rewind=self.dispatcher.remove(state))

    def candidate(self, entry: int) -> Candidate:
        messages, slot = self.log[entry]
        return Candidate(Position(1, entry), messages, 1, slot)

    def acknowledge_entry(self, state: ConsumerState, entry: int) -> None:
        self.acknowledged.add(entry)
        self.dispatcher.settle(state, Position(1, entry))
        self.cursor.acknowledge(Position(1, entry))
        for held in self.held.values():
            held.discard(entry)


class SharedMachine(DispatchMachine):
    make: ClassVar[Callable[[], Dispatcher]] = SharedDispatcher

    def check_delivery(self, state: ConsumerState, entry: int) -> None:
        assert not any(entry in held for held in self.held.values()), "one consumer at a time"


class KeySharedMachine(SharedMachine):
    make: ClassVar[Callable[[], Dispatcher]] = partial(KeySharedDispatcher, look_ahead_max=4)

    def check_delivery(self, state: ConsumerState, entry: int) -> None:
        super().check_delivery(state, entry)
        slot = self.log[entry][1]
        for earlier in range(entry):
            if self.log[earlier][1] == slot and earlier not in self.acknowledged:
                assert earlier in self.held[state], "a key's entries go out in order, to one"
        for other, held in self.held.items():
            if other is not state:
                assert slot not in {self.log[each][1] for each in held}, "a key has one consumer"


class OrderedMachine(DispatchMachine):
    make: ClassVar[Callable[[], Dispatcher]] = SingleActiveDispatcher
    is_ordered = True

    def check_delivery(self, state: ConsumerState, entry: int) -> None:
        assert state is on_ring("", list(self.held)), "only the active consumer gets entries"
        skipped = set(range(self.delivered_last + 1, entry)) - self.acknowledged
        assert entry > self.delivered_last, "in order"
        assert not skipped, "without gaps"


def on_ring(topic: str, consumers: list[ConsumerState]) -> ConsumerState:
    """Returns the active consumer by Pulsar's rules: a sorted map of points, and its ceiling."""
    lowest = min(each.priority for each in consumers)
    ring = dict[int, ConsumerState]()
    for each in sorted(consumers, key=lambda each: each.name):
        if each.priority == lowest:
            ring |= {murmur3_32(f"{each.name}{point}"): each for point in range(100)}
    return ring[min((each for each in ring if each >= murmur3_32(topic)), default=min(ring))]


class ExclusiveMachine(OrderedMachine):
    consumers_max = 1


COMMON = settings(max_examples=examples(80), stateful_step_count=40, deadline=None)
TestSharedDispatch = SharedMachine.TestCase
TestSharedDispatch.settings = COMMON
TestKeySharedDispatch = KeySharedMachine.TestCase
TestKeySharedDispatch.settings = COMMON
TestFailoverDispatch = OrderedMachine.TestCase
TestFailoverDispatch.settings = COMMON
TestExclusiveDispatch = ExclusiveMachine.TestCase
TestExclusiveDispatch.settings = COMMON


class LosingDispatcher(SharedDispatcher):
    """Forgets entries that are given back."""

    def _give_back(
        self,
        consumer: ConsumerState,
        positions: Collection[Position],
        uncounted: Collection[Position],
    ) -> None:
        for position in positions:
            self._take_back(consumer, position)


class LosingMachine(SharedMachine):
    make: ClassVar[Callable[[], Dispatcher]] = LosingDispatcher


def test_the_model_notices_a_dispatcher_that_loses_entries() -> None:
    """A canary: this machine must fail."""
    quick = settings(
        COMMON, max_examples=80, derandomize=True, database=None, phases=[Phase.generate]
    )
    with pytest.raises(AssertionError, match="nothing is lost"):
        run_state_machine_as_test(LosingMachine, settings=quick)

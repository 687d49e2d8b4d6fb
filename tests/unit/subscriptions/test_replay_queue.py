"""The replay queue stays in order during additions and removals, without sorting again."""

from __future__ import annotations

from itertools import islice
from typing import ClassVar

from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.subscriptions.dispatcher import Unsettled
from ledgerfold.broker.subscriptions.replay_queue import ReplayQueue
from ledgerfold.storage.entry import Position

IDS = st.integers(0, 40)


class CountedPosition(Position):
    """Counts every look at it."""

    steps: ClassVar[int] = 0

    def __lt__(self, other: object) -> bool:
        CountedPosition.steps += 1
        return tuple.__lt__(self, other)  # type: ignore[operator]

    def __hash__(self) -> int:
        CountedPosition.steps += 1
        return tuple.__hash__(self)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.lists(IDS, max_size=30)),
            st.tuples(st.just("pop"), st.lists(IDS, max_size=30)),
            st.tuples(st.just("look"), st.just([])),
        ),
        max_size=40,
    )
)
def test_entries_are_ordered_by_id(steps: list[tuple[str, list[int]]]) -> None:
    queue, expected = ReplayQueue(), dict[Position, Unsettled]()
    for number, (what, ids) in enumerate(steps):
        for each in (Position(1, entry_id) for entry_id in ids):
            if what == "add":
                expected[each] = Unsettled(1, number, 0)
                queue.add(each, expected[each])
            else:
                assert queue.pop(each) == expected.pop(each, None)
            assert (each in queue, queue.get(each)) == (each in expected, expected.get(each))
        if what == "look":
            assert list(queue) == sorted(expected)
        assert len(queue) == len(expected)
    assert list(queue) == sorted(expected)
    assert [queue[each] for each in queue] == [expected[each] for each in sorted(expected)]


def test_adding_or_removing_one_entry_is_cheap() -> None:
    """As if a consumer took a long queue entry by entry, and returned some."""
    queue, count = ReplayQueue(), 20_000
    for entry_id in range(count):
        queue.add(CountedPosition(1, entry_id), Unsettled(1, 0, 0))
    list(islice(queue, 1))
    CountedPosition.steps = 0
    for entry_id in range(count):
        (first,) = islice(queue, 1)
        assert first.entry_id == entry_id
        entry = queue.pop(first)
        if entry_id % 100 == 0:
            assert entry is not None
            queue.add(first, entry)
            assert list(islice(queue, 1)) == [first]
            queue.pop(first)
    assert len(queue) == 0
    assert CountedPosition.steps < 20 * count

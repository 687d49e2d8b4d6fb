"""Tests a consumer's tracker: partly acknowledged batches, and redeliveries that are due."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.client.streams.tracker import BatchAcknowledgements, DelayedPositions
from ledgerfold.storage.entry import Position

FIRST, SECOND, THIRD = Position(1, 0), Position(1, 1), Position(1, 2)


def test_a_batch_is_acknowledged_with_its_last_message() -> None:
    """Its messages may be acknowledged in any order."""
    tracker = BatchAcknowledgements()
    tracker.opened(FIRST, range(3))
    assert [tracker.acknowledge(FIRST, index) for index in (2, 0, 1)] == [False, False, True]
    assert len(tracker) == 0


def test_acknowledging_twice_counts_once() -> None:
    """A repeated acknowledgement does not count for another message."""
    tracker = BatchAcknowledgements()
    tracker.opened(FIRST, range(2))
    assert not tracker.acknowledge(FIRST, 0)
    assert not tracker.acknowledge(FIRST, 0)
    assert tracker.acknowledge(FIRST, 1)
    assert not tracker.acknowledge(FIRST, 1)


def test_an_unbatched_message_is_its_entry() -> None:
    """Without a batch there is nothing to count."""
    assert BatchAcknowledgements().acknowledge(FIRST, -1)


def test_an_undecodable_batch_leaves_nothing_behind() -> None:
    """Such an entry is registered, because it is a batch, and has one message without an index."""
    tracker = BatchAcknowledgements()
    for position in (FIRST, SECOND):
        assert tracker.opened(position, [-1]) == [-1]
    assert tracker.acknowledge(FIRST, -1)
    assert len(tracker) == 1
    assert tracker.acknowledge_cumulative(SECOND, -1) == SECOND
    assert len(tracker) == 0


def test_an_acknowledgement_of_an_unknown_batch_is_ignored() -> None:
    """Acknowledging one message of a batch never seen must not lose the others."""
    assert not BatchAcknowledgements().acknowledge(FIRST, 0)


def test_a_compacted_batch_counts_its_remaining_messages() -> None:
    """Batch indexes have gaps after a compaction."""
    tracker = BatchAcknowledgements()
    assert tracker.opened(FIRST, [3, 7]) == [3, 7]
    assert not tracker.acknowledge(FIRST, 7)
    assert tracker.acknowledge(FIRST, 3)


def test_a_redelivered_batch_omits_acknowledged_messages() -> None:
    """Only unacknowledged messages are delivered again."""
    tracker = BatchAcknowledgements()
    tracker.opened(FIRST, range(4))
    tracker.acknowledge(FIRST, 1)
    assert tracker.opened(FIRST, range(4)) == [0, 2, 3]


def test_the_cost_of_an_acknowledgement_does_not_depend_on_the_batch_size() -> None:
    """It changes a bit in place, without a copy of the batch's set."""
    tracker = BatchAcknowledgements()
    tracker.opened(FIRST, range(300_000))
    tracemalloc.start()
    try:
        for index in (299_999, 0, 150_000):
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            assert not tracker.acknowledge(FIRST, index)
            assert tracker.acknowledge_cumulative(FIRST, 5) in (None, Position(1, -1))
            assert tracemalloc.get_traced_memory()[1] - before < 2_000
    finally:
        tracemalloc.stop()


@given(
    st.sets(st.integers(0, 40), min_size=1),
    st.lists(st.tuples(st.booleans(), st.integers(0, 42)), max_size=60),
)
def test_acknowledgements_agree_with_a_set(
    indexes: set[int], acknowledged: list[tuple[bool, int]]
) -> None:
    """One by one and cumulatively, with gaps, repeated, of messages that are not there."""
    tracker, left = BatchAcknowledgements(), set(indexes)
    tracker.opened(FIRST, sorted(indexes))
    for is_cumulative, index in acknowledged:
        if is_cumulative:
            upto = tracker.acknowledge_cumulative(FIRST, index)
            left = {one for one in left if one > index}
            is_done = upto == FIRST
        else:
            is_done = tracker.acknowledge(FIRST, index)
            left.discard(index)
        assert is_done == (not left)
        if is_done:
            return
        assert tracker.opened(FIRST, sorted(indexes)) == sorted(left)


def test_a_cumulative_acknowledgement_within_a_batch_covers_earlier_entries() -> None:
    """As in Pulsar; the batch itself follows with its last message."""
    tracker = BatchAcknowledgements()
    for position in (FIRST, SECOND, THIRD):
        tracker.opened(position, range(3))
    assert tracker.acknowledge_cumulative(THIRD, 1) == SECOND
    assert len(tracker) == 1
    assert tracker.acknowledge_cumulative(THIRD, 1) is None
    assert tracker.acknowledge_cumulative(THIRD, 2) == THIRD


def test_a_cumulative_acknowledgement_completes_a_partly_acknowledged_batch() -> None:
    """Single acknowledgements and a cumulative one add up."""
    tracker = BatchAcknowledgements()
    tracker.opened(FIRST, range(3))
    tracker.acknowledge(FIRST, 2)
    assert tracker.acknowledge_cumulative(FIRST, 1) == FIRST


def test_positions_are_due_in_order_after_their_delay() -> None:
    """The delay counts from the last time the entry was added."""
    delayed = DelayedPositions(100)
    delayed.add(FIRST, 0)
    delayed.add(SECOND, 10)
    delayed.add(FIRST, 20)
    assert delayed.next_due_ms == 110
    assert delayed.take_due(109) == []
    assert delayed.take_due(115) == [SECOND]
    assert delayed.take_due(120) == [FIRST]
    assert delayed.next_due_ms is None


def test_acknowledged_messages_are_not_due() -> None:
    """One by one, and all up to a position."""
    delayed = DelayedPositions(100)
    for position in (FIRST, SECOND, THIRD):
        delayed.add(position, 0)
    delayed.discard(THIRD)
    delayed.discard_through(FIRST)
    assert delayed.take_due(1000) == [SECOND]

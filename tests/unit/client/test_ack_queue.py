"""Tests acknowledgements in flight: none is lost, and requests are few."""

from __future__ import annotations

import threading

from ledgerfold.broker.client.streams.ack_queue import CONFIRM_AT, UNANSWERED_MAX, AckQueue
from ledgerfold.storage.entry import Position
from ledgerfold.v1 import data_pb2
from tests.support.waiting import WAIT_S


def filled(count: int, first: int = 0) -> AckQueue:
    queue = AckQueue()
    add(queue, count, first)
    return queue


def add(queue: AckQueue, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        queue.add(Position(1, number))


def frames(queue: AckQueue) -> list[data_pb2.Ack]:
    """All that is to be sent now."""
    return list(iter(queue.next_ack, None))


def entry_ids(acks: list[data_pb2.Ack]) -> list[int]:
    return [position.entry_id for ack in acks for position in ack.positions]


def test_answered_acknowledgements_are_forgotten() -> None:
    """None is resent when the connection breaks later."""
    queue = filled(3)
    queue.request_confirmation()
    [ack] = frames(queue)
    add(queue, 2, first=3)
    frames(queue)
    queue.answered(ack.request_id)
    assert len(queue)
    queue.on_loss()
    assert entry_ids(frames(queue)) == [3, 4]


def test_unanswered_acknowledgements_are_resent_in_order() -> None:
    """They precede later ones, and request an answer."""
    queue = filled(3)
    frames(queue)
    add(queue, 2, first=3)
    queue.on_loss()
    again = frames(queue)
    assert entry_ids(again) == [0, 1, 2, 3, 4]
    queue.answered(again[-1].request_id)
    assert not len(queue)


def test_an_answer_of_a_broken_connection_is_ignored() -> None:
    """Resent acknowledgements wait for the answer to their request."""
    queue = filled(1)
    queue.request_confirmation()
    [first] = frames(queue)
    queue.on_loss()
    [second] = frames(queue)
    queue.answered(first.request_id)
    assert len(queue)
    queue.answered(second.request_id)
    assert not len(queue)


def test_one_request_covers_many_acknowledgements() -> None:
    """It is sent after many acknowledgements, and not again before the answer."""
    queue = filled(CONFIRM_AT - 1)
    assert [ack.request_id for ack in frames(queue)] == [0]
    add(queue, 1, first=CONFIRM_AT)
    [asking] = frames(queue)
    assert asking.request_id
    add(queue, CONFIRM_AT, first=2 * CONFIRM_AT)
    queue.request_confirmation()
    assert [ack.request_id for ack in frames(queue)] == [0]
    queue.answered(asking.request_id)
    [question] = frames(queue)
    assert not question.positions
    assert question.request_id == asking.request_id + 1


def test_no_request_is_sent_without_an_acknowledgement() -> None:
    """The broker is not asked about nothing."""
    queue = AckQueue()
    queue.request_confirmation()
    assert frames(queue) == []


def test_the_last_of_several_cumulative_acknowledgements_counts() -> None:
    """Also after a lost connection; and an answer to the first leaves the second."""
    queue = AckQueue()
    queue.add_cumulative(Position(1, 4))
    queue.request_confirmation()
    [first] = frames(queue)
    assert first.cumulative
    queue.add_cumulative(Position(1, 9))
    frames(queue)
    queue.answered(first.request_id)
    queue.on_loss()
    [again] = frames(queue)
    assert again.cumulative
    assert entry_ids([again]) == [9]


def test_an_entry_is_queued_once() -> None:
    """However often it is acknowledged, sent or not."""
    queue = filled(2)
    add(queue, 2)
    assert entry_ids(frames(queue)) == [0, 1]
    add(queue, 2)
    assert frames(queue) == []
    assert len(queue) == 2


def test_acknowledgements_beyond_one_frame_are_requested_too() -> None:
    """A caller that waits for an answer waits for all acknowledgements."""
    queue = filled(12_000)
    queue.request_confirmation()
    while len(queue):
        asking = [ack.request_id for ack in frames(queue) if ack.request_id]
        assert len(asking) == 1
        queue.answered(asking[0])


def test_threads_add_while_the_event_loop_takes() -> None:
    """Each is taken once, and a thread that adds to an empty queue wakes the sender."""
    queue, wake = AckQueue(), threading.Semaphore(0)

    def add_some(first: int) -> None:
        for number in range(first, first + 10_000):
            if queue.add(Position(1, number)):
                wake.release()

    threads = [threading.Thread(target=add_some, args=(first,)) for first in (0, 10_000)]
    for thread in threads:
        thread.start()
    taken: list[int] = []
    while len(taken) < 20_000:
        assert wake.acquire(timeout=WAIT_S)
        for ack in frames(queue):
            taken += entry_ids([ack])
            if ack.request_id:
                queue.answered(ack.request_id)
    assert sorted(taken) == list(range(20_000))
    for thread in threads:
        thread.join()


def test_the_queue_reports_when_it_is_full() -> None:
    """Sent or not."""
    queue = filled(UNANSWERED_MAX)
    assert not queue.is_full
    frames(queue)
    add(queue, 1, first=UNANSWERED_MAX)
    assert queue.is_full


def test_clearing_forgets_everything() -> None:
    """After a seek: sent and unsent ones."""
    queue = filled(3)
    queue.request_confirmation()
    frames(queue)
    queue.add_cumulative(Position(1, 9))
    add(queue, 1, first=5)
    queue.clear()
    queue.on_loss()
    assert frames(queue) == []

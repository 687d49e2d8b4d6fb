"""Access modes: which producer may publish, wait or is fenced, and the epoch on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerfold.broker.topics.access import AccessMode, Claim
from ledgerfold.broker.topics.operations import terminate_topic
from ledgerfold.broker.topics.producer import Producer
from ledgerfold.storage.errors import (
    DiskFailure,
    InvalidRequest,
    LedgerfoldError,
    Moved,
    ProducerBusy,
    ProducerFenced,
    TopicTerminated,
)
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.property_tests import examples
from tests.support.waiting import WAIT_S

SHARED, EXCLUSIVE, WAIT, FENCING = AccessMode


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()
    lab.loop.close()


def attach(
    lab: BrokerLab, name: str, mode: AccessMode = SHARED, epoch: int | None = None
) -> Producer:
    return lab.run(lab.topic.attach_producer(name, Claim(mode, epoch)))


def waiting(lab: BrokerLab, name: str) -> asyncio.Task[Producer]:
    """A producer that waits for exclusive access."""
    queued = asyncio.Event()
    claim = Claim(WAIT, on_queued=queued.set)
    task = lab.loop.create_task(lab.topic.attach_producer(name, claim))
    lab.run(queued.wait())
    return task


def test_an_exclusive_producer_excludes_all_others(lab: BrokerLab) -> None:
    only = attach(lab, "only", EXCLUSIVE)
    with pytest.raises(ProducerBusy, match="exclusive access"):
        attach(lab, "other")
    with pytest.raises(ProducerFenced):
        attach(lab, "other", EXCLUSIVE)
    only.detach()
    shared = attach(lab, "other")
    with pytest.raises(ProducerFenced, match="other producers"):
        attach(lab, "only", EXCLUSIVE)
    shared.detach()
    attach(lab, "only", EXCLUSIVE).detach()


def test_the_epoch_rises_and_survives_a_crash(lab: BrokerLab) -> None:
    assert attach(lab, "shared").topic_epoch is None
    lab.topic.producers["shared"].detach()
    for epoch in range(3):
        producer = attach(lab, "p", EXCLUSIVE)
        assert producer.topic_epoch == epoch
        producer.detach()
    lab.crash()
    assert attach(lab, "shared").topic_epoch == 2
    lab.topic.producers["shared"].detach()
    again = attach(lab, "p", EXCLUSIVE, epoch=2)
    assert again.topic_epoch == 2
    again.detach()
    with pytest.raises(ProducerFenced, match="has epoch 2; this producer had epoch 1"):
        attach(lab, "p", EXCLUSIVE, epoch=1)
    with pytest.raises(InvalidRequest):
        Claim(EXCLUSIVE, 2**62)


def test_waiting_producers_get_access_in_order(lab: BrokerLab) -> None:
    first = attach(lab, "first", WAIT)
    second, third = waiting(lab, "second"), waiting(lab, "third")
    with pytest.raises(ProducerBusy):
        attach(lab, "shared")
    with pytest.raises(ProducerFenced):
        attach(lab, "exclusive", EXCLUSIVE)
    first.detach()
    producer = lab.run(asyncio.wait_for(second, WAIT_S))
    assert (producer.topic_epoch, third.done()) == (1, False)
    producer.detach()
    lab.run(asyncio.wait_for(third, WAIT_S)).detach()
    attach(lab, "shared").detach()


def test_a_waiting_producer_precedes_a_reconnecting_one(lab: BrokerLab) -> None:
    """As in Pulsar: whose connection breaks has lost its access to the next in line."""
    broken, task = attach(lab, "broken", EXCLUSIVE), waiting(lab, "w")
    broken.detach()
    producer = lab.run(asyncio.wait_for(task, WAIT_S))
    assert (broken.topic_epoch, producer.topic_epoch) == (0, 1)
    with pytest.raises(ProducerFenced):
        attach(lab, "broken", EXCLUSIVE, epoch=0)
    producer.detach()
    with pytest.raises(ProducerFenced, match="this producer had epoch 0"):
        attach(lab, "broken", EXCLUSIVE, epoch=0)


def test_the_last_shared_producer_admits_a_waiting_one(lab: BrokerLab) -> None:
    shared = [attach(lab, name) for name in ("a", "b")]
    task = waiting(lab, "w")
    shared[0].detach()
    lab.settle()
    assert not task.done()
    shared[1].detach()
    assert lab.run(asyncio.wait_for(task, WAIT_S)).name == "w"


def test_the_first_of_two_errors_ends_a_wait(lab: BrokerLab) -> None:
    shared, claim = attach(lab, "shared"), Claim(WAIT)
    task = lab.loop.create_task(lab.topic.attach_producer("w", claim))
    lab.settle()
    claim.give_up(Moved("closed"))
    claim.give_up(InvalidRequest("late"))
    with pytest.raises(Moved, match="closed"):
        lab.run(asyncio.wait_for(task, WAIT_S))
    shared.detach()


def test_a_cancelled_producer_leaves_the_queue(lab: BrokerLab) -> None:
    shared = attach(lab, "shared")
    claim = Claim(WAIT)
    task = lab.loop.create_task(lab.topic.attach_producer("w", claim))
    cancelled = waiting(lab, "c")
    claim.give_up(Moved("closed"))
    cancelled.cancel()
    with pytest.raises(Moved):
        lab.run(asyncio.wait_for(task, WAIT_S))
    lab.settle()
    attach(lab, "another").detach()
    shared.detach()


@pytest.mark.parametrize("mode", AccessMode)
def test_a_producer_cancelled_early_is_not_queued(lab: BrokerLab, mode: AccessMode) -> None:
    """The client closed its producer while the topic was being loaded, for example."""
    shared, queued, claim = attach(lab, "shared"), list[str](), Claim(mode)
    claim.on_queued = lambda: queued.append("w")
    claim.give_up(Moved("closed"))
    task = lab.loop.create_task(lab.topic.attach_producer("w", claim))
    lab.settle()
    assert (task.done(), queued) == (True, [])
    with pytest.raises(Moved):
        task.result()
    attach(lab, "another").detach()
    assert lab.topic.producers == {"shared": shared}


def test_a_producer_cancelled_when_it_gets_access_keeps_the_epoch(lab: BrokerLab) -> None:
    first, claim = attach(lab, "first", EXCLUSIVE), Claim(WAIT)
    task = lab.loop.create_task(lab.topic.attach_producer("w", claim))
    lab.settle()
    first.detach()
    claim.give_up(Moved("closed"))
    with pytest.raises(Moved):
        lab.run(asyncio.wait_for(task, WAIT_S))
    assert lab.topic.access.epoch == 0
    attach(lab, "another").detach()


def test_fencing_disconnects_all_others(lab: BrokerLab) -> None:
    shared = attach(lab, "shared")
    task = waiting(lab, "w")
    fencing = attach(lab, "shared", FENCING)
    with pytest.raises(ProducerFenced):
        lab.run(asyncio.wait_for(task, WAIT_S))
    entry = memoryview(lab.entry([Message(b"a", b"1")], is_batch=False))
    with pytest.raises(ProducerFenced):
        shared.append_all([entry])
    with pytest.raises(ProducerFenced):
        lab.run(shared.receipts())
    shared.detach()

    async def publish() -> int:
        fencing.append_all([entry])
        return len(await fencing.receipts())

    assert lab.run(publish()) == 1
    later = attach(lab, "later", FENCING)
    assert later.topic_epoch == 1
    with pytest.raises(ProducerFenced):
        attach(lab, "shared", FENCING, epoch=0)
    assert lab.topic.producers == {"later": later}


def test_an_unload_disconnects_waiting_producers(lab: BrokerLab) -> None:
    attach(lab, "p", EXCLUSIVE)
    task = waiting(lab, "w")
    lab.run(lab.broker.unload_topic(TOPIC))
    with pytest.raises(Moved):
        lab.run(asyncio.wait_for(task, WAIT_S))
    attach(lab, "p", EXCLUSIVE, epoch=0)


def test_a_terminated_topic_admits_no_waiting_producer(lab: BrokerLab) -> None:
    producer = attach(lab, "p", EXCLUSIVE)
    task = waiting(lab, "w")
    lab.run(terminate_topic(lab.broker, TOPIC))
    producer.detach()
    with pytest.raises(TopicTerminated):
        lab.run(asyncio.wait_for(task, WAIT_S))


def test_a_full_disk_grants_access_to_no_producer(lab: BrokerLab) -> None:
    topic = lab.topic
    lab.files.fail_at(1)
    with pytest.raises(DiskFailure):
        lab.run(topic.attach_producer("p", Claim(EXCLUSIVE)))
    lab.files.fail_at(0)
    lab.run(topic.attach_producer("p", Claim(EXCLUSIVE)))


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from("abcd"), st.sampled_from(list(AccessMode))),
            st.tuples(st.sampled_from("abcd"), st.none()),
        ),
        max_size=25,
    )
)
def test_any_order_of_events_keeps_access_exclusive(
    steps: list[tuple[str, AccessMode | None]],
) -> None:
    """At most one exclusive producer, alone; epochs rise; no producer waits for a free topic."""
    lab = BrokerLab()
    topic, tasks = lab.topic, list[asyncio.Task[Producer]]()
    last_epoch = -1
    for name, mode in steps:
        if mode is not None:
            tasks.append(lab.loop.create_task(topic.attach_producer(name, Claim(mode))))
        elif name in topic.producers:
            topic.producers[name].detach()
        lab.settle()
        modes = [each.claim.mode for each in topic.producers.values()]
        assert len(modes) < 2 or set(modes) == {SHARED}
        if modes and modes != [SHARED] * len(modes):
            assert topic.access.epoch is not None
            assert topic.access.epoch >= last_epoch
            last_epoch = topic.access.epoch
        assert modes or all(task.done() for task in tasks)
    lab.run(lab.broker.stop())
    for task in tasks:
        assert task.done()
        assert task.exception() is None or isinstance(task.exception(), LedgerfoldError)
    lab.loop.close()

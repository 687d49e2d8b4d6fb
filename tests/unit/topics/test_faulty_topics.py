"""Producers, consumers and readers of a topic under rules of faults, below all doors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from ledgerfold.broker.faults.faults import Faults
from ledgerfold.broker.subscriptions.consumer import Consumer, ConsumerOptions, Delivery
from ledgerfold.broker.subscriptions.dispatcher import SubscriptionType
from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.broker.topics.operations import terminate_topic
from ledgerfold.broker.topics.producer import Producer
from ledgerfold.broker.topics.reader import Reader, ReaderOptions
from ledgerfold.broker.topics.receipts import NOWHERE, Receipt
from ledgerfold.broker.topics.reset import reset
from ledgerfold.broker.topics.stream_reader import Entries
from ledgerfold.storage.entry import EARLIEST
from ledgerfold.storage.errors import (
    CompactionFailed,
    Corruption,
    InvalidRequest,
    Moved,
    ProducerBusy,
    SubscriptionBusy,
    TopicTerminated,
)
from ledgerfold.v1.admin_pb2 import (
    COMPACTION_PHASE_COMMIT,
    COMPACTION_PHASE_TWO,
    FAULT_KIND_DELAY,
    FAULT_KIND_DISCONNECT,
    FAULT_KIND_FAIL,
    FAULT_KIND_FAIL_COMPACTION,
    FAULT_KIND_LOSE_RECEIPT,
    FAULT_OPERATION_CREATE_PRODUCER,
    FAULT_OPERATION_PUBLISH,
    FAULT_OPERATION_READ,
    FAULT_OPERATION_SUBSCRIBE,
    CompactionPhase,
    Fault,
)
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import RUN_STATE_ERROR
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.waiting import WAIT_S

HOUR_MS = 3_600_000
BEGIN = StartPosition(earliest=True)


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def lab(faults: Faults) -> Iterator[BrokerLab]:
    lab = BrokerLab(faults)
    yield lab
    lab.stop()


def entry(lab: BrokerLab, messages: int = 1) -> memoryview:
    built = lab.entry([Message(b"k", b"v")] * messages, is_batch=messages > 1)
    return memoryview(built)


def on_publish(kind: Any, **values: Any) -> Fault:
    return Fault(kind=kind, operation=FAULT_OPERATION_PUBLISH, **values)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def receipts(producer: Producer, count: int) -> list[Receipt]:
    found = list[Receipt]()
    while len(found) < count:
        found += await producer.receipts()
    return found


def stored(lab: BrokerLab) -> int:
    return len(lab.read(EARLIEST, read_compacted=False))


def test_a_broker_without_faults_skips_all_checks_for_them() -> None:
    """Its publishes and reads cost what they did."""
    lab = BrokerLab()
    lab.publish([([Message(b"k", b"v")], False)])

    async def scenario() -> None:
        topic = await lab.broker.topic(TOPIC)
        consumer, reader = await consumer_of(lab), await reader_of(lab)
        kinds = type(await topic.attach_producer("p")), type(consumer), type(reader)
        assert kinds == (Producer, Consumer, Reader)
        assert lab.broker.compaction._run_plan == lab.compactor.run
        reader.detach()

    lab.run(scenario())
    lab.stop()


# Producers


def test_a_failed_message_is_not_stored_and_others_are(lab: BrokerLab, faults: Faults) -> None:
    faults.add(on_publish(FAULT_KIND_FAIL, error="ProducerBusy", next=2, producer="p"))

    async def scenario() -> None:
        topic = await lab.broker.topic(TOPIC)
        producer, other = await topic.attach_producer("p"), await topic.attach_producer("q")
        producer.append_all([entry(lab) for _ in range(4)])
        found = await receipts(producer, 4)
        assert [type(each.refusal) for each in found[:2]] == [ProducerBusy, ProducerBusy]
        assert all(each.refusal is None and each.position != NOWHERE for each in found[2:])
        other.append_all([entry(lab)])
        assert (await receipts(other, 1))[0].refusal is None

    lab.run(scenario())
    assert stored(lab) == 3


def test_a_rule_disconnects_at_every_third_message_and_does_not_store_it(
    lab: BrokerLab, faults: Faults
) -> None:
    """Entries before it in the same frame are stored; a batch counts as its messages."""
    faults.add(on_publish(FAULT_KIND_DISCONNECT, every=3))

    async def scenario() -> None:
        topic = await lab.broker.topic(TOPIC)
        producer = await topic.attach_producer("p")
        producer.append_all([entry(lab), entry(lab), entry(lab, 2), entry(lab)])
        with pytest.raises(Moved, match="fault 1 has disconnected it"):
            await receipts(producer, 3)
        with pytest.raises(Moved):
            producer.append_all([entry(lab)])

    lab.run(scenario())
    assert stored(lab) == 2
    assert faults.listed()[0].hits == 1


def test_a_disconnected_producer_stores_nothing_more_after_the_rules_end(
    lab: BrokerLab, faults: Faults
) -> None:
    """Else a later message would be stored, and the dropped one be taken for sent before."""
    faults.add(on_publish(FAULT_KIND_DISCONNECT, next=1))

    async def scenario() -> None:
        topic = await lab.broker.topic(TOPIC)
        producer = await topic.attach_producer("p")
        producer.append_all([entry(lab)])
        faults.clear()
        producer.append_all([entry(lab)])
        with pytest.raises(Moved, match="has disconnected it"):
            await receipts(producer, 1)

    lab.run(scenario())
    assert stored(lab) == 0


def test_a_message_without_its_receipt_is_stored_once(lab: BrokerLab, faults: Faults) -> None:
    """Its producer is disconnected, and sends it again."""
    faults.add(Fault(kind=FAULT_KIND_LOSE_RECEIPT, next=1))
    first, second = entry(lab), entry(lab)

    async def scenario() -> None:
        topic = await lab.broker.topic(TOPIC)
        producer = await topic.attach_producer("p")
        producer.combines_receipts = True
        producer.append_all([first, second])
        with pytest.raises(Moved):
            await receipts(producer, 1)
        producer.detach()
        again = await topic.attach_producer("p")
        again.append_all([first, second])
        positions = [each.position for each in await receipts(again, 2)]
        # The second one was dropped with the connection.
        assert (positions[0], positions[1].entry_id) == (NOWHERE, 1)

    lab.run(scenario())
    assert stored(lab) == 2


def test_a_connected_producer_gets_later_receipts(lab: BrokerLab, faults: Faults) -> None:
    faults.add(Fault(kind=FAULT_KIND_LOSE_RECEIPT, keeps_connection=True, next=1))
    first, second = entry(lab), entry(lab)

    async def scenario() -> None:
        topic = await lab.broker.topic(TOPIC)
        producer = await topic.attach_producer("p")
        producer.append_all([first, second])
        (receipt,) = await receipts(producer, 1)
        assert receipt.position.entry_id == 1
        producer.finish()
        assert await producer.receipts() == []

    lab.run(scenario())
    assert stored(lab) == 2


def test_receipts_are_delayed_in_order_until_the_rule_is_removed(
    lab: BrokerLab, faults: Faults
) -> None:
    slow = faults.add(on_publish(FAULT_KIND_DELAY, delay_ms=HOUR_MS, every=2))

    async def scenario() -> None:
        topic = await lab.broker.topic(TOPIC)
        producer = await topic.attach_producer("p")
        producer.append_all([entry(lab) for _ in range(3)])
        assert [each.position.entry_id for each in await receipts(producer, 1)] == [0]
        waiting = asyncio.ensure_future(receipts(producer, 2))
        await turns()
        assert not waiting.done()
        faults.remove(slow.id)
        late = await asyncio.wait_for(waiting, WAIT_S)
        assert [each.position.entry_id for each in late] == [1, 2]

    lab.run(scenario())


@pytest.mark.parametrize("end", ["unload", "delete"])
def test_delayed_receipts_do_not_delay_the_end_of_a_topic(
    lab: BrokerLab, faults: Faults, end: str
) -> None:
    faults.add(on_publish(FAULT_KIND_DELAY, delay_ms=HOUR_MS))

    async def scenario() -> None:
        topic = await lab.broker.topic(TOPIC)
        producer = await topic.attach_producer("p")
        producer.append_all([entry(lab)])
        waiting = asyncio.ensure_future(producer.receipts())
        await turns()
        if end == "unload":
            await lab.broker.unload_topic(TOPIC)
        else:
            await lab.broker.delete_topic(TOPIC, force=True)
        with pytest.raises(Moved):
            await asyncio.wait_for(waiting, WAIT_S)

    lab.run(scenario())


def test_a_reset_removes_all_rules(lab: BrokerLab, faults: Faults) -> None:
    faults.add(on_publish(FAULT_KIND_DELAY, delay_ms=HOUR_MS))
    lab.run(reset(lab.broker))
    assert faults.listed() == []


def test_an_invalid_entry_after_valid_ones_is_refused(lab: BrokerLab, faults: Faults) -> None:
    faults.add(on_publish(FAULT_KIND_FAIL, error="ProducerBusy", every=2))

    async def scenario() -> None:
        topic = await lab.broker.topic(TOPIC)
        producer = await topic.attach_producer("p")
        with pytest.raises(InvalidRequest):
            producer.append_all([entry(lab), memoryview(b"x" * 100), entry(lab)])
        assert len(await receipts(producer, 1)) == 1

    lab.run(scenario())
    assert stored(lab) == 1
    assert faults.listed()[0].hits == 0


def test_a_producer_is_refused_when_it_connects(lab: BrokerLab, faults: Faults) -> None:
    faults.add(
        Fault(
            kind=FAULT_KIND_FAIL,
            operation=FAULT_OPERATION_CREATE_PRODUCER,
            error="TopicTerminated",
            producer="p",
            next=1,
        )
    )
    topic = lab.topic
    with pytest.raises(TopicTerminated):
        lab.run(topic.attach_producer("p"))
    lab.run(topic.attach_producer("p"))


# Consumers and readers


async def consumer_of(lab: BrokerLab) -> Consumer:
    topic = await lab.broker.topic(TOPIC)
    subscription = await create_subscription(topic, "s", BEGIN, by_consumer=True)
    options = ConsumerOptions(SubscriptionType.EXCLUSIVE, name="c")
    for attached in subscription.consumers:
        subscription.detach(attached)
    consumer = subscription.attach(options)
    subscription.add_permits(consumer, 1000)
    return consumer


async def delivered(consumer: Consumer, found: list[Delivery]) -> None:
    """Adds to `found` what the consumer gets until its end. Raises its error."""
    while output := await consumer.take():
        found += output.deliveries


def on_read(kind: Any, **values: Any) -> Fault:
    return Fault(kind=kind, operation=FAULT_OPERATION_READ, **values)


def test_a_rule_disconnects_a_consumer_every_hundredth_message(
    lab: BrokerLab, faults: Faults
) -> None:
    """It gets the rest when it connects again."""
    lab.publish([([Message(b"k", b"v")], False)] * 5)
    faults.add(on_read(FAULT_KIND_DISCONNECT, every=2, subscription="s"))

    async def scenario() -> None:
        found = list[Delivery]()
        for count in (2, 4):
            consumer = await consumer_of(lab)
            with pytest.raises(Moved, match="fault 1"):
                await delivered(consumer, found)
            positions = [each.position for each in found]
            assert positions == sorted(set(positions))
            assert len(positions) == count
            topic = await lab.broker.topic(TOPIC)
            topic.subscriptions["s"].acknowledge(consumer, positions)

    lab.run(scenario())


def test_removing_the_rule_ends_delayed_deliveries(lab: BrokerLab, faults: Faults) -> None:
    lab.publish([([Message(b"k", b"v")], False)])
    slow = faults.add(on_read(FAULT_KIND_DELAY, delay_ms=HOUR_MS, consumer="c"))

    async def scenario() -> None:
        consumer = await consumer_of(lab)
        waiting = asyncio.ensure_future(consumer.take())
        await turns()
        assert not waiting.done()
        faults.remove(slow.id)
        output = await asyncio.wait_for(waiting, WAIT_S)
        assert output is not None
        assert len(output.deliveries) == 1
        # And an end interrupts a delay.
        faults.add(on_read(FAULT_KIND_DELAY, delay_ms=HOUR_MS))
        consumer = await consumer_of(lab)
        waiting = asyncio.ensure_future(consumer.take())
        await turns()
        await lab.broker.unload_topic(TOPIC)
        with pytest.raises(Moved):
            await asyncio.wait_for(waiting, WAIT_S)

    lab.run(scenario())


async def reader_of(lab: BrokerLab) -> Reader:
    topic = await lab.broker.topic(TOPIC)
    reader = await topic.open_reader(BEGIN, ReaderOptions(name="c", subscription="r"))
    reader.add_permits(1000)
    return reader


def test_a_termination_ends_no_delays(lab: BrokerLab, faults: Faults) -> None:
    """A reader of a terminated topic still reads the rest."""
    lab.publish([([Message(b"k", b"v")], False)] * 3)

    async def scenario() -> None:
        reader = await reader_of(lab)
        reader.permits = 1
        assert await reader.take()
        faults.add(on_read(FAULT_KIND_DELAY, delay_ms=HOUR_MS))
        await terminate_topic(lab.broker, TOPIC)
        reader.add_permits(1)
        waiting = asyncio.ensure_future(reader.take())
        await turns()
        assert not waiting.done()
        await lab.broker.unload_topic(TOPIC)
        await asyncio.wait_for(waiting, WAIT_S)

    lab.run(scenario())


def test_a_reader_gets_everything_before_damage(lab: BrokerLab, faults: Faults) -> None:
    lab.publish([([Message(b"k", b"v")], False)] * 5)
    faults.add(on_read(FAULT_KIND_FAIL, error="Corruption", every=3, consumer="c"))

    async def scenario() -> None:
        reader, counts = await reader_of(lab), list[int]()

        async def read_all() -> None:
            while steps := await reader.take():
                counts.extend(len(each.entries) for each in steps if isinstance(each, Entries))

        with pytest.raises(Corruption, match="fault 1"):
            await read_all()
        assert sum(counts) == 2
        reader.detach()

    lab.run(scenario())


def test_a_rule_disconnects_a_reader_at_its_first_message(lab: BrokerLab, faults: Faults) -> None:
    lab.publish([([Message(b"k", b"v")], False)] * 2)
    faults.add(on_read(FAULT_KIND_FAIL, error="Unavailable"))

    async def scenario() -> None:
        reader = await reader_of(lab)
        with pytest.raises(Exception, match="fault 1"):
            await asyncio.wait_for(reader.take(), WAIT_S)
        reader.detach()

    lab.run(scenario())


def test_a_rule_refuses_subscriptions(lab: BrokerLab, faults: Faults) -> None:
    for name in ("s", "r"):
        faults.add(
            Fault(
                kind=FAULT_KIND_FAIL,
                operation=FAULT_OPERATION_SUBSCRIBE,
                error="SubscriptionBusy",
                subscription=name,
                next=1,
            )
        )
    for connect in (consumer_of, reader_of):
        with pytest.raises(SubscriptionBusy):
            lab.run(connect(lab))
        lab.run(connect(lab))


# Compactions


@pytest.mark.parametrize("phase", [COMPACTION_PHASE_TWO, COMPACTION_PHASE_COMMIT])
def test_a_compaction_fails_once_and_changes_nothing(
    lab: BrokerLab, faults: Faults, phase: CompactionPhase
) -> None:
    """Also if the compactor is none that can be killed."""
    lab.publish([([Message(b"k", b"1")], False), ([Message(b"k", b"2")], False)])
    faults.add(Fault(kind=FAULT_KIND_FAIL_COMPACTION, phase=phase, topic=TOPIC, next=1))
    run = lab.compact()
    assert run is not None
    assert (run.state, run.error_reason) == (RUN_STATE_ERROR, CompactionFailed.reason)
    assert "a fault rule" in run.error_message
    assert len(lab.read(EARLIEST, read_compacted=True)) == 2
    lab.settle()
    assert str(run.ledger_id) not in lab.files.listdir(lab.store.ledgers_dir)
    run = lab.compact()
    assert run is not None
    assert lab.succeeded(run)
    assert len(lab.read(EARLIEST, read_compacted=True)) == 1

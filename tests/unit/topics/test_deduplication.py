"""Tests deduplication: the remembered sequence ids are exactly the stored ones."""

from __future__ import annotations

import pytest

from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.entry import EARLIEST
from ledgerfold.storage.errors import DiskFailure
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.lossy_files import everything


def entry(lab: BrokerLab, value: bytes) -> bytes:
    return lab.entry([Message(b"k", value)], is_batch=False)


def send(lab: BrokerLab, *entries: bytes) -> int:
    """As the producer "p"; how many receipts name a place: the others were there already."""

    async def send() -> int:
        topic = await lab.broker.topic(TOPIC, to_write=True)
        producer = await topic.attach_producer("p")
        try:
            for each in entries:
                producer.append_all([memoryview(each)])
            producer.finish()
            found = []
            while receipts := await producer.receipts():
                found += receipts
            return sum(receipt.position.entry_id >= 0 for receipt in found)
        finally:
            producer.detach()

    return lab.run(send())


def values(lab: BrokerLab) -> list[bytes]:
    return [read.message.value for read in lab.read(EARLIEST, read_compacted=False)]


@pytest.mark.parametrize("call", ["write", "sync"])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_entries_lost_by_a_failed_flush_are_stored_when_resent(
    call: str, is_restarted: bool
) -> None:
    """Tests an unload in between, and a restart of the broker."""
    lab = BrokerLab()
    first, second, third = (entry(lab, value) for value in (b"1", b"2", b"3"))
    assert send(lab, first) == 1
    lab.files.fail_at(1 if call == "write" else 2)
    with pytest.raises(DiskFailure):
        send(lab, second, third)
    assert lab.files.calls[-1].startswith(call)
    if is_restarted:
        lab.restart()
    else:
        lab.run(lab.broker.unload_topic(TOPIC))
    send(lab, second, third)
    assert values(lab) == [b"1", b"2", b"3"]
    lab.crash()
    assert values(lab) == [b"1", b"2", b"3"]
    lab.stop()


def test_stored_sequence_ids_are_known_after_their_ledger_is_deleted() -> None:
    """A crash behind a trim finds the sequence ids in the records: they were written before."""
    lab = BrokerLab()
    entries = [entry(lab, b"%d" % number) for number in range(3)]
    assert send(lab, *entries) == 3
    lab.crash(everything)
    lab.run(lab.topic.log.tail.roll())
    assert lab.compact() is not None
    lab.run(lab.topic.trim())
    assert values(lab) == []
    lab.crash()
    assert send(lab, *entries) == 0
    lab.stop()


def test_a_ledger_is_kept_until_its_sequence_ids_are_recorded() -> None:
    """Trimming may run between a ledger's end and the record of its sequence ids."""
    lab = BrokerLab()
    assert send(lab, entry(lab, b"1")) == 1
    topic: Topic = lab.topic
    lab.run(topic.log.tail.roll())
    assert lab.compact() is not None
    ledger_id = topic.record.ledger_ids[0]
    recorded, topic.deduplication._recorded = topic.deduplication._recorded, EARLIEST
    lab.run(topic.trim())
    assert ledger_id in topic.record.ledger_ids
    topic.deduplication._recorded = recorded
    lab.run(topic.trim())
    assert ledger_id not in topic.record.ledger_ids
    lab.stop()


def test_a_new_producer_causes_no_replay() -> None:
    """Nothing is looked through because of it when the topic is loaded."""
    lab = BrokerLab()
    send(lab, entry(lab, b"1"))
    lab.run(lab.broker.unload_topic(TOPIC))
    topic = lab.topic
    durable = topic.log.state.last_durable
    assert topic.deduplication.recorded == durable
    lab.run(topic.attach_producer("another"))
    assert topic.deduplication.recorded == durable
    lab.stop()

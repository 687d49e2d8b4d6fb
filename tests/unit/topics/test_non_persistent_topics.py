"""Non-persistent topics of a broker: their beginnings and ends, producers, readers, partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ledgerfold.broker.rpc.existing import stored_topics
from ledgerfold.broker.subscriptions.consumer import ConsumerOptions
from ledgerfold.broker.subscriptions.dispatcher import SubscriptionType
from ledgerfold.broker.topics.access import AccessMode, Claim
from ledgerfold.broker.topics.non_persistent_producer import NonPersistentProducer
from ledgerfold.broker.topics.non_persistent_topic import NonPersistentTopic
from ledgerfold.broker.topics.non_persistent_topics import UNUSED_MS
from ledgerfold.broker.topics.reader import ReaderOptions
from ledgerfold.broker.topics.stream_reader import Checked, Entries
from ledgerfold.storage.entry import Position, read_header
from ledgerfold.storage.errors import (
    DiskFailure,
    InvalidRequest,
    Moved,
    NotAllowed,
    ProducerBusy,
    ProducerFenced,
    SubscriptionBusy,
    SubscriptionNotFound,
    TopicBusy,
    TopicExists,
    TopicIsPartitioned,
    TopicNotFound,
)
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import SchemaDefinition
from tests.model.broker_lab import BrokerLab
from tests.model.log_model import Message

NAME = "non-persistent://public/default/t"
SHARED = ConsumerOptions(SubscriptionType.SHARED)


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def topic_of(lab: BrokerLab, name: str = NAME) -> NonPersistentTopic:
    topic = lab.run(lab.broker.pulsar_topic(name))
    assert isinstance(topic, NonPersistentTopic)
    return topic


def producer_of(
    lab: BrokerLab, topic: NonPersistentTopic, name: str = "p", claim: Claim | None = None
) -> NonPersistentProducer:
    return lab.run(topic.attach_producer(name, claim))


def test_nothing_is_stored(lab: BrokerLab) -> None:
    topic = topic_of(lab)
    producer = producer_of(lab, topic)
    subscription, consumer = topic.attach("s", SHARED)
    subscription.add_permits(consumer, 10)
    entry = lab.entry([Message(b"k", b"v")], is_batch=False)
    producer.append_all([memoryview(entry)])
    assert [each.position for each in lab.run(producer.receipts())] == [Position(0, 0)]
    output = lab.run(consumer.take())
    assert output is not None
    received = read_header(output.deliveries[0].entry)
    assert (received.position, received.append_time_ms > 0) == (Position(0, 0), True)
    # On a manual clock, as on other topics.
    assert received.publish_time_ms > read_header(entry).publish_time_ms
    assert lab.metadata.topics() == []
    assert lab.metadata.producers(NAME) == lab.metadata.cursors(NAME) == []
    assert (topic.messages_in, topic.entries_in) == (1, 1)
    assert subscription.backlog_entries() == 0


def test_duplicates_are_not_detected_and_invalid_entries_are_refused(lab: BrokerLab) -> None:
    producer = producer_of(lab, topic_of(lab))
    entry = memoryview(lab.entry([Message(b"k", b"v")], is_batch=False))
    producer.append_all([entry, entry])
    assert len(lab.run(producer.receipts())) == 2
    with pytest.raises(InvalidRequest):
        producer.append_all([entry[:-1]])
    producer.refuse(7, 10, NotAllowed("no"))
    (receipt,) = lab.run(producer.receipts())
    assert (receipt.sequence_id, receipt.position) == (7, Position(-1, -1))
    producer.finish()
    assert lab.run(producer.receipts()) == []


def test_access_modes(lab: BrokerLab) -> None:
    topic = topic_of(lab)
    first = producer_of(lab, topic)
    with pytest.raises(ProducerBusy):
        producer_of(lab, topic)
    with pytest.raises(ProducerFenced):
        producer_of(lab, topic, "q", Claim(AccessMode.EXCLUSIVE))
    fencing = producer_of(lab, topic, "q", Claim(AccessMode.EXCLUSIVE_WITH_FENCING))
    assert fencing.topic_epoch == 0
    with pytest.raises(ProducerFenced):
        first.check()
    claim = Claim(AccessMode.WAIT_FOR_EXCLUSIVE)
    waiting = lab.loop.create_task(topic.attach_producer("r", claim))
    lab.settle()
    fencing.detach()
    lab.settle()
    assert waiting.result().topic_epoch == 1


def test_a_reader_gets_only_new_messages(lab: BrokerLab) -> None:
    topic = topic_of(lab)
    producer = producer_of(lab, topic)
    producer.append_all([memoryview(lab.entry([Message(b"k", b"1")], is_batch=False))])
    reader = topic.open_reader(ReaderOptions(subscription="r"))
    reader.add_permits(1)
    reader.check(1)
    assert lab.run(reader.take()) == [Checked([1], has_more=False)]
    producer.append_all([memoryview(lab.entry([Message(b"k", b"2")], is_batch=False))])
    reader.check(2)
    steps = lab.run(reader.take())
    assert steps is not None
    entries, checked = steps
    assert isinstance(entries, Entries)
    assert (len(entries.entries), checked) == (1, Checked([2], has_more=True))
    with pytest.raises(NotAllowed):
        reader.seek(StartPosition(earliest=True), 1)
    with pytest.raises(SubscriptionBusy):
        topic.open_reader(ReaderOptions(subscription="r"))
    with pytest.raises(NotAllowed):
        topic.open_reader(ReaderOptions(read_compacted=True))
    reader.finish()
    assert lab.run(reader.take()) is None
    reader.detach()
    assert topic.subscriptions == {}
    topic.attach("s", SHARED)
    with pytest.raises(NotAllowed):
        topic.open_reader(ReaderOptions(subscription="s"))


def test_subscriptions_are_deleted(lab: BrokerLab) -> None:
    topic = topic_of(lab)
    _, consumer = topic.attach("s", SHARED)
    with pytest.raises(SubscriptionBusy):
        topic.delete_subscription("s")
    topic.delete_subscription("s", force=True)
    with pytest.raises(SubscriptionNotFound):
        lab.run(consumer.take())
    with pytest.raises(SubscriptionNotFound):
        topic.delete_subscription("s")
    with pytest.raises(NotAllowed):
        topic.attach("s", ConsumerOptions(SubscriptionType.EXCLUSIVE, read_compacted=True))
    assert topic.subscriptions == {}


def test_a_topic_ends_when_it_is_unloaded_or_deleted_or_unused(lab: BrokerLab) -> None:
    broker = lab.broker
    topic = topic_of(lab)
    assert broker.exists(NAME)
    assert broker.non_persistent.listed() == [NAME]
    producer = producer_of(lab, topic)
    with pytest.raises(TopicBusy):
        lab.run(broker.delete_topic(NAME, force=False))
    lab.run(broker.unload_topic(NAME))
    with pytest.raises(Moved):
        lab.run(producer.receipts())
    with pytest.raises(Moved):
        lab.run(topic.attach_producer("q"))
    assert not broker.exists(NAME)
    with pytest.raises(TopicNotFound):
        lab.run(broker.unload_topic(NAME))
    with pytest.raises(TopicNotFound):
        lab.run(broker.delete_topic(NAME, force=True))
    lab.run(broker.create_topic(NAME))
    with pytest.raises(TopicExists):
        lab.run(broker.create_topic(NAME))
    lab.run(broker.delete_topic(NAME, force=False))
    used = topic_of(lab)
    subscription, consumer = used.attach("s", SHARED)
    lab.advance(UNUSED_MS + 1)
    assert broker.exists(NAME)
    subscription.detach(consumer)
    used.delete_subscription("s")
    lab.advance(UNUSED_MS // 2)
    assert broker.exists(NAME)
    lab.advance(UNUSED_MS)
    assert not broker.exists(NAME)
    lab.restart()
    assert lab.broker.non_persistent.listed() == []


def test_operations_on_stored_messages_are_refused(lab: BrokerLab) -> None:
    topic_of(lab)
    with pytest.raises(NotAllowed):
        lab.run(lab.broker.topic(NAME))
    with pytest.raises(NotAllowed):
        lab.run(stored_topics(lab.broker, NAME))
    with pytest.raises(NotAllowed):
        lab.run(lab.broker.kafka_topic(NAME))
    with pytest.raises(NotAllowed):
        lab.run(lab.broker.create_topic("non-persistent://public/default/k", kafka={}))
    with pytest.raises(NotAllowed):
        lab.run(
            lab.broker.create_partitioned_topic("non-persistent://public/default/k", 2, kafka={})
        )


def test_partitions(lab: BrokerLab) -> None:
    broker, name = lab.broker, "non-persistent://public/default/parts"
    first, second, third = (f"{name}-partition-{number}" for number in range(3))
    lab.run(broker.create_partitioned_topic(name, 2))
    with pytest.raises(TopicExists):
        lab.run(broker.create_topic(name))
    with pytest.raises(TopicIsPartitioned):
        topic_of(lab, name)
    assert lab.metadata.topics() == []
    assert topic_of(lab, first).name == first
    with pytest.raises(TopicNotFound):
        topic_of(lab, third)
    lab.run(broker.grow_partitioned_topic(name, 3))
    topic_of(lab, third)
    # The record is stored, its partitions are not.
    lab.crash()
    broker = lab.broker
    assert (broker.partitions.count(name), broker.non_persistent.listed()) == (3, [])
    broker.settings = replace(broker.settings, creates_topics=False)
    topic_of(lab, second)
    with pytest.raises(TopicNotFound):
        topic_of(lab)
    producer = producer_of(lab, topic_of(lab, second))
    with pytest.raises(TopicBusy):
        lab.run(broker.delete_partitioned_topic(name, force=False))
    lab.run(broker.delete_partitioned_topic(name, force=True))
    with pytest.raises(Moved):
        lab.run(producer.receipts())
    assert (broker.partitions.count(name), broker.non_persistent.listed()) == (0, [])


def test_a_topic_and_a_partitioned_topic_exclude_each_other(lab: BrokerLab) -> None:
    topic_of(lab)
    with pytest.raises(TopicExists):
        lab.run(lab.broker.create_partitioned_topic(NAME, 2))
    topic_of(lab, "non-persistent://public/default/x-partition-1")
    with pytest.raises(TopicExists):
        lab.run(lab.broker.create_partitioned_topic("non-persistent://public/default/x", 2))
    # The other domain is another topic.
    lab.run(lab.broker.create_partitioned_topic("persistent://public/default/t", 2))


def test_a_namespace_exists_while_it_has_a_topic(lab: BrokerLab) -> None:
    broker, name = lab.broker, "non-persistent://public/other/t"
    topic_of(lab, name)
    assert broker.namespaces.names() == ["public/default", "public/other"]
    assert not lab.run(broker.namespaces.delete("public/other"))
    lab.run(broker.delete_topic(name, force=False))
    assert not broker.namespaces.exists("public/other")
    lab.run(broker.create_partitioned_topic(name, 1))
    assert broker.namespaces.exists("public/other")


@pytest.mark.parametrize("is_used_again", [False, True])
def test_the_schema_of_an_unused_topic_is_deleted(lab: BrokerLab, is_used_again: bool) -> None:
    """Unless the topic begins again before the schema is deleted."""
    schemas, definition = lab.broker.schemas, SchemaDefinition(type="SCHEMA_TYPE_STRING")
    topic_of(lab)
    lab.run(schemas.for_producer(NAME, definition))
    change = lab.metadata.change

    def meanwhile(edit: Any) -> None:
        if is_used_again:
            lab.broker.non_persistent.topic(NAME)
        change(edit)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lab.metadata, "change", meanwhile)
        lab.advance(UNUSED_MS + 1)
    assert schemas.has_versions(NAME) == is_used_again
    assert (lab.broker.non_persistent.get(NAME) is not None) == is_used_again


def test_the_schema_of_unused_partitions_is_that_of_the_partitioned_topic(lab: BrokerLab) -> None:
    """It exists. Partitions without one have the schema as long as one of them is used."""
    schemas, definition = lab.broker.schemas, SchemaDefinition(type="SCHEMA_TYPE_STRING")
    lab.run(lab.broker.create_partitioned_topic(NAME, 2))
    loose = "non-persistent://public/default/loose"
    for name in (NAME, loose):
        for index in (0, 1):
            topic_of(lab, f"{name}-partition-{index}")
        lab.run(schemas.for_producer(f"{name}-partition-0", definition))
    producer = producer_of(lab, topic_of(lab, f"{loose}-partition-1"))
    lab.advance(UNUSED_MS + 1)
    assert lab.broker.non_persistent.listed() == [f"{loose}-partition-1"]
    assert schemas.has_versions(NAME)
    assert schemas.has_versions(loose)
    producer.detach()
    lab.advance(UNUSED_MS + 1)
    assert schemas.has_versions(NAME)
    assert not schemas.has_versions(loose)


def test_a_failed_schema_deletion_does_not_stop_housekeeping(lab: BrokerLab) -> None:
    topic_of(lab)
    lab.run(lab.broker.schemas.for_producer(NAME, SchemaDefinition(type="SCHEMA_TYPE_STRING")))

    def fails(_: object) -> None:
        raise DiskFailure("metadata", "A metadata write", OSError(28, "full"))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lab.metadata, "change", fails)
        lab.advance(UNUSED_MS + 1)
    assert lab.broker.non_persistent.listed() == []


def test_partitions_exist_before_they_are_used(lab: BrokerLab) -> None:
    """As those of persistent topics; others do not."""
    lab.run(lab.broker.create_partitioned_topic(NAME, 2))
    names = [f"{NAME}-partition-{index}" for index in range(3)]
    assert [lab.broker.exists(each) for each in (NAME, *names)] == [False, True, True, False]
    lab.run(lab.broker.delete_partitioned_topic(NAME, force=False))
    assert not any(map(lab.broker.exists, names))


def test_a_topic_has_a_schema(lab: BrokerLab) -> None:
    topic_of(lab)
    schemas, definition = lab.broker.schemas, SchemaDefinition(type="SCHEMA_TYPE_STRING")
    assert lab.run(schemas.for_producer(NAME, definition)) == 0
    lab.run(lab.broker.delete_topic(NAME, force=False))
    assert not schemas.has_versions(NAME)
    with pytest.raises(Moved):
        lab.run(schemas.for_producer(NAME, definition))


def test_no_topic_is_created_while_the_broker_stops(lab: BrokerLab) -> None:
    topic = topic_of(lab)
    _, consumer = topic.attach("s", SHARED)

    async def stop() -> None:
        taking = asyncio.ensure_future(consumer.take())
        await lab.broker.stop()
        with pytest.raises(Moved):
            await taking

    lab.run(stop())
    lab.crash()

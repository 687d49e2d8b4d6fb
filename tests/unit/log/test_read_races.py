"""A run commits and trims while a reader or a consumer waits for the disk, or has read ahead."""

from __future__ import annotations

import asyncio

import pytest

from ledgerfold.broker.subscriptions.consumer import ConsumerOptions
from ledgerfold.broker.subscriptions.dispatcher import SubscriptionType
from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import EARLIEST, Position, read_header
from ledgerfold.storage.errors import Moved
from ledgerfold.v1 import data_pb2
from ledgerfold.v1.records_pb2 import Emulation as Settings
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.held_executor import HeldExecutor

KEYS = [b"k%d" % number for number in range(20)]
PROFILES = ["documented", "pulsar-4"]


def lab_of(profile: str) -> BrokerLab:
    """With a message for each key, and a run already so that raw ledgers wait for the horizon."""
    lab = BrokerLab()
    lab.broker.policy_levels.broker.emulation.CopyFrom(Settings(profile=profile))
    lab.run(lab.topic.enable_compaction_cursor())
    publish(lab, KEYS[:10])
    assert lab.compact() is not None
    publish(lab, KEYS[10:])
    return lab


def publish(lab: BrokerLab, keys: list[bytes], value: bytes = b"v") -> None:
    lab.publish([([Message(key, value)], False) for key in keys])


class ColdLab:
    """Reads go to the disk, and wait there for the test."""

    def __init__(self, profile: str) -> None:
        self.lab = lab_of(profile)
        self.lab.files.is_cold = True
        self.held = HeldExecutor()
        self.lab.topic.log._files.executor = self.held
        self.held.holds = True

    async def compact_meanwhile(self, reads: int) -> None:
        """Commits a run once that many reads have passed, and another is in progress."""
        for _ in range(reads):
            await self.held.has_work()
            self.held.let_go(1)
        await self.held.has_work()
        # The run's work ends at once; the read keeps waiting.
        held = HeldExecutor()
        log = self.lab.broker.topics[TOPIC].log
        log._files.executor = held
        await self.lab.compaction()
        await log.tail.roll()
        await self.lab.broker.topics[TOPIC].trim()
        log._files.executor = self.held
        self.held.free()


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("reads", [0, 1, 2])
def test_a_reader_misses_nothing(profile: str, reads: int) -> None:
    cold = ColdLab(profile)
    call = cold.lab.reader(EARLIEST, read_compacted=True)

    during = cold.lab.loop.create_task(cold.compact_meanwhile(reads))
    found = [read.message.key for read in call.rest()]
    assert during.done()
    assert found == KEYS
    call.close()
    cold.lab.stop()


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("reads", [0, 1, 2])
def test_a_consumer_misses_nothing(profile: str, reads: int) -> None:
    cold = ColdLab(profile)

    async def consume() -> list[bytes | None]:
        topic = await cold.lab.broker.topic(TOPIC)
        start = data_pb2.StartPosition(earliest=True)
        subscription = await create_subscription(topic, "s", start, durable=False)
        options = ConsumerOptions(SubscriptionType.EXCLUSIVE, durable=False, read_compacted=True)
        consumer = subscription.attach(options)
        during = asyncio.ensure_future(cold.compact_meanwhile(reads))
        found: list[bytes | None] = []
        while len(found) < len(KEYS):
            subscription.add_permits(consumer, 3)
            output = await consumer.take()
            assert output is not None
            for each in output.deliveries:
                header = read_header(each.entry)
                found += [message.key for message in decode(each.entry, header).messages()]
        await during
        subscription.detach(consumer)
        return found

    assert cold.lab.run(consume()) == KEYS
    cold.lab.stop()


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("read_compacted", [True, False])
def test_entries_read_from_an_unloaded_topic_are_discarded(
    profile: str, read_compacted: bool
) -> None:
    """No error is sent either: a run may have committed since, and deleted the files being read."""
    cold = ColdLab(profile)
    call = cold.lab.reader(EARLIEST, read_compacted=read_compacted)

    async def unload_meanwhile() -> None:
        await cold.held.has_work()
        cold.lab.broker.topics[TOPIC].log._files.executor = HeldExecutor()
        await cold.lab.broker.unload_topic(TOPIC)
        await cold.lab.compaction()
        cold.held.free()

    during = cold.lab.loop.create_task(unload_meanwhile())
    with pytest.raises(Moved):
        call.some(1)
    assert during.done()
    call.close()
    cold.lab.stop()


def test_the_last_message_of_an_unloaded_topic_is_not_searched() -> None:
    """A compacted ledger that went since is no damage."""
    lab = lab_of("documented")
    assert lab.compact() is not None
    held = HeldExecutor()

    async def ask() -> None:
        topic = lab.broker.topics[TOPIC]
        topic.log._files.executor = held
        held.holds = True
        asked = asyncio.ensure_future(topic.log.search.last_entry(read_compacted=True))
        await held.has_work()
        topic.log._files.executor = HeldExecutor()
        await lab.broker.unload_topic(TOPIC)
        await lab.publishing([([Message(KEYS[0], b"w")], False)])
        await lab.compaction()
        held.free()
        await asked

    with pytest.raises(Moved):
        lab.run(ask())
    lab.stop()


def test_a_commit_drops_prefetched_entries() -> None:
    """A reader with one permit sees no more of the old view than a consumer."""
    lab = lab_of("pulsar-4")
    call = lab.reader(EARLIEST, read_compacted=True)
    first = call.some(1)
    assert [read.message.key for read in first] == KEYS[:1]
    publish(lab, KEYS[2:], b"")
    assert lab.compact() is not None
    assert [read.message.key for read in call.rest()] == KEYS[1:2]
    call.close()
    lab.stop()


def test_a_reader_that_keeps_its_view_gets_all_of_it() -> None:
    """It also gets the later tombstones: otherwise, messages that it received would never be
    deleted.
    """
    lab = lab_of("documented")
    call = lab.reader(EARLIEST, read_compacted=True)
    found = call.some(1)
    publish(lab, KEYS[2:], b"")
    assert lab.compact() is not None
    found += call.rest()
    assert [read.message.key for read in found] == KEYS + KEYS[2:]
    call.close()
    lab.stop()


def test_latest_is_before_entries_being_written() -> None:
    """Also if another ledger already follows theirs."""
    lab = BrokerLab()
    held = HeldExecutor()
    lab.broker.executor = held

    async def subscribe() -> Position:
        topic = await lab.broker.topic(TOPIC)
        producer = await topic.attach_producer("p")
        held.holds = True
        for key in KEYS[:8]:
            producer.append_all([memoryview(lab.entry([Message(key, b"v")], is_batch=False))])
        assert topic.log.state.last_durable is None
        latest = data_pb2.StartPosition(latest=True)
        subscription = await create_subscription(topic, "s", latest, durable=False)
        held.free()
        return subscription.mark_delete

    mark_delete = lab.run(subscribe())
    first = lab.read(EARLIEST, read_compacted=False)[0]
    assert mark_delete < first.position
    lab.stop()


def test_a_reader_at_the_end_of_a_trimmed_ledger_gets_every_deletion() -> None:
    """It had read all of it; later entries are kept for it after every commit."""
    lab = lab_of("documented")
    call = lab.reader(EARLIEST, read_compacted=True)
    found = call.rest()
    lab.run(lab.topic.log.tail.roll())
    for _ in range(2):
        assert lab.compact() is not None
        lab.run(lab.topic.trim())
        publish(lab, KEYS[:3], b"")
        lab.run(lab.topic.log.tail.roll())
    assert lab.compact() is not None
    lab.run(lab.topic.trim())
    found += call.rest()
    assert [read.message.key for read in found][len(KEYS) :] == KEYS[:3] * 2
    call.close()
    lab.stop()


def test_a_reader_whose_raw_ledgers_were_trimmed_before_the_load_gets_every_deletion() -> None:
    """It has passed that ledger, whose end is unknown now."""
    lab = lab_of("documented")
    assert lab.compact() is not None
    lab.restart()
    lab.run(lab.topic.trim())
    lab.restart()
    horizon = lab.topic.log.views.horizon
    assert horizon is not None
    assert horizon.ledger_id not in lab.topic.log.ledgers
    call = lab.reader(EARLIEST, read_compacted=True)
    found = call.some(1)
    publish(lab, KEYS[:3], b"")
    assert lab.compact() is not None
    found += call.rest()
    assert [read.message.key for read in found] == KEYS + KEYS[:3]
    call.close()
    lab.stop()

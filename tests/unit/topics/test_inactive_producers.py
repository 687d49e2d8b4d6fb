"""Tests that producers inactive for long are forgotten, and numbers are not assigned twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from ledgerfold.broker.log.record_writes import RecordWrites
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.broker.topics.deduplication import INACTIVE_MS, Deduplication
from ledgerfold.storage.entry import EARLIEST, LATEST, Position
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.v1.records_pb2 import ProducerRecord, TopicRecord
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.inline_executor import InlineExecutor

HOUR_MS = 60 * 60_000


@pytest.fixture
def metadata() -> MetadataStore:
    return MetadataStore(MemoryKeyValue())


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


class Producers:
    """A topic's, without a topic."""

    def __init__(self, metadata: MetadataStore, record: TopicRecord | None = None) -> None:
        stored = StoredTopic(
            record or TopicRecord(name="t"), RecordWrites(metadata, InlineExecutor)
        )
        self.all = Deduplication(stored, metadata.producers("t"))
        self.appended, self.capture = self.all.appended, self.all.capture
        self.replay = self.all.replay

    @property
    def recorded(self) -> Position:
        return self.all.recorded

    def register(self, name: str) -> ProducerRecord:
        return asyncio.run(self.all.register(name, lambda: None))

    def forget_inactive(self, connected: Sequence[str], now_ms: int) -> list[str]:
        gone = self.all.forget_inactive(connected.__contains__, now_ms)
        return list(asyncio.run(gone))

    def write(self, durable: Position) -> None:
        asyncio.run(self.all.write(durable))


def names(metadata: MetadataStore, topic: str = "t") -> list[str]:
    return sorted(each.name for each in metadata.producers(topic))


def test_a_producer_inactive_for_long_is_forgotten(metadata: MetadataStore) -> None:
    """Counted from when it was last seen connected; one that is connected never is."""
    producers = Producers(metadata)
    for name in ("stays", "leaves"):
        producers.register(name)
    assert producers.forget_inactive(["stays", "leaves"], HOUR_MS) == []
    assert producers.forget_inactive(["stays"], HOUR_MS + INACTIVE_MS) == []
    assert producers.forget_inactive(["stays"], HOUR_MS + INACTIVE_MS + 1) == ["leaves"]
    assert names(metadata) == ["stays"]
    assert producers.forget_inactive(["stays"], 10 * INACTIVE_MS) == []


def test_inactivity_counts_from_the_disconnection(metadata: MetadataStore) -> None:
    """Not at the last check of its presence."""
    producers = Producers(metadata)
    record = producers.register("p")
    assert producers.forget_inactive(["p"], HOUR_MS) == []
    left_ms = HOUR_MS + 60_000
    producers.all.disconnected(record, left_ms)
    assert producers.forget_inactive([], left_ms + INACTIVE_MS) == []
    assert producers.forget_inactive([], left_ms + INACTIVE_MS + 1) == ["p"]


def test_a_disconnection_is_recorded(lab: BrokerLab) -> None:
    """The broker's clock says when."""
    lab.publish([([Message(b"k", b"v")], False)])
    before_ms = lab.clock.now_ms()
    lab.publish([([Message(b"k", b"v")], False)])
    lab.run(lab.topic.trim())
    left_ms = lab.topic.deduplication._last_active_ms["p"]
    assert before_ms < left_ms <= lab.clock.now_ms()


def test_a_producer_number_is_not_reused(metadata: MetadataStore) -> None:
    """The name may return; entries with the old number belong to no producer."""
    record = TopicRecord(name="t")
    producers = Producers(metadata, record)
    old = producers.register("p")
    producers.appended(old, 41)
    producers.forget_inactive([], HOUR_MS)
    assert producers.forget_inactive([], 2 * INACTIVE_MS) == ["p"]
    new = producers.register("p")
    assert (new.number, new.last_sequence_id) == (old.number + 1, -1)
    producers.replay({old.number: 41})
    assert new.last_sequence_id == -1


def test_a_pending_snapshot_does_not_restore_a_forgotten_producer(metadata: MetadataStore) -> None:
    """It was taken before, and is durable afterwards: the name has a new record by then."""
    producers = Producers(metadata)
    producers.appended(producers.register("p"), 41)
    producers.capture(Position(1, 0))
    producers.forget_inactive([], HOUR_MS)
    producers.forget_inactive([], 2 * INACTIVE_MS)
    assert (names(metadata), producers.recorded) == ([], LATEST)
    again = producers.register("p")
    producers.write(Position(1, 0))
    (stored,) = metadata.producers("t")
    assert (stored.number, stored.last_sequence_id) == (again.number, -1)


def test_a_load_restarts_the_inactivity_time(metadata: MetadataStore) -> None:
    """As Pulsar does (MessageDeduplication.replayCursor): no producer could connect before."""
    topic = TopicRecord(name="t")
    before = Producers(metadata, topic)
    before.register("p")
    assert before.forget_inactive(["p"], HOUR_MS) == []
    loaded_ms = 100 * INACTIVE_MS
    producers = Producers(metadata, topic)
    assert producers.forget_inactive([], loaded_ms) == []
    assert producers.forget_inactive([], loaded_ms + INACTIVE_MS) == []
    assert producers.forget_inactive([], loaded_ms + INACTIVE_MS + 1) == ["p"]


def test_housekeeping_forgets_producers_and_entries_stay_readable(lab: BrokerLab) -> None:
    """On a whole broker: the entries of a forgotten producer are read, and a restart finds them."""
    lab.publish([([Message(b"a", b"1")], False)])
    assert names(lab.metadata, TOPIC) != []
    lab.advance(HOUR_MS)
    lab.advance(INACTIVE_MS)
    lab.advance(HOUR_MS)
    assert names(lab.metadata, TOPIC) == []
    assert len(lab.read(EARLIEST, read_compacted=False)) == 1
    lab.run(lab.broker.unload_topic(TOPIC))
    assert len(lab.read(EARLIEST, read_compacted=False)) == 1

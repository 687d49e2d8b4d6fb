"""A reader whose read-ahead is dropped at any moment gives the same entries, each once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerfold.broker.topics.kafka_reader import (
    KafkaReader,
    KafkaReaderOptions,
)
from ledgerfold.broker.topics.reader import Reader, ReaderOptions
from ledgerfold.broker.topics.stream_reader import Checked, Entries
from ledgerfold.storage.entry import read_header
from ledgerfold.storage.errors import KafkaError
from ledgerfold.v1.data_pb2 import StartPosition
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.kafka_lab import KafkaLab
from tests.support.property_tests import examples

COUNT = 12
EARLIEST = StartPosition(earliest=True)


@pytest.fixture(scope="module")
def native() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    lab.publish([([Message(b"k", b"%d" % number)], False) for number in range(COUNT)])
    lab.compact()
    lab.publish([([Message(b"k", b"%d" % number)], False) for number in range(COUNT)])
    yield lab
    lab.stop()


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaLab]:
    lab = KafkaLab({"cleanup.policy": "compact"})
    for number in range(COUNT):
        lab.add([(b"k", b"%d" % number)])
    yield lab
    lab.close()


async def given_by(reader: Reader | KafkaReader, shed: list[int]) -> list[object]:
    """The positions of all entries; the read-ahead is dropped after those that `shed` names."""
    given, has_more = list[object](), True
    while has_more:
        # A request for more gets a single entry.
        reader.check(1)
        steps = await reader.take()
        assert steps is not None
        entries = [each for step in steps if isinstance(step, Entries) for each in step.entries]
        given += [read_header(each.data).position for each in entries]
        has_more = all(step.has_more for step in steps if isinstance(step, Checked))
        if len(given) in shed:
            reader.share.shed()
            assert (reader.share.size_bytes > 0) == bool(entries), "what is being sent is held"
    held = reader.share._all
    reader.detach()
    assert held.unsent_bytes == 0
    return given


@given(shed=st.lists(st.integers(0, 2 * COUNT)), read_compacted=st.booleans())
@settings(max_examples=examples(40))
def test_readers_of_pulsar_topics_survive_dropped_prefetches(
    native: BrokerLab, shed: list[int], read_compacted: bool
) -> None:
    """Tests the view and the log after it."""

    async def read(shed: list[int]) -> list[object]:
        options = ReaderOptions(read_compacted)
        reader = await (await native.broker.topic(TOPIC)).open_reader(EARLIEST, options)
        return await given_by(reader, shed)

    whole = native.run(read([]))
    assert len(whole) == (COUNT + 1 if read_compacted else COUNT)
    assert native.run(read(shed)) == whole


@given(shed=st.lists(st.integers(0, COUNT)))
@settings(max_examples=examples(40))
def test_readers_of_kafka_topics_survive_dropped_prefetches(
    kafka: KafkaLab, shed: list[int]
) -> None:
    """By offsets."""

    async def read(shed: list[int]) -> list[object]:
        topic = await kafka.broker.kafka_topic(TOPIC)
        reader = await topic.open_reader(EARLIEST, KafkaReaderOptions())
        return await given_by(reader, shed)

    whole = kafka.run(read([]))
    assert len(whole) == COUNT
    assert kafka.run(read(shed)) == whole


def test_a_refused_reader_holds_no_space(kafka: KafkaLab) -> None:
    """Repeated requests for a trimmed offset take no memory.

    Only readers that had been opened were looked at.
    """
    beyond = StartPosition(message_id={"ledger_id": 0, "entry_id": 10**9}, inclusive=True)

    async def refused() -> None:
        topic = await kafka.broker.kafka_topic(TOPIC)
        before = set(kafka.broker.outgoing.shares)
        with pytest.raises(KafkaError):
            await topic.open_reader(beyond, KafkaReaderOptions())
        assert kafka.broker.outgoing.shares == before

    kafka.run(refused())

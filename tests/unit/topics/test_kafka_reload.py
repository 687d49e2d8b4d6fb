"""Tests a Kafka topic's state, and its producers', after a load, as time passes, after a roll and
after a rejection.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from ledgerfold.broker.kafka.cleaner.deletion import delete_old_segments
from ledgerfold.broker.kafka.log.aborted import take_over
from ledgerfold.broker.kafka.log.reads import KafkaRead
from ledgerfold.broker.kafka.partition import Partition
from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.broker.topics.kafka_settings import change_broker_config, change_topic_config
from ledgerfold.broker.topics.kafka_topic import PRODUCERS_CHECKED_MS
from ledgerfold.storage.errors import KafkaError
from ledgerfold.storage.kafka.records import KafkaRecord, build_batch
from ledgerfold.storage.kafka.transaction_index import AbortedTransaction
from ledgerfold.v1.kafka_pb2 import DescribeLogResponse
from tests.model.broker_lab import TOPIC
from tests.support.kafka_lab import KafkaLab

A, B = (b"a", b"1"), (b"b", b"2")
DAY_MS = 86_400_000
DELETES = {"cleanup.policy": "delete", "retention.bytes": "150"}


@pytest.fixture
def lab() -> Iterator[KafkaLab]:
    lab = KafkaLab({"cleanup.policy": "compact", "index.interval.bytes": "100"})
    yield lab
    lab.close()


def described(lab: KafkaLab) -> DescribeLogResponse:
    return lab.run(lab.kafka.describe(batches=False))


def producers(lab: KafkaLab) -> dict[int, int]:
    return {each.producer_id: each.last_sequence for each in described(lab).producers}


def send(lab: KafkaLab, sequence: int) -> None:
    lab.add([A], producer_id=7, producer_epoch=0, base_sequence=sequence)


@pytest.mark.parametrize("ending", ["restart", "crash"])
def test_index_sizes_continue_after_a_load(lab: KafkaLab, ending: str) -> None:
    """A clean close adds an entry to the time index; counts since the last entry are lost."""
    for _ in range(4):
        lab.add([A])
    (segment,) = described(lab).segments
    entries = segment.offset_index_bytes // 8
    assert segment.time_index_bytes == 12 * entries
    getattr(lab, ending)()
    (again,) = described(lab).segments
    assert again.offset_index_bytes == 8 * entries
    assert again.time_index_bytes == 12 * (entries + 1)
    lab.add([A])
    assert described(lab).segments[0].offset_index_bytes == 8 * entries


def test_a_closed_segment_is_not_counted_again(lab: KafkaLab) -> None:
    """A load in its midst has its effect on its indexes, also after the next one."""
    lab.add([A], [A])
    lab.restart()
    lab.add([A], [A])
    lab.run(lab.kafka.roll())
    before = described(lab).segments[0]
    lab.add([B])
    for ending in (lab.restart, lab.crash):
        ending()
        again = described(lab).segments[0]
        assert again.offset_index_bytes == before.offset_index_bytes
        assert again.time_index_bytes == before.time_index_bytes


@pytest.mark.parametrize("ending", ["restart", "crash"])
def test_a_producer_is_known_after_its_batches_are_deleted(lab: KafkaLab, ending: str) -> None:
    send(lab, 0)
    lab.run(lab.kafka.roll())
    lab.add([B])
    lab.run(lab.kafka.log.drop_first(lambda: 1, lambda record, batch: None))
    getattr(lab, ending)()
    assert producers(lab) == {7: 0}
    send(lab, 1)
    with pytest.raises(KafkaError, match="Out of order"):
        send(lab, 5)


@pytest.mark.parametrize("ending", ["restart", "crash"])
def test_a_duplicate_in_an_empty_log_is_answered_at_once(lab: KafkaLab, ending: str) -> None:
    """Nothing is left that could become durable, because retention deleted it."""
    send(lab, 0)
    lab.run(lab.kafka.roll())
    lab.run(lab.kafka.log.drop_first(lambda: 1, lambda record, batch: None))
    getattr(lab, ending)()
    send(lab, 0)
    assert described(lab).log_end_offset == 1


@pytest.mark.parametrize("ending", ["restart", "crash"])
def test_batches_below_the_log_start_are_not_replayed(lab: KafkaLab, ending: str) -> None:
    """A snapshot there names no existing batch, as in Kafka."""
    send(lab, 0)
    lab.run(lab.kafka.partition.set_log_start(1))
    getattr(lab, ending)()
    assert producers(lab) == {}


def test_producers_expire_over_time(lab: KafkaLab) -> None:
    """Looked for every ten minutes; one with an open transaction stays."""
    send(lab, 0)
    lab.add([A], producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True)
    lab.advance(DAY_MS - PRODUCERS_CHECKED_MS)
    assert producers(lab) == {7: 0, 8: 0}
    lab.advance(2 * PRODUCERS_CHECKED_MS)
    assert producers(lab) == {8: 0}


def test_a_transaction_that_includes_the_log_start_is_not_stable(lab: KafkaLab) -> None:
    """Its first offset is the last stable one, although it lies below the log's start."""
    lab.add([B])
    lab.add([A, B, A], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    lab.run(lab.kafka.partition.set_log_start(3))
    assert described(lab).last_stable_offset == 1
    lab.restart()
    assert described(lab).last_stable_offset == 1


@pytest.mark.parametrize("ending", ["restart", "crash"])
def test_an_imported_transaction_index_is_kept(lab: KafkaLab, ending: str) -> None:
    """Also that of the active segment, whose batches say less."""
    lab.add([A], [B])
    line = AbortedTransaction(7, 0, 1, 2)
    lab.run(take_over(lab.kafka.log, lab.kafka.stored, [line]))
    for _ in range(2):
        getattr(lab, ending)()
        assert list(lab.kafka.partition.aborted()) == [line]
    lab.run(lab.kafka.roll())
    lab.add([B])
    getattr(lab, ending)()
    assert list(lab.kafka.partition.aborted()) == [line]


@pytest.mark.parametrize("ending", ["restart", "crash"])
def test_an_empty_segment_has_its_start_time(lab: KafkaLab, ending: str) -> None:
    lab.add([A])
    lab.run(lab.kafka.roll())
    began_ms = described(lab).segments[1].modified_ms
    assert 0 < began_ms <= lab.clock.now_ms()
    for _ in range(2):
        lab.advance(1000)
        getattr(lab, ending)()
        assert described(lab).segments[1].modified_ms == began_ms
    lab.add([A])
    assert described(lab).segments[1].modified_ms > began_ms


@pytest.mark.parametrize("by_retention", [False, True])
def test_advancing_the_log_start_makes_nothing_stable(lab: KafkaLab, by_retention: bool) -> None:
    """A transaction that began below the new start is open, with any reads in between."""
    lab.add([A], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    lab.run(lab.kafka.roll())
    lab.add([B], [A])
    lab.add([A], producer_id=7, producer_epoch=0, base_sequence=1, is_transactional=True)
    partition, seen = lab.kafka.partition, list[int]()
    read = partition.log.reads.read

    async def looked_at(*arguments: Any, **options: Any) -> KafkaRead:
        seen.append(partition.last_stable_offset)
        return await read(*arguments, **options)

    if by_retention:
        lab.run(change_topic_config(lab.broker, lab.kafka, DELETES))
    with mock.patch.object(partition.log.reads, "read", looked_at):
        if by_retention:
            assert lab.run(delete_old_segments(partition, lab.clock.now_ms)) == 1
        else:
            lab.run(partition.set_log_start(1))
    assert seen == [1]
    assert partition.last_stable_offset == 1


def test_a_log_start_that_does_not_change_causes_no_read(
    lab: KafkaLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that lies lower, or is the same, changes nothing; each had been higher."""
    lab.add([A], [B])
    lab.run(lab.kafka.partition.set_log_start(1))

    async def begins_later(partition: Partition) -> None:
        raise AssertionError(f"{partition.label} begins later")

    monkeypatch.setattr(Partition, "begins_later", begins_later)
    assert [lab.run(lab.kafka.partition.set_log_start(each)) for each in (0, 1)] == [1, 1]


def test_batches_before_a_rejected_one_are_readable(lab: KafkaLab) -> None:
    with pytest.raises(KafkaError):
        lab.add([A], [(None, b"keyless")])
    assert described(lab).high_watermark == 1


def test_an_empty_segment_rolls_if_an_offset_does_not_fit(lab: KafkaLab) -> None:
    lab.add([A], origin=Origin.REPLICATION, base_offset=2**31)
    assert [each.base_offset for each in described(lab).segments] == [0, 2**31]


def test_a_rolled_empty_segment_has_the_age_of_the_roll(lab: KafkaLab) -> None:
    """It ages by the clock, where its first record has no time."""
    lab.run(lab.kafka.partition.change_config({"segment.ms": "60000"}))
    lab.advance(100_000)
    lab.run(lab.kafka.roll())
    undated = build_batch([KafkaRecord(0, -1, b"a", b"1")])
    lab.run(lab.kafka.append_batches(undated * 2, Origin.CLIENT))
    assert len(described(lab).segments) == 1


def test_a_topic_stays_valid_when_broker_settings_change(lab: KafkaLab) -> None:
    """Kafka asks whether two settings go together when a topic is made or changed, and only then.

    A change is refused that leaves them so, and is made that mends them.
    """
    min_lag, max_lag = "min.compaction.lag.ms", "max.compaction.lag.ms"
    broker = lab.broker
    lab.run(change_topic_config(broker, lab.kafka, {min_lag: "200"}))
    lab.run(change_broker_config(broker, {f"log.cleaner.{max_lag}": "100"}))
    lab.run(broker.unload_topic(TOPIC))
    config = lab.run(broker.kafka_topic(TOPIC)).config
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (200, 100)
    with pytest.raises(KafkaError, match="conflict topic config setting"):
        lab.run(change_topic_config(broker, lab.kafka, {"segment.ms": "7"}))
    lab.run(change_broker_config(broker, {"log.cleaner.backoff.ms": "7"}))
    lab.run(change_topic_config(broker, lab.kafka, {min_lag: None}))
    assert lab.kafka.config.min_compaction_lag_ms == 0

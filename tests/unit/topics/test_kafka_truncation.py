"""Truncation of a Kafka topic's log: what stays, what is removed, and who is notified."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest

from ledgerfold.broker.kafka.cleaner.cleaner import Cleaner
from ledgerfold.broker.kafka.cleaner.states import InProgress, Paused
from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.broker.topics.kafka_reader import KafkaReaderOptions
from ledgerfold.broker.topics.kafka_truncation import Truncated, truncate_log
from ledgerfold.broker.worker.compactor import Compactor
from ledgerfold.storage.errors import (
    DiskFailure,
    InvalidRequest,
    KafkaError,
    KafkaErrorKind,
    Moved,
    NotAllowed,
)
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.kafka_pb2 import DescribeLogResponse
from tests.model.broker_lab import TOPIC
from tests.support.kafka_lab import KafkaLab
from tests.unit.topics.test_deleted_meanwhile import Gate
from tests.unit.topics.test_kafka_cleaner import HeldWorker

A, B, C = (b"a", b"1"), (b"b", b"2"), (b"c", b"3")


@pytest.fixture
def lab() -> Iterator[KafkaLab]:
    lab = KafkaLab({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    yield lab
    lab.close()


def truncate(lab: KafkaLab, offset: int) -> Truncated:
    return lab.run(truncate_log(lab.broker, TOPIC, offset))


def described(lab: KafkaLab) -> DescribeLogResponse:
    return lab.run(lab.kafka.describe(batches=False))


def bases(lab: KafkaLab) -> list[int]:
    return [each.base_offset for each in described(lab).segments]


def offsets(lab: KafkaLab, *, committed: bool = False) -> list[int]:
    return [offset for offset, *_ in lab.records(committed=committed)]


def roll(lab: KafkaLab) -> None:
    lab.run(lab.kafka.roll())


def three_segments(lab: KafkaLab) -> None:
    """0 1 | 2 3 |* 4 5"""
    for number in range(3):
        lab.add([A], [B])
        if number < 2:
            roll(lab)


# Kept


@pytest.mark.parametrize("offset", range(7))
@pytest.mark.parametrize("ending", ["nothing", "restart", "crash"])
def test_the_log_ends_at_the_truncation_offset(lab: KafkaLab, offset: int, ending: str) -> None:
    """The segment that holds the offset is the active one; its offsets are assigned again."""
    three_segments(lab)
    assert truncate(lab, offset).log_end_offset == offset
    if ending != "nothing":
        getattr(lab, ending)()
    assert offsets(lab) == list(range(offset))
    kept = [base for base in (0, 2, 4) if base <= offset]
    assert bases(lab) == kept
    assert described(lab).high_watermark == described(lab).log_end_offset == offset
    assert lab.add([C]) == [(offset, offset)]
    lab.crash()
    assert offsets(lab) == list(range(offset + 1))
    named = {each for segment in lab.kafka.log.segments for each in segment.ledger_ids}
    assert {each.ledger_id for each in lab.metadata.ledgers()} == named


@pytest.mark.parametrize("offset", [1, 2])
def test_a_batch_across_the_offset_is_removed_and_the_log_ends_there(
    lab: KafkaLab, offset: int
) -> None:
    lab.add([A, B, C])
    truncate(lab, offset)
    assert offsets(lab) == []
    assert bases(lab) == [0]
    assert described(lab).log_end_offset == offset
    assert lab.add([B]) == [(offset, offset)]
    lab.restart()
    assert offsets(lab) == [offset]


@pytest.mark.parametrize("ending", ["nothing", "restart", "crash"])
def test_an_empty_closed_segment_is_kept(lab: KafkaLab, ending: str) -> None:
    """A roll ends it if the log's end is beyond the last batch."""
    lab.add([A])
    roll(lab)
    lab.add([A, B, C])
    truncate(lab, 3)
    roll(lab)
    lab.add([A])
    truncate(lab, 3)
    if ending != "nothing":
        getattr(lab, ending)()
    assert (bases(lab), offsets(lab)) == ([0, 1, 3], [0])
    assert lab.add([B]) == [(3, 3)]
    lab.crash()
    assert (bases(lab), offsets(lab)) == ([0, 1, 3], [0, 3])


def test_truncating_beyond_the_end_changes_nothing(lab: KafkaLab) -> None:
    lab.add([A])
    topic = lab.kafka
    assert truncate(lab, 1) == truncate(lab, 9) == Truncated(1, 0, None)
    assert lab.kafka is topic


def test_a_negative_offset_is_refused(lab: KafkaLab) -> None:
    with pytest.raises(InvalidRequest, match="0 or more"):
        truncate(lab, -1)


def test_truncation_of_other_topics_is_refused(lab: KafkaLab) -> None:
    lab.run(lab.broker.create_topic("persistent://public/default/pulsar"))
    with pytest.raises(NotAllowed):
        lab.run(truncate_log(lab.broker, "persistent://public/default/pulsar", 0))


def test_truncating_below_the_first_segment_restarts_the_log(lab: KafkaLab) -> None:
    three_segments(lab)
    lab.run(lab.kafka.log.drop_first(lambda: 1, lambda record, batch: None))
    lab.run(lab.kafka.partition.set_log_start(3))
    assert truncate(lab, 1) == Truncated(1, 1, None)
    assert (bases(lab), offsets(lab)) == ([1], [])
    assert lab.add([A]) == [(1, 1)]
    lab.crash()
    assert (bases(lab), offsets(lab), described(lab).log_start_offset) == ([1], [1], 1)


def test_truncation_lowers_the_log_start_to_the_end(lab: KafkaLab) -> None:
    three_segments(lab)
    lab.run(lab.kafka.partition.set_log_start(5))
    assert truncate(lab, 3).log_start_offset == 3
    assert offsets(lab) == []


def test_a_cleaned_segment_can_become_active(lab: KafkaLab) -> None:
    """The remains of a cleaning stay, and appends continue in it."""
    lab.add([A], [B], [A], [B])
    roll(lab)
    assert lab.clean().outcome is not None
    assert offsets(lab) == [2, 3]
    truncate(lab, 3)
    (segment,) = described(lab).segments
    assert (segment.base_offset, segment.is_active, segment.is_cleaned) == (0, True, False)
    assert lab.add([C]) == [(3, 3)]
    lab.crash()
    assert offsets(lab) == [2, 3]
    roll(lab)
    assert lab.clean().outcome is not None
    assert offsets(lab) == [2, 3]


def test_a_truncated_ledger_keeps_its_limits(lab: KafkaLab) -> None:
    """The lab's ledgers take six entries, and its files 600 bytes."""
    lab.add(*[[A]] * 20)
    truncate(lab, 17)
    assert offsets(lab) == list(range(17))
    lab.crash()
    truncate(lab, 4)
    assert offsets(lab) == list(range(4))


# Removed


def test_the_checkpoint_is_not_above_the_active_segment(lab: KafkaLab) -> None:
    """T88: of a compacted log, and only where another segment is the active one then."""
    three_segments(lab)
    lab.run(lab.kafka.partition.set_checkpoint(4))
    assert truncate(lab, 5).checkpoint == 4
    assert truncate(lab, 3).checkpoint == 2
    lab.run(lab.kafka.partition.set_checkpoint(1))
    assert truncate(lab, 1).checkpoint == 0


def test_the_checkpoint_of_a_log_that_is_not_compacted_is_kept(lab: KafkaLab) -> None:
    three_segments(lab)
    lab.run(lab.kafka.partition.set_checkpoint(4))
    lab.run(lab.kafka.partition.change_config({"cleanup.policy": "delete"}))
    assert truncate(lab, 1).checkpoint == 4


def test_producers_are_those_of_the_remaining_batches(lab: KafkaLab) -> None:
    """A sequence that was truncated is sent again; one that is left is known."""
    for sequence in range(3):
        lab.add([A], producer_id=7, producer_epoch=0, base_sequence=sequence)
        if sequence == 0:
            roll(lab)
    truncate(lab, 2)
    assert [each.last_sequence for each in described(lab).producers] == [1]
    again: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    assert lab.add([A], base_sequence=1, **again) == [(1, 1)]
    assert lab.add([A], base_sequence=2, **again) == [(2, 2)]
    truncate(lab, 1)
    assert [each.last_sequence for each in described(lab).producers] == [0]
    truncate(lab, 0)
    assert not described(lab).producers


@pytest.mark.parametrize("ending", ["nothing", "crash"])
def test_a_segment_snapshot_restores_what_a_cleaning_removed(lab: KafkaLab, ending: str) -> None:
    """A cleaning removes batches that are not their producer's last ones."""
    lab.run(lab.kafka.partition.change_config({"internal.segment.bytes": "200"}))
    batch: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    lab.add([A], base_sequence=0, **batch)
    roll(lab)
    lab.add([B])
    lab.add([A], base_sequence=1, **batch)
    roll(lab)
    assert lab.clean().outcome is not None
    assert (bases(lab), offsets(lab)) == ([0, 1, 3], [1, 2])
    if ending == "crash":
        lab.crash()
    truncate(lab, 2)
    assert [each.last_sequence for each in described(lab).producers] == [0]


def test_the_snapshot_of_a_load_is_removed_with_its_segment(lab: KafkaLab) -> None:
    """A truncation within that segment replays the rest, as Kafka does."""
    lab.add([A], producer_id=7, producer_epoch=0, base_sequence=0)
    lab.crash()
    for pair in (B, C):
        roll(lab)
        lab.add([pair])
    assert lab.kafka.log.producers_at_load.end_offset == 1
    assert lab.clean().outcome is not None
    assert (bases(lab), lab.kafka.log.producers_at_load.end_offset) == ([0, 2], 0)
    truncate(lab, 1)
    assert [each.last_sequence for each in described(lab).producers] == [0]


def test_a_transaction_without_its_marker_is_open_again(lab: KafkaLab) -> None:
    batch: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    lab.add([A], base_sequence=0, **batch)
    lab.run(lab.kafka.end_transaction(7, 0, commit=False, timestamp_ms=5))
    lab.add([B])
    assert (offsets(lab, committed=True), len(described(lab).aborted)) == ([2], 1)
    truncate(lab, 1)
    assert (described(lab).last_stable_offset, len(described(lab).aborted)) == (0, 0)
    lab.run(lab.kafka.end_transaction(7, 0, commit=True, timestamp_ms=5))
    assert offsets(lab, committed=True) == [0]


def test_aborted_records_stay_aborted_after_their_producers_expire(lab: KafkaLab) -> None:
    """After a crash, a load replays none of them then."""
    batch: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    lab.add([A], base_sequence=0, **batch)
    lab.run(lab.kafka.end_transaction(7, 0, commit=False, timestamp_ms=5))
    lab.add([B], [C])
    lab.advance(2 * 86_400_000)
    assert not described(lab).producers
    truncate(lab, 3)
    assert (offsets(lab, committed=True), len(described(lab).aborted)) == ([2], 1)
    for ending in (lab.crash, lab.crash, lab.restart, lab.crash):
        ending()
        assert (offsets(lab, committed=True), len(described(lab).aborted)) == ([2], 1)


def test_an_aborted_transaction_before_the_cut_is_listed_once(lab: KafkaLab) -> None:
    """The segment's figures list it already when the load replays its marker."""
    batch: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    lab.add([A], base_sequence=0, **batch)
    lab.run(lab.kafka.end_transaction(7, 0, commit=False, timestamp_ms=5))
    lab.add([B], [C])
    truncate(lab, 3)
    assert len(described(lab).aborted) == 1
    assert len(lab.kafka.log.segments.active.aborted) == 1


def test_a_truncation_does_not_list_transactions_again_that_a_cleaning_has_dropped(
    lab: KafkaLab,
) -> None:
    """The load replays a marker that is left, from a snapshot in which its transaction is open."""
    lab.run(lab.kafka.partition.change_config({"internal.segment.bytes": "250"}))
    producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    # Large, so that a cleaning does not combine its segment with the next one.
    lab.add([(b"large", bytes(150))])
    lab.add([A], base_sequence=0, is_transactional=True, **producer)
    roll(lab)
    lab.run(lab.kafka.end_transaction(7, 0, commit=False, timestamp_ms=5))
    lab.add([B])
    lab.add([C], base_sequence=1, **producer)
    for _ in range(2):
        roll(lab)
        assert lab.clean().outcome is not None
        lab.add([A])
    assert (bases(lab)[:2], len(described(lab).aborted)) == ([0, 2], 0)
    truncate(lab, 4)
    assert (offsets(lab), len(described(lab).aborted)) == ([0, 3], 0)
    lab.restart()
    assert (offsets(lab), len(described(lab).aborted)) == ([0, 3], 0)


def test_a_held_high_watermark_is_kept(lab: KafkaLab) -> None:
    lab.add([A], [B], [C])
    lab.kafka.partition.hold_high_watermark(1)
    truncate(lab, 2)
    assert described(lab).high_watermark == 1
    lab.kafka.partition.hold_high_watermark(None)
    assert described(lab).high_watermark == 2


# Notified


def test_a_reader_connects_again_and_is_refused_beyond_the_end(lab: KafkaLab) -> None:
    lab.add([A], [B], [C])

    async def read() -> None:
        topic = await lab.broker.kafka_topic(TOPIC)
        reader = await topic.open_reader(StartPosition(latest=True), KafkaReaderOptions())
        waiting = asyncio.ensure_future(reader.take())
        await truncate_log(lab.broker, TOPIC, 1)
        with pytest.raises(Moved):
            await waiting

    lab.run(read())
    with pytest.raises(KafkaError) as refused:
        lab.records(3)
    assert refused.value.kind is KafkaErrorKind.OFFSET_OUT_OF_RANGE
    assert lab.records(1) == []


def test_recently_appended_batches_are_removed_too(lab: KafkaLab) -> None:
    """It is durable before, so its producer has its receipt."""

    async def both() -> None:
        topic = await lab.broker.kafka_topic(TOPIC)
        appending = asyncio.ensure_future(topic.append_batches(lab.batch([A]), Origin.CLIENT))
        await asyncio.sleep(0)
        await truncate_log(lab.broker, TOPIC, 0)
        assert [each.first_offset for each in await appending] == [0]

    lab.run(both())
    assert offsets(lab) == []


def test_a_topic_that_is_deleted_meanwhile_is_not_truncated(
    lab: KafkaLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The truncation was waiting while the topic was deleted."""
    lab.add([A])

    async def both() -> None:
        gate = Gate(monkeypatch, Cleaner, "idle")
        truncation = asyncio.ensure_future(truncate_log(lab.broker, TOPIC, 0))
        await gate.reached.wait()
        await lab.broker.delete_topic(TOPIC, force=True)
        gate.opened.set()
        with pytest.raises(Moved):
            await truncation

    lab.run(both())
    assert lab.metadata.topic(TOPIC) is None
    assert lab.broker.cleaner.states.is_free(TOPIC)


# the cleaner


@pytest.fixture
def worker(lab: KafkaLab) -> HeldWorker:
    worker = HeldWorker()
    lab.broker.cleaner._compactor = cast(Compactor, worker)
    return worker


def test_a_truncation_below_the_active_segment_aborts_a_cleaning(
    lab: KafkaLab, worker: HeldWorker
) -> None:
    three_segments(lab)

    async def both() -> None:
        turn = asyncio.ensure_future(lab.broker.cleaner.run_pass(TOPIC))
        await worker.began.wait()
        await truncate_log(lab.broker, TOPIC, 3)
        assert (await turn).was_aborted

    lab.run(both())
    assert lab.broker.cleaner.states.is_free(TOPIC)
    assert (bases(lab), offsets(lab)) == ([0, 2], [0, 1, 2])


def test_a_truncation_of_the_active_segment_waits_for_a_cleaning(
    lab: KafkaLab, worker: HeldWorker
) -> None:
    three_segments(lab)

    async def both() -> None:
        turn = asyncio.ensure_future(lab.broker.cleaner.run_pass(TOPIC))
        await worker.began.wait()
        truncation = asyncio.ensure_future(truncate_log(lab.broker, TOPIC, 5))
        for _ in range(20):
            await asyncio.sleep(0)
        assert isinstance(lab.broker.cleaner.states.of(TOPIC), InProgress)
        worker.go_on.set()
        assert not (await turn).was_aborted
        assert (await truncation).log_end_offset == 5

    lab.run(both())
    assert lab.broker.cleaner.states.is_free(TOPIC)
    assert offsets(lab) == [0, 1, 2, 3, 4]


def test_a_pause_set_by_another_request_is_kept(lab: KafkaLab) -> None:
    three_segments(lab)
    lab.run(lab.broker.cleaner.abort_and_pause(TOPIC))
    truncate(lab, 1)
    assert lab.broker.cleaner.states.of(TOPIC) == Paused(1)


def test_a_failed_disk_is_reported_and_nothing_is_removed(lab: KafkaLab) -> None:
    lab.add([A], [B])
    lab.files.fail_at(1)

    async def both() -> None:
        topic = await lab.broker.kafka_topic(TOPIC)
        appending = asyncio.ensure_future(topic.append_batches(lab.batch([C]), Origin.CLIENT))
        await asyncio.sleep(0)
        with pytest.raises(DiskFailure):
            await truncate_log(lab.broker, TOPIC, 1)
        with pytest.raises(DiskFailure):
            await appending

    lab.run(both())
    assert offsets(lab) == [0, 1]

"""Tests that malformed batches and markers are rejected with a text, and are no defect."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledgerfold.broker.kafka.cleaner.states import InProgress
from ledgerfold.broker.kafka.log.begin_segment import LAST_BASE_OFFSET
from ledgerfold.broker.rpc.kafka import KafkaHandlers
from ledgerfold.broker.rpc.kafka_cleaner import CleanerHandlers
from ledgerfold.storage.errors import InvalidRequest, KafkaError, KafkaErrorKind
from ledgerfold.storage.kafka.batch import read_batch_header, sealed
from ledgerfold.v1 import kafka_pb2
from tests.model.broker_lab import TOPIC
from tests.support.kafka_lab import KafkaLab


@pytest.fixture
def lab() -> Iterator[KafkaLab]:
    lab = KafkaLab({"cleanup.policy": "compact"})
    yield lab
    lab.close()


@pytest.mark.parametrize("origin", [0, 1, 2])
@pytest.mark.parametrize("count", [-1, -(2**31)])
def test_a_negative_record_count(lab: KafkaLab, origin: kafka_pb2.KafkaOrigin, count: int) -> None:
    batch = lab.batch([(b"a", b"1")])
    broken = sealed(read_batch_header(batch)._replace(record_count=count), batch[61:])
    request = kafka_pb2.KafkaAppendRequest(topic=TOPIC, batches=broken, origin=origin)
    with pytest.raises(KafkaError, match="invalid record count") as refused:
        lab.run(KafkaHandlers(lab.broker).append(request))
    assert refused.value.kind is KafkaErrorKind.INVALID_RECORD
    assert lab.records() == []


def test_an_unknown_origin(lab: KafkaLab) -> None:
    request = kafka_pb2.KafkaAppendRequest(topic=TOPIC, batches=lab.batch([(b"a", b"1")]))
    request.origin = 9  # type: ignore[assignment]
    with pytest.raises(InvalidRequest, match="9 is not a valid origin"):
        lab.run(KafkaHandlers(lab.broker).append(request))


@pytest.mark.parametrize("epoch", [-1, 2**15])
def test_an_invalid_producer_epoch(lab: KafkaLab, epoch: int) -> None:
    request = kafka_pb2.EndTransactionRequest(topic=TOPIC, producer_id=1, producer_epoch=epoch)
    with pytest.raises(InvalidRequest, match="epoch is between 0 and 32767"):
        lab.run(KafkaHandlers(lab.broker).end_transaction(request))


@pytest.mark.parametrize("offset", [-1, -(2**63)])
def test_a_high_watermark_below_the_log_start(lab: KafkaLab, offset: int) -> None:
    lab.add([(b"a", b"1")])
    request = kafka_pb2.SetHighWatermarkRequest(topic=TOPIC, offset=offset)
    with pytest.raises(
        InvalidRequest, match=r"cannot be held at -.* Without an offset, it follows"
    ):
        lab.run(KafkaHandlers(lab.broker).set_high_watermark(request))
    assert lab.kafka.partition.high_watermark == 1


def test_a_page_of_batches_only(lab: KafkaLab) -> None:
    """Lists had been in each answer, beside a batch that may fill it."""
    lab.add([(b"a", b"1")], producer_id=7, producer_epoch=0, base_sequence=0)
    request = kafka_pb2.DescribeLogRequest(topic=TOPIC, batches=True, batches_only=True)
    told = lab.run(KafkaHandlers(lab.broker).describe_log(request))
    assert (len(told.batches), told.log_end_offset) == (1, 1)
    assert [*told.segments, *told.producers, *told.aborted] == []
    request.batches = False
    told = lab.run(KafkaHandlers(lab.broker).describe_log(request))
    assert told.segments
    assert told.producers


def test_a_checkpoint_below_the_log_start(lab: KafkaLab) -> None:
    request = kafka_pb2.SetCleaningRequest(topic=TOPIC, checkpoint=-2)
    with pytest.raises(
        InvalidRequest, match=r"-2 is not a valid checkpoint: .* -1 removes the stored one"
    ):
        lab.run(CleanerHandlers(lab.broker).set_cleaning(request))
    assert lab.kafka.partition.checkpoint is None


def test_no_log_is_skipped_without_a_reason(lab: KafkaLab) -> None:
    request = kafka_pb2.SetCleaningRequest(topic=TOPIC, uncleanable_reason="")
    with pytest.raises(InvalidRequest, match="Give the reason"):
        lab.run(CleanerHandlers(lab.broker).set_cleaning(request))
    assert not lab.broker.cleaner.states.is_uncleanable(TOPIC)


def test_a_cleaning_in_progress_does_not_count_as_a_pause(lab: KafkaLab) -> None:
    request = kafka_pb2.SetCleaningRequest(topic=TOPIC, action="resume")
    lab.broker.cleaner.states.begin(TOPIC)
    with pytest.raises(InvalidRequest, match="is not paused"):
        lab.run(CleanerHandlers(lab.broker).set_cleaning(request))
    assert lab.broker.cleaner.states.of(TOPIC) == InProgress()
    lab.broker.cleaner.states.end(TOPIC)


def test_a_segment_at_the_maximum_offset_is_refused(lab: KafkaLab) -> None:
    """An append behind it would find no offset."""
    request = kafka_pb2.RollSegmentRequest(topic=TOPIC, base_offset=2**63 - 1)
    with pytest.raises(KafkaError, match=r"cannot begin at .*: offsets end at") as refused:
        lab.run(KafkaHandlers(lab.broker).roll_segment(request))
    assert refused.value.kind is KafkaErrorKind.OFFSET_OUT_OF_RANGE
    request.base_offset = LAST_BASE_OFFSET
    lab.run(KafkaHandlers(lab.broker).roll_segment(request))
    assert lab.add([(b"a", b"1")]) == [(LAST_BASE_OFFSET, LAST_BASE_OFFSET)]

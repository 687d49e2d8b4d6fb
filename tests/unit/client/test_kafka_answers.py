"""Responses about Kafka topics, as plain Python values."""

from __future__ import annotations

from ledgerfold.broker.client.administration.kafka_answers import (
    CleanerStatus,
    CleanerTurn,
    LogDescription,
    SegmentInfo,
)
from ledgerfold.v1 import kafka_pb2


def test_fields_that_are_not_set_are_none() -> None:
    """An offset 0 is a value; a field without presence is 0."""
    response = kafka_pb2.DescribeLogResponse(checkpoint=0, batches=[{"batch": b"b"}])
    log = LogDescription.of(response)
    assert (log.checkpoint, log.more_from, log.log_end_offset, log.batches) == (0, None, 0, [b"b"])
    turn = CleanerTurn.of(kafka_pb2.CleanTurnResponse(end_offset=3))
    assert (turn.topic, turn.plan, turn.stats, turn.end_offset) == (None, None, None, None)


def test_lists_and_maps_are_plain_python_values() -> None:
    segment = SegmentInfo.of(kafka_pb2.KafkaSegmentInfo(ledger_ids=[1, 2]))
    assert type(segment.ledger_ids) is list
    assert segment.ledger_ids == [1, 2]
    status = CleanerStatus.of(kafka_pb2.GetCleanerResponse(gauges={"a": 1.5}, last_turns=["t"]))
    assert type(status.gauges) is dict
    assert (status.gauges, status.states, status.last_turns) == ({"a": 1.5}, {}, ["t"])

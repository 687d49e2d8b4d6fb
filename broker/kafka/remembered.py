"""What a topic's record remembers of producers, as Kafka's snapshot files do.

    >>> from ledgerfold.broker.kafka.producers import Producers
    >>> remembered(Producers("t-0", expiration_ms=1), 7).end_offset
    7

A snapshot is taken when a segment begins, and when the log is closed well. A load begins with one:

* Closed well: with that one, and nothing is replayed.
* Not closed well: with that of the active segment, all of whose batches are replayed.
* Not closed well, and what was before the active segment had not all got durable: with none. That
  snapshot tells of batches that are gone, and others have their offsets.
* One at or below the log's start tells of nothing that is left, and is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ledgerfold.broker.kafka.producers import Producers, ProducerSnapshot
from ledgerfold.v1.records_pb2 import KafkaLog, KafkaProducer, KafkaProducers


class Beginning(NamedTuple):
    """With what a load begins: batches that end at or behind `replayed_from` are replayed."""

    producers: Iterable[ProducerSnapshot]
    replayed_from: int


def remembered(producers: Producers, end_offset: int) -> KafkaProducers:
    return KafkaProducers(
        end_offset=end_offset,
        producers=[KafkaProducer(**each._asdict()) for each in producers.snapshot()],
    )


def beginning(log: KafkaLog, log_end: int, *, is_whole: bool) -> Beginning:
    """`log`: as it was before it was opened; `is_whole`: nothing is lost before its active segment.

    >>> log = KafkaLog(rolled={"end_offset": 9, "producers": [{"producer_id": 7}]})
    >>> [beginning(log, 9, is_whole=each).replayed_from for each in (True, False)]
    [9, 0]
    """
    if log.HasField("closed") and log.closed.end_offset == log_end:
        found = log.closed
    elif is_whole and log.HasField("rolled") and log.rolled.end_offset <= log_end:
        found = log.rolled
    else:
        return Beginning((), 0)
    if found.end_offset <= log.log_start_offset:
        return Beginning((), found.end_offset)
    return Beginning(map(_snapshot, found.producers), found.end_offset)


def _snapshot(record: KafkaProducer) -> ProducerSnapshot:
    return ProducerSnapshot(
        record.producer_id,
        record.epoch,
        record.last_sequence,
        record.last_data_offset,
        record.offset_delta,
        record.last_timestamp_ms,
        record.coordinator_epoch,
        record.transaction_first_offset,
    )

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
* Of a log that was truncated: with the newest one that is left. For that each segment keeps the one
  of its beginning, as in Kafka.

Bounds: SNAPSHOTS_MAX producers in the snapshots of segments that ended; the oldest go first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ledgerfold.broker.kafka.producers import Producers, ProducerSnapshot
from ledgerfold.v1.records_pb2 import KafkaLog, KafkaProducer, KafkaProducers, KafkaSegment

SNAPSHOTS_MAX = 2000


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


def remember_rolled(log: KafkaLog, producers: KafkaProducers) -> None:
    """An active segment has begun: what was known then. The one before it keeps its own."""
    if log.HasField("rolled"):
        for segment in log.segments:
            if segment.base_offset == log.rolled.end_offset < producers.end_offset:
                segment.producers.CopyFrom(log.rolled)
    log.rolled.CopyFrom(producers)
    count = 0
    for segment in reversed(log.segments):
        count += len(segment.producers.producers)
        if count > SNAPSHOTS_MAX:
            segment.ClearField("producers")


def newest_upto(log: KafkaLog, offset: int) -> KafkaProducers:
    """The snapshot to begin with when nothing behind that offset is left.

    >>> one = {"base_offset": 5, "producers": {"end_offset": 5}}
    >>> log = KafkaLog(segments=[one], rolled={"end_offset": 9})
    >>> [newest_upto(log, each).end_offset for each in (9, 8, 4)]
    [9, 5, 0]
    """
    known = [each.producers for each in log.segments if each.HasField("producers")]
    known += [log.rolled] if log.HasField("rolled") else []
    known += [log.loaded] if log.HasField("loaded") else []
    there = [each for each in known if log.log_start_offset < each.end_offset <= offset]
    nothing = KafkaProducers(end_offset=log.log_start_offset)
    return max(there, key=lambda each: each.end_offset, default=nothing)


def hand_on(old: Iterable[KafkaSegment], new: Iterable[KafkaSegment]) -> None:
    """What comes in the place of segments, by a cleaning or at a load, begins where some did."""
    known = {each.base_offset: each for each in old}
    for segment in new:
        before = known.get(segment.base_offset)
        if before is not None:
            if not segment.is_cleaned:
                segment.begun_ms = before.begun_ms
            if before.HasField("producers"):
                segment.producers.CopyFrom(before.producers)


def forget_snapshots(log: KafkaLog) -> None:
    """They tell of batches that are gone, and other batches will get their offsets."""
    log.ClearField("rolled")
    log.ClearField("loaded")
    for segment in log.segments:
        segment.ClearField("producers")


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
        record.last_append_time_ms,
    )

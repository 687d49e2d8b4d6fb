"""Producer snapshots in a topic's record, as in Kafka's snapshot files.

    >>> from ledgerfold.broker.kafka.producers.producers import Producers
    >>> take_snapshot(Producers("t-0", expiration_ms=1), 7).end_offset
    7

A snapshot is taken when a segment begins, and when the log is closed cleanly. A load starts from
one:

* After a clean close: from the snapshot of the close; nothing is replayed.
* After a crash: from that of the active segment, all of whose batches are replayed.
* After a crash that lost batches before the active segment: from that of the newest segment that
  begins before the loss. Later snapshots describe lost batches, whose offsets will be assigned
  again.
* A snapshot at or below the log start describes nothing that still exists, and is ignored.
* After a truncation: from the newest remaining snapshot. For this, each segment keeps the snapshot
  of its beginning, as in Kafka.

Bounds: SNAPSHOTS_MAX producers in the snapshots of ended segments; the oldest are dropped first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ledgerfold.broker.kafka.producers.producers import Producers
from ledgerfold.v1.records_pb2 import KafkaLog, KafkaProducer, KafkaProducers, KafkaSegment

SNAPSHOTS_MAX = 2000


class ReplayStart(NamedTuple):
    """The start of a load: batches that end at or after `replayed_from` are replayed."""

    producers: Iterable[KafkaProducer]
    replayed_from: int


def take_snapshot(producers: Producers, end_offset: int) -> KafkaProducers:
    return KafkaProducers(end_offset=end_offset, producers=producers.snapshot())


def replay_start(log: KafkaLog, log_end: int, intact_end: int) -> ReplayStart:
    """Returns the start of a load of `log`, as it was before it was opened.

    `intact_end`: nothing before it is lost.

    >>> log = KafkaLog(rolled={"end_offset": 9, "producers": [{"producer_id": 7}]})
    >>> [replay_start(log, 9, each).replayed_from for each in (9, 8)]
    [9, 0]
    """
    if log.HasField("closed") and log.closed.end_offset == log_end:
        snapshot = log.closed
    else:
        snapshot = _newest(_of_segments(log), min(log_end, intact_end)) or KafkaProducers()
    if snapshot.end_offset <= log.log_start_offset:
        return ReplayStart((), snapshot.end_offset)
    return ReplayStart(snapshot.producers, snapshot.end_offset)


def record_rolled(log: KafkaLog, producers: KafkaProducers) -> None:
    """Records the snapshot of a new active segment. The previous segment keeps its own snapshot."""
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


def newest_snapshot(log: KafkaLog, offset: int) -> KafkaProducers:
    """Returns the snapshot to start from if everything after that offset was deleted.

    >>> one = {"base_offset": 5, "producers": {"end_offset": 5}}
    >>> log = KafkaLog(segments=[one], rolled={"end_offset": 9})
    >>> [newest_snapshot(log, each).end_offset for each in (9, 8, 4)]
    [9, 5, 0]
    """
    known = _of_segments(log) + ([log.loaded] if log.HasField("loaded") else [])
    there = [each for each in known if log.log_start_offset < each.end_offset]
    return _newest(there, offset) or KafkaProducers(end_offset=log.log_start_offset)


def _of_segments(log: KafkaLog) -> list[KafkaProducers]:
    """Returns the snapshots at the base offsets of segments."""
    known = [each.producers for each in log.segments if each.HasField("producers")]
    return known + ([log.rolled] if log.HasField("rolled") else [])


def _newest(snapshots: Iterable[KafkaProducers], offset: int) -> KafkaProducers | None:
    """Returns the newest snapshot at or below `offset`, if any."""
    there = [each for each in snapshots if each.end_offset <= offset]
    return max(there, key=lambda each: each.end_offset, default=None)


def carry_over(old: Iterable[KafkaSegment], new: Iterable[KafkaSegment]) -> None:
    """Copies snapshots and creation times to replacements of segments with the same base offset."""
    known = {each.base_offset: each for each in old}
    for segment in new:
        before = known.get(segment.base_offset)
        if before is not None:
            if not segment.is_cleaned:
                segment.begun_ms = before.begun_ms
            if before.HasField("producers"):
                segment.producers.CopyFrom(before.producers)


def forget_snapshots(log: KafkaLog, intact_end: int) -> None:
    """Drops snapshots that describe lost batches, whose offsets other batches get.

    The next load starts from the newest remaining one of a segment.

    >>> one = {"base_offset": 5, "producers": {"end_offset": 5}}
    >>> log = KafkaLog(segments=[one], rolled={"end_offset": 9})
    >>> forget_snapshots(log, 8)
    >>> log.rolled.end_offset
    5
    """
    newest = _newest(_of_segments(log), intact_end)
    log.ClearField("loaded")
    for segment in log.segments:
        if segment.producers.end_offset > intact_end:
            segment.ClearField("producers")
    log.ClearField("rolled")
    if newest is not None:
        log.rolled.CopyFrom(newest)

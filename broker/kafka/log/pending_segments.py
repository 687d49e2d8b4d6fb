"""Records facts about segments in the topic's record, with the ledgers that begin or end them.

A segment that ended has its figures recorded, because its indexes are final. A segment that begins
has a snapshot of producers recorded. Both are written with the new segment's first ledger, in one
write. A log that is closed cleanly records the same for its active segment and its end. This is
valid until the log is opened again: later appends make it obsolete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from ledgerfold.broker.kafka.log.segments import LiveSegment
from ledgerfold.broker.kafka.producers.producer_snapshots import record_rolled
from ledgerfold.kafka.rolling import Growth
from ledgerfold.v1.records_pb2 import KafkaLog, KafkaProducers, KafkaSegmentFigures


class _PendingSegment(NamedTuple):
    base_offset: int
    ended_base_offset: int
    begun_ms: int
    figures: KafkaSegmentFigures
    producers: KafkaProducers


class PendingSegments:
    """Segments whose first ledger is not recorded yet, by that ledger. Bounded by those ledgers."""

    def __init__(self) -> None:
        self._by_ledger: dict[int, _PendingSegment] = {}

    def add(
        self,
        ledger_id: int,
        growth: Growth,
        ended: LiveSegment,
        producers: KafkaProducers,
        recorded: Collection[int],
    ) -> None:
        """Adds a segment that begins. `recorded`: the ledgers in the topic's record now."""
        for each in [each for each in self._by_ledger if each in recorded]:
            del self._by_ledger[each]
        self._by_ledger[ledger_id] = _PendingSegment(
            growth.base_offset,
            ended.base_offset,
            growth.modified_ms,
            ended.figures(),
            producers,
        )

    def base_of(self, ledger_id: int) -> int | None:
        """Returns the base offset of the segment that a ledger begins; None if it continues one."""
        begun = self._by_ledger.get(ledger_id)
        return None if begun is None else begun.base_offset

    def record(self, log: KafkaLog, ledger_ids: Collection[int]) -> None:
        """Records the pending segments of `ledger_ids`, the raw ledgers, in `log`, which lists
        them.
        """
        for ledger_id, begun in self._by_ledger.items():
            if ledger_id not in ledger_ids:
                continue
            for segment in log.segments:
                if segment.base_offset == begun.ended_base_offset and not segment.is_cleaned:
                    segment.figures.CopyFrom(begun.figures)
                elif ledger_id in segment.ledger_ids:
                    segment.begun_ms = begun.begun_ms
            record_rolled(log, begun.producers)


def record_repaired_figures(log: KafkaLog, ended: Iterable[LiveSegment]) -> None:
    """Records figures that a load found for ended segments of which a repair gave up entries."""
    by_base_offset = {each.base_offset: each for each in ended}
    for segment in log.segments[:-1]:
        live = by_base_offset.get(segment.base_offset)
        if live is not None and not segment.is_cleaned and not segment.figures.size_bytes:
            segment.figures.CopyFrom(live.figures())


def record_close(
    log: KafkaLog, active: LiveSegment, loaded: KafkaProducers, producers: KafkaProducers
) -> None:
    """Records a clean close. `loaded`: the producer snapshot of the load."""
    log.segments[-1].figures.CopyFrom(active.figures())
    log.closed.CopyFrom(producers)
    log.loaded.CopyFrom(loaded)


def record_open(log: KafkaLog) -> None:
    """Records an opening. The active segment is listed, with a ledger for new appends."""
    active = log.segments[-1]
    if log.HasField("closed") and log.closed.end_offset == active.base_offset:
        # The active segment begins here, or has been empty.
        record_rolled(log, log.closed)
    if not log.HasField("truncated_to"):
        if not log.HasField("closed"):
            # After a crash its indexes are rebuilt.
            active.ClearField("closed_behind")
            active.ClearField("cut_behind")
        active.closed_behind.extend(active.ledger_ids[-2:-1])
    log.ClearField("closed")
    log.ClearField("loaded")
    log.ClearField("truncated_to")
    active.ClearField("figures")

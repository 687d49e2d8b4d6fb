"""What a topic's record is to tell of segments that begin and end, beside the ledgers they are in.

Of one that ended: its figures, for its indexes are then what they are. Of one that begins: what was
known of producers. Both are told with the new segment's first ledger, in one write. A log that is
closed well tells the same of its active segment and of its end, until it is opened again: what is
appended then makes it untrue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from ledgerfold.broker.kafka.remembered import remember_rolled
from ledgerfold.broker.kafka.segments import LiveSegment, figures_of
from ledgerfold.kafka.rolling import Growth
from ledgerfold.v1.records_pb2 import KafkaLog, KafkaProducers, KafkaSegmentFigures


class _Begun(NamedTuple):
    base_offset: int
    ended_base_offset: int
    begun_ms: int
    figures: KafkaSegmentFigures
    producers: KafkaProducers


class BegunSegments:
    """By the ledgers that began them. Bounded by the ledgers whose records are on their way."""

    def __init__(self) -> None:
        self._by_ledger: dict[int, _Begun] = {}

    def add(
        self,
        ledger_id: int,
        begun: Growth,
        ended: LiveSegment,
        producers: KafkaProducers,
        recorded: Collection[int],
    ) -> None:
        """`recorded`: ledgers of which the record tells by now."""
        for each in [each for each in self._by_ledger if each in recorded]:
            del self._by_ledger[each]
        self._by_ledger[ledger_id] = _Begun(
            begun.base_offset,
            ended.base_offset,
            begun.modified_ms,
            figures_of(ended.facts, ended.aborted),
            producers,
        )

    def base_of(self, ledger_id: int) -> int | None:
        """None: the ledger goes on with a segment."""
        begun = self._by_ledger.get(ledger_id)
        return None if begun is None else begun.base_offset

    def tell(self, log: KafkaLog, ledger_ids: Collection[int]) -> None:
        """`log`: its segments are listed; `ledger_ids`: its raw ledgers."""
        for ledger_id, begun in self._by_ledger.items():
            if ledger_id not in ledger_ids:
                continue
            for segment in log.segments:
                if segment.base_offset == begun.ended_base_offset and not segment.is_cleaned:
                    segment.figures.CopyFrom(begun.figures)
                elif ledger_id in segment.ledger_ids:
                    segment.begun_ms = begun.begun_ms
            remember_rolled(log, begun.producers)


def tell_ended(log: KafkaLog, ended: Iterable[LiveSegment]) -> None:
    """Of segments of which a repair gave up something: what a load has found of them."""
    found = {each.base_offset: each for each in ended}
    for segment in log.segments[:-1]:
        live = found.get(segment.base_offset)
        if live is not None and not segment.is_cleaned and not segment.figures.size_bytes:
            segment.figures.CopyFrom(figures_of(live.facts, live.aborted))


def tell_closed(
    log: KafkaLog, active: LiveSegment, loaded: KafkaProducers, producers: KafkaProducers
) -> None:
    """`loaded`: what was known of producers at the load."""
    log.segments[-1].figures.CopyFrom(figures_of(active.facts, active.aborted))
    log.closed.CopyFrom(producers)
    log.loaded.CopyFrom(loaded)


def tell_opened(log: KafkaLog) -> None:
    """Its active segment is listed, with a ledger for what is appended now."""
    active = log.segments[-1]
    if log.HasField("closed") and log.closed.end_offset == active.base_offset:
        # It begins here, or has held nothing.
        remember_rolled(log, log.closed)
    if not log.HasField("truncated_to"):
        if not log.HasField("closed"):
            # Its indexes are made anew.
            active.ClearField("closed_behind")
            active.ClearField("cut_behind")
        active.closed_behind.extend(active.ledger_ids[-2:-1])
    log.ClearField("closed")
    log.ClearField("loaded")
    log.ClearField("truncated_to")
    active.ClearField("figures")

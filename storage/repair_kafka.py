"""What a repair makes of a Kafka topic's record. Pure: storage/repair_plan.py asks.

* A segment whose ledgers are gone stays without any: its offsets are not given out again. Nor are
  those of entries that are lost at the end of what is left, if a segment begins behind them.
* A cleaned segment of which something is left holds that; what its record tells of the end stays.
* A topic whose record is gone gets its segments from what lies in its ledgers. Its settings are
  lost, so nothing is deleted until a person says so; and with its checkpoint it is dirty all over.

    >>> log = made_log([LedgerFacts(3, False, Span(0, 5, 1)), LedgerFacts(9, True, Span(0, 0))])
    >>> [(each.base_offset, list(each.ledger_ids)) for each in log.segments]
    [(0, [3])]
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import NamedTuple

from ledgerfold.storage.kafka.span import Span
from ledgerfold.storage.survey import LedgerCheck
from ledgerfold.v1.records_pb2 import KafkaLog, KafkaSegment, KafkaSegmentFigures

# As Kafka's broker hands them out.
_PRODUCER_IDS_PER_BLOCK = 1000


class LedgerFacts(NamedTuple):
    """One of a topic's ledgers, and the good batches in it."""

    ledger_id: int
    is_cleaned: bool
    span: Span


def facts_of(check: LedgerCheck) -> LedgerFacts:
    return LedgerFacts(check.record.ledger_id, not check.is_raw, check.span())


def made_log(ledgers: Iterable[LedgerFacts]) -> KafkaLog:
    """From nothing but a topic's ledgers. Those without a batch are not in it."""
    there = [each for each in ledgers if each.span.batches]
    there.sort(key=lambda each: (not each.is_cleaned, each.span.base_offset))
    segments = [
        KafkaSegment(
            base_offset=each.span.base_offset,
            ledger_ids=[each.ledger_id],
            is_cleaned=each.is_cleaned,
            figures=_figures(each.span) if each.is_cleaned else None,
        )
        for each in there
    ]
    start = segments[0].base_offset if segments else 0
    return KafkaLog(
        config={"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
        log_start_offset=start,
        segments=segments,
    )


def _figures(span: Span) -> KafkaSegmentFigures:
    return KafkaSegmentFigures(
        next_offset=span.next_offset,
        size_bytes=span.size_bytes,
        batches=span.batches,
        first_batch_timestamp_ms=span.first_batch_timestamp_ms,
        largest_timestamp_ms=span.largest_timestamp_ms,
        largest_timestamp_offset=span.largest_timestamp_offset,
        modified_ms=span.largest_timestamp_ms,
    )


def list_raw(log: KafkaLog, raw_ids: Collection[int], facts: dict[int, LedgerFacts]) -> bool:
    """Makes the raw segments those of `raw_ids`, which are in order; whether they were others."""
    before = log.SerializeToString()
    listed = set[int]()
    for segment in log.segments:
        if not segment.is_cleaned:
            segment.ledger_ids[:] = [each for each in segment.ledger_ids if each in raw_ids]
            listed.update(segment.ledger_ids)
    for ledger_id in raw_ids:
        if ledger_id not in listed:
            _insert(log, facts[ledger_id])
    return log.SerializeToString() != before


def keep_ends(log: KafkaLog, shortened: Collection[int]) -> None:
    """Segments that lost entries end where the next one begins, as they did before."""
    for segment, following in pairwise(log.segments):
        is_raw = not (segment.is_cleaned or following.is_cleaned)
        if is_raw and not set(segment.ledger_ids).isdisjoint(shortened):
            # What was counted of it is true no more.
            segment.ClearField("figures")
            segment.reserved_upto = max(segment.reserved_upto, following.base_offset)


def _insert(log: KafkaLog, facts: LedgerFacts) -> None:
    """A raw ledger that no segment names: behind those with lower ids."""
    at = sum(
        each.is_cleaned or not each.ledger_ids or each.ledger_ids[0] < facts.ledger_id
        for each in log.segments
    )
    if at and not log.segments[at - 1].is_cleaned:
        before = log.segments[at - 1].ledger_ids
        if not facts.span.batches or (before and before[-1] > facts.ledger_id):
            before[:] = sorted([*before, facts.ledger_id])
            return
    base = facts.span.base_offset if facts.span.batches else _next_offset(log, at)
    made = KafkaSegment(base_offset=base, ledger_ids=[facts.ledger_id])
    # A copy, for a message that is taken out of its list is nobody's.
    rest = KafkaLog(segments=log.segments[at:])
    del log.segments[at:]
    log.segments.extend([made, *rest.segments])


def _next_offset(log: KafkaLog, at: int) -> int:
    return log.segments[at - 1].figures.next_offset if at else log.log_start_offset


def forget_cleaned(log: KafkaLog, ledger_id: int) -> None:
    """The ledger is gone: its segment is empty."""
    for segment in log.segments:
        if ledger_id in segment.ledger_ids:
            del segment.ledger_ids[:]
            gone = segment.figures
            segment.figures.CopyFrom(
                KafkaSegmentFigures(
                    next_offset=gone.next_offset,
                    first_batch_timestamp_ms=-1,
                    largest_timestamp_ms=-1,
                    largest_timestamp_offset=-1,
                    modified_ms=gone.modified_ms,
                    aborted=gone.aborted,
                )
            )


def shrink_cleaned(log: KafkaLog, ledger_id: int, span: Span) -> None:
    """Only these batches of the ledger are left."""
    for segment in log.segments:
        if ledger_id in segment.ledger_ids:
            figures = segment.figures
            figures.size_bytes, figures.batches = span.size_bytes, span.batches
            figures.first_batch_timestamp_ms = span.first_batch_timestamp_ms
            figures.largest_timestamp_ms = span.largest_timestamp_ms
            figures.largest_timestamp_offset = span.largest_timestamp_offset


def next_producer_id(spans: Iterable[Span]) -> int:
    """Above all in the batches, and those that were handed out with them."""
    largest = max((each.largest_producer_id for each in spans), default=-1)
    return (largest // _PRODUCER_IDS_PER_BLOCK + 1) * _PRODUCER_IDS_PER_BLOCK

"""The repair of a Kafka topic's record. Pure; used by storage/repair/plan.py.

* A segment whose ledgers are lost stays, without ledgers: its offsets are not assigned again.
  Neither are those of entries lost at the end of the remaining ledgers, as far as they are known:
  from the next segment, from the log's end if it was closed cleanly, otherwise from what is known
  of the entries.
* A transaction that the record lists as aborted stays aborted, even if its marker is lost.
* A cleaned segment with remaining batches has only those; the recorded end stays.
* A topic whose record is lost gets its segments from its ledgers. Its settings are lost, so nothing
  is deleted until they are set; and without its checkpoint, all of it is dirty.

    >>> log = made_log([LedgerFacts(3, False, Span(0, 5, 1)), LedgerFacts(9, True, Span(0, 0))])
    >>> [(each.base_offset, list(each.ledger_ids)) for each in log.segments]
    [(0, [3])]
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ledgerfold.storage.kafka.span import Span
from ledgerfold.storage.records import put_segments
from ledgerfold.storage.repair.ledger_check import LedgerCheck
from ledgerfold.storage.repair.losses import messages_after
from ledgerfold.v1.records_pb2 import KafkaLog, KafkaSegment, KafkaSegmentFigures

# The block size of Kafka's brokers.
_PRODUCER_IDS_PER_BLOCK = 1000


class LedgerFacts(NamedTuple):
    """A topic's ledger, and the good batches in it.

    `lost_offsets`: the minimum number of offsets lost after them.
    """

    ledger_id: int
    is_cleaned: bool
    span: Span
    lost_offsets: int = 0


def facts_of(check: LedgerCheck) -> LedgerFacts:
    lost_offsets = messages_after(check) if check.is_raw else 0
    return LedgerFacts(check.record.ledger_id, not check.is_raw, check.span(), lost_offsets)


def made_log(ledgers: Iterable[LedgerFacts]) -> KafkaLog:
    """Builds a log from a topic's ledgers. Ledgers without a batch are omitted."""
    found = [each for each in ledgers if each.span.batches]
    found.sort(key=lambda each: (not each.is_cleaned, each.span.base_offset))
    segments = [
        KafkaSegment(
            base_offset=each.span.base_offset,
            ledger_ids=[each.ledger_id],
            is_cleaned=each.is_cleaned,
            figures=_figures(each.span) if each.is_cleaned else None,
        )
        for each in found
    ]
    start = segments[0].base_offset if segments else 0
    return KafkaLog(
        config={"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
        log_start_offset=start,
        segments=segments,
    )


def _figures(span: Span) -> KafkaSegmentFigures:
    figures = KafkaSegmentFigures(
        next_offset=span.next_offset, modified_ms=span.largest_timestamp_ms
    )
    _describe(figures, span)
    return figures


def list_raw(log: KafkaLog, raw_ids: Collection[int], facts: dict[int, LedgerFacts]) -> bool:
    """Makes the raw segments list the ordered `raw_ids`. Returns whether that changed them."""
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


def keep_ends(log: KafkaLog, lost: Collection[int], facts: Mapping[int, LedgerFacts]) -> None:
    """Keeps the ends of raw segments that lost entries, and the aborted transactions.

    `log`: as recorded; `lost`: ledgers that are lost, entirely or in part; `facts`: of the
    remaining ones.
    """
    left: KafkaSegment | None = None
    for at, segment in enumerate(log.segments):
        there = (facts[each] for each in segment.ledger_ids if each in facts)
        is_left = segment.is_cleaned or any(each.span.batches for each in there)
        if not segment.is_cleaned and not set(segment.ledger_ids).isdisjoint(lost):
            following = log.segments[at + 1 : at + 2]
            end = following[0].base_offset if following else _last_end(log, facts)
            segment.reserved_upto = max(segment.reserved_upto, end)
            # The recorded figures are no longer valid.
            segment.figures.CopyFrom(KafkaSegmentFigures(aborted=segment.figures.aborted))
            if left is not None and not is_left:
                _move_data(segment, left)
        if is_left:
            left = segment


def _last_end(log: KafkaLog, facts: Mapping[int, LedgerFacts]) -> int:
    """Returns the log's end offset, as far as it is known."""
    last, lost_offsets = log.segments[-1], 0
    end = max(log.closed.end_offset, last.figures.next_offset)
    there = [facts[each] for each in last.ledger_ids if each in facts]
    for each in reversed(there):
        lost_offsets += each.lost_offsets
        if each.span.batches:
            return max(end, each.span.next_offset + lost_offsets)
    return max(end, last.base_offset + lost_offsets)


def _move_data(lost: KafkaSegment, left: KafkaSegment) -> None:
    """Moves a lost segment's data to the previous one: a load drops an empty segment."""
    before = (each for each in lost.figures.aborted if each.first_offset < lost.base_offset)
    left.figures.aborted.extend(before)
    lost.ClearField("figures")
    if not left.is_cleaned:
        left.reserved_upto = max(left.reserved_upto, lost.reserved_upto)


def _insert(log: KafkaLog, facts: LedgerFacts) -> None:
    """Inserts a raw ledger that no segment names, after those with lower ids."""
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
    inserted = KafkaSegment(base_offset=base, ledger_ids=[facts.ledger_id])
    put_segments(log, [*log.segments[:at], inserted, *log.segments[at:]])


def _next_offset(log: KafkaLog, at: int) -> int:
    return log.segments[at - 1].figures.next_offset if at else log.log_start_offset


def adopt_cleaned(
    log: KafkaLog, found: Sequence[KafkaSegment], facts: Mapping[int, LedgerFacts]
) -> tuple[list[KafkaSegment], list[int]]:
    """Adds cleaned segments that the log's record does not name.

    `found`: in descending order of ledger id. Returns the added segments, and the ledgers that they
    replace. Adds nothing if the log holds all of their offsets: then they were not published yet.
    """
    chain: list[KafkaSegment] = []
    for segment in found:
        if not any(_overlap(_range(segment), _range(other)) for other in chain):
            chain.append(segment)
    ranges = [(*_span_of(segment, facts), segment) for segment in log.segments]
    if all(_is_covered(segment, [(first, end) for first, end, _ in ranges]) for segment in chain):
        return [], []
    cleaned_end = max(each.figures.next_offset for each in chain)
    chain.sort(key=lambda each: each.base_offset)

    def is_kept(first: int, end: int, segment: KafkaSegment) -> bool:
        # Cleaned segments come first: a raw one below them was cleaned, too.
        return first >= cleaned_end or (
            segment.is_cleaned and not any(_overlap((first, end), _range(other)) for other in chain)
        )

    kept = [each for first, end, each in ranges if is_kept(first, end, each)]
    replaced = [
        ledger_id
        for first, end, each in ranges
        if not is_kept(first, end, each)
        for ledger_id in each.ledger_ids
    ]
    cleaned = sorted(
        [*chain, *(each for each in kept if each.is_cleaned)], key=lambda each: each.base_offset
    )
    put_segments(log, [*cleaned, *(each for each in kept if not each.is_cleaned)])
    log.log_start_offset = min(log.log_start_offset, chain[0].base_offset)
    return chain, replaced


def _range(segment: KafkaSegment) -> tuple[int, int]:
    return segment.base_offset, segment.figures.next_offset


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _span_of(segment: KafkaSegment, facts: Mapping[int, LedgerFacts]) -> tuple[int, int]:
    """Returns the segment's available offsets: from its base to the end of its last batch."""
    if segment.is_cleaned:
        exists = not segment.ledger_ids or segment.ledger_ids[0] in facts
        return segment.base_offset, segment.figures.next_offset if exists else -1
    ends = [facts[each].span.next_offset for each in segment.ledger_ids if each in facts]
    is_whole = len(ends) == len(segment.ledger_ids)
    return segment.base_offset, max(ends, default=-1) if is_whole else -1


def _is_covered(segment: KafkaSegment, ranges: Iterable[tuple[int, int]]) -> bool:
    at, end = _range(segment)
    for first, range_end in sorted(ranges):
        if first <= at < range_end:
            at = range_end
    return at >= end


def forget_cleaned(log: KafkaLog, ledger_id: int) -> None:
    """Empties the segment of a lost ledger."""
    for segment in log.segments:
        if ledger_id in segment.ledger_ids:
            del segment.ledger_ids[:]
            lost = segment.figures
            left = KafkaSegmentFigures(
                next_offset=lost.next_offset, modified_ms=lost.modified_ms, aborted=lost.aborted
            )
            _describe(left, Span())
            segment.figures.CopyFrom(left)


def shrink_cleaned(log: KafkaLog, ledger_id: int, span: Span) -> None:
    """Sets the figures of a segment of which only these batches remain."""
    for segment in log.segments:
        if ledger_id in segment.ledger_ids:
            _describe(segment.figures, span)


def _describe(figures: KafkaSegmentFigures, span: Span) -> None:
    figures.size_bytes, figures.batches = span.size_bytes, span.batches
    figures.first_batch_timestamp_ms = span.first_batch_timestamp_ms
    figures.largest_timestamp_ms = span.largest_timestamp_ms
    figures.largest_timestamp_offset = span.largest_timestamp_offset


def next_producer_id(spans: Iterable[Span]) -> int:
    """Returns an id above all in the batches, and above the blocks they were assigned from."""
    largest = max((each.largest_producer_id for each in spans), default=-1)
    return (largest // _PRODUCER_IDS_PER_BLOCK + 1) * _PRODUCER_IDS_PER_BLOCK

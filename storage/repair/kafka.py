"""The repair of a Kafka topic's record. Pure; used by storage/repair/plan.py.

* A segment whose ledgers are lost stays, without ledgers, so that its offsets are not assigned
  again. The same holds for entries that are lost at the end of the remaining ledgers. Their last
  offset is known from the next segment, from the log's end if it was closed cleanly, or from the
  number of lost messages, if it is known.
* A transaction that the record lists as aborted stays aborted, even if its marker is lost.
* A cleaned segment keeps its readable batches, and its recorded end.
* A topic whose record is lost gets its segments from its ledgers. Its settings are lost, so nothing
  is deleted until they are set; and without its checkpoint, all of it is dirty.

    >>> log = rebuilt_log([LedgerFacts(3, False, Span(0, 5, 1)), LedgerFacts(9, True, Span(0, 0))])
    >>> [(each.base_offset, list(each.ledger_ids)) for each in log.segments]
    [(0, [3])]
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ledgerfold.storage.kafka.span import Span
from ledgerfold.storage.producer_ids import first_behind
from ledgerfold.storage.records import put_segments
from ledgerfold.storage.repair.kafka_raw import LedgerFacts, forget_producers, list_raw
from ledgerfold.storage.repair.ledger_check import LedgerCheck
from ledgerfold.storage.repair.losses import messages_after
from ledgerfold.v1.records_pb2 import KafkaLog, KafkaSegment, KafkaSegmentFigures


def facts_of(check: LedgerCheck) -> LedgerFacts:
    lost_offsets = messages_after(check) if check.is_raw else 0
    has_losses = check.is_raw and bool(check.lost_ranges())
    ledger_id, is_cleaned = check.record.ledger_id, not check.is_raw
    return LedgerFacts(ledger_id, is_cleaned, check.span(), lost_offsets, has_losses)


def rebuilt_log(ledgers: Iterable[LedgerFacts]) -> KafkaLog:
    """Builds a log from a topic's ledgers. Ledgers without a batch are omitted."""
    facts = {each.ledger_id: each for each in ledgers if each.span.batches}
    cleaned = [each for each in facts.values() if each.is_cleaned]
    cleaned.sort(key=lambda each: each.span.base_offset)
    segments = [
        KafkaSegment(
            base_offset=each.span.base_offset,
            ledger_ids=[each.ledger_id],
            is_cleaned=True,
            figures=_figures(each.span),
        )
        for each in cleaned
    ]
    log = KafkaLog(
        config={"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
        segments=segments,
    )
    list_raw(log, sorted(each for each in facts if not facts[each].is_cleaned), facts)
    log.log_start_offset = log.segments[0].base_offset if log.segments else 0
    return log


def _figures(span: Span) -> KafkaSegmentFigures:
    figures = KafkaSegmentFigures(
        next_offset=span.next_offset, modified_ms=span.largest_timestamp_ms
    )
    _describe(figures, span)
    return figures


def keep_ends(log: KafkaLog, lost_ids: Collection[int], facts: Mapping[int, LedgerFacts]) -> None:
    """Keeps the ends of raw segments that lost entries, and the aborted transactions.

    `log`: as recorded; `lost_ids`: ledgers that are lost, entirely or in part; `facts`: of the
    remaining ones.
    """
    last_segment: KafkaSegment | None = None
    for at, segment in enumerate(log.segments):
        there = (facts[each] for each in segment.ledger_ids if each in facts)
        is_left = segment.is_cleaned or any(each.span.batches for each in there)
        if not segment.is_cleaned and not set(segment.ledger_ids).isdisjoint(lost_ids):
            following = log.segments[at + 1 : at + 2]
            end = following[0].base_offset if following else _last_end(log, facts)
            segment.reserved_upto = max(segment.reserved_upto, end)
            # The recorded figures are no longer valid.
            segment.figures.CopyFrom(KafkaSegmentFigures(aborted=segment.figures.aborted))
            if last_segment is not None and not is_left:
                _move_data(segment, last_segment)
        if is_left:
            last_segment = segment


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


def _move_data(empty: KafkaSegment, previous: KafkaSegment) -> None:
    """Moves a lost segment's data to the previous one: a load drops an empty segment."""
    before = (each for each in empty.figures.aborted if each.first_offset < empty.base_offset)
    previous.figures.aborted.extend(before)
    empty.ClearField("figures")
    if not previous.is_cleaned:
        previous.reserved_upto = max(previous.reserved_upto, empty.reserved_upto)


def adopt_cleaned(
    log: KafkaLog, segments: Sequence[KafkaSegment], facts: Mapping[int, LedgerFacts]
) -> tuple[list[KafkaSegment], list[int]]:
    """Adds cleaned segments that the log's record does not name.

    `segments`: in descending order of ledger id. Returns the added segments, and the ledgers that
    they replace. Adds nothing if the log holds all of their offsets: then they were not published
    yet.
    """
    chain: list[KafkaSegment] = []
    for segment in segments:
        if not any(_overlap(_range(segment), _range(other)) for other in chain):
            chain.append(segment)
    ranges = [_span_of(segment, facts) for segment in log.segments]
    if all(_is_covered(segment, ranges) for segment in chain):
        return [], []
    cleaned_end = max(each.figures.next_offset for each in chain)
    chain.sort(key=lambda each: each.base_offset)

    def is_kept(segment: KafkaSegment) -> bool:
        # Cleaned segments come first: a raw one below them was cleaned, too.
        return segment.base_offset >= cleaned_end or (
            segment.is_cleaned
            and not any(_overlap(_range(segment), _range(other)) for other in chain)
        )

    remaining = [each for each in log.segments if is_kept(each)]
    replaced = [
        ledger_id for each in log.segments if not is_kept(each) for ledger_id in each.ledger_ids
    ]
    cleaned = sorted(
        [*chain, *(each for each in remaining if each.is_cleaned)],
        key=lambda each: each.base_offset,
    )
    put_segments(log, [*cleaned, *(each for each in remaining if not each.is_cleaned)])
    log.log_start_offset = min(log.log_start_offset, chain[0].base_offset)
    # Other batches may have had these offsets: the log was truncated before it was cleaned.
    forget_producers(log)
    return chain, replaced


def _range(segment: KafkaSegment) -> tuple[int, int]:
    return segment.base_offset, segment.figures.next_offset


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Returns whether two ranges have an offset in common; an empty one counts as its first."""
    return one[0] < max(other[1], other[0] + 1) and other[0] < max(one[1], one[0] + 1)


def _span_of(segment: KafkaSegment, facts: Mapping[int, LedgerFacts]) -> tuple[int, int]:
    """Returns the segment's available offsets: from its base to the end of its last batch.

    None are if some of its batches are lost.
    """
    if segment.is_cleaned:
        # A lost ledger has no batch.
        exists = not segment.ledger_ids or _has_batches(segment.ledger_ids[0], facts)
        return segment.base_offset, segment.figures.next_offset if exists else -1
    there = [facts[each] for each in segment.ledger_ids if each in facts]
    is_whole = len(there) == len(segment.ledger_ids) and not any(x.has_losses for x in there)
    end = max((each.span.next_offset for each in there), default=-1)
    return segment.base_offset, end if is_whole else -1


def _has_batches(ledger_id: int, facts: Mapping[int, LedgerFacts]) -> bool:
    return ledger_id in facts and facts[ledger_id].span.batches > 0


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
            figures = KafkaSegmentFigures(
                next_offset=lost.next_offset, modified_ms=lost.modified_ms, aborted=lost.aborted
            )
            _describe(figures, Span())
            segment.figures.CopyFrom(figures)


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


def keep_leader_epoch(log: KafkaLog, facts: Iterable[LedgerFacts]) -> None:
    """Makes appends continue at the largest leader epoch in the batches: epochs never fall."""
    log.leader_epoch = max((log.leader_epoch, *(x.span.largest_leader_epoch for x in facts)))


def next_producer_id(spans: Iterable[Span]) -> int:
    """Returns an id above all in the batches, and above the blocks they were assigned from."""
    return first_behind(max((each.largest_producer_id for each in spans), default=-1))

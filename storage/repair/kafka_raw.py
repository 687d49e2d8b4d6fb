"""Finds the places in a Kafka log of raw ledgers that its record does not name. Pure.

Ledgers are numbered in the order of their creation, so the offsets of a raw ledger follow those of
all older ledgers. The exceptions are:

* The ledger was truncated: a newer raw ledger begins at or below its first offset. Ledgers that
  were replaced by the restore of a snapshot, or after the deletion of a topic, look the same.
* A restore brought the ledger back, and deleted newer ones: these have no files.
* The ledger was cleaned: a newer cleaned ledger contains its offsets.
* The ledger is a copy that a truncation created, but did not publish: an older ledger contains the
  same batches, and no ledger follows it.

    >>> log = KafkaLog(segments=[{"base_offset": 0, "ledger_ids": [3]}])
    >>> facts = {3: LedgerFacts(3, False, Span(0, 9, 4)), 5: LedgerFacts(5, False, Span(7, 8, 1))}
    >>> list_raw(log, [3, 5], facts)
    Listed(is_changed=True, removed=set())
    >>> [(each.base_offset, list(each.ledger_ids)) for each in log.segments]
    [(0, [3]), (7, [5])]
    >>> facts[7] = LedgerFacts(7, False, Span(0, 1, 1, 70, first_batch_timestamp_ms=5))
    >>> list_raw(log, [3, 5, 7], facts).removed
    {3, 5}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ledgerfold.storage.kafka.span import Span
from ledgerfold.storage.records import first_fall, put_segments
from ledgerfold.v1.records_pb2 import KafkaLog, KafkaSegment


class LedgerFacts(NamedTuple):
    """A topic's ledger, and the good batches in it.

    `lost_offsets`: the minimum number of offsets lost after them; `has_losses`: any batch was lost.
    """

    ledger_id: int
    is_cleaned: bool
    span: Span
    lost_offsets: int = 0
    has_losses: bool = False


class Listed(NamedTuple):
    """`removed`: raw ledgers that do not belong to the log any more."""

    is_changed: bool
    removed: set[int]


Facts = Mapping[int, LedgerFacts]


def list_raw(
    log: KafkaLog, raw_ids: Sequence[int], facts: Facts, *, is_incomplete: bool = True
) -> Listed:
    """Makes the raw segments list the ordered `raw_ids`, except those that it removes.

    `is_incomplete`: the metadata have lost writes; otherwise nothing is removed.
    """
    before = log.SerializeToString()
    listed, removed = set[int](), set[int]()
    for segment in log.segments:
        if not segment.is_cleaned:
            segment.ledger_ids[:] = [each for each in segment.ledger_ids if each in raw_ids]
            listed.update(segment.ledger_ids)
    for ledger_id in raw_ids:
        if ledger_id not in listed:
            is_last = not any(facts[each].span.batches for each in raw_ids if each > ledger_id)
            if is_incomplete:
                removed |= _list_one(log, facts[ledger_id], facts, is_last=is_last)
            else:
                _insert(log, facts[ledger_id])
    if first_fall(log) is not None:
        _order(log, facts)
    if is_incomplete:
        _move_empty(log, facts)
    return Listed(log.SerializeToString() != before, removed)


def _list_one(log: KafkaLog, new: LedgerFacts, facts: Facts, *, is_last: bool) -> set[int]:
    """Lists a ledger. Returns the ledgers to remove."""
    removed = set[int]()
    later = [each for each in log.segments if _is_behind(each, new, facts)]
    older = [each for each in later if max(each.ledger_ids, default=-1) < new.ledger_id]
    # A truncation's ledger may end below what it deleted, so all segments are asked.
    if any(_was_cleaned_to(each, new, facts) for each in later) or any(
        _replaces(each, new, facts) for each in log.segments
    ):
        return {new.ledger_id}
    if older:
        if is_last and any(_is_copy(new, facts[each]) for each in _ledgers_of(older, facts)):
            return {new.ledger_id}
        removed = _cut(log, new.span, facts)
    elif new.span.batches:
        _drop_lost(log, new.span, facts)
        if later:
            # The record is of the log that it has replaced, and so are the producers.
            forget_producers(log)
    _insert(log, new)
    return removed


def _ledgers_of(segments: Sequence[KafkaSegment], facts: Facts) -> list[int]:
    """Returns the ledgers that still have batches."""
    named = (ledger_id for each in segments for ledger_id in each.ledger_ids)
    return [each for each in named if each in facts and facts[each].span.batches]


def _is_behind(segment: KafkaSegment, new: LedgerFacts, facts: Facts) -> bool:
    """Returns whether the segment has, or had, offsets from the ledger's first one on."""
    if not new.span.batches:
        return False
    ends = [facts[each].span.next_offset for each in _ledgers_of([segment], facts)]
    end = segment.figures.next_offset if segment.is_cleaned else max(ends, default=0)
    return max(end, segment.base_offset) > new.span.base_offset


def _was_cleaned_to(segment: KafkaSegment, new: LedgerFacts, facts: Facts) -> bool:
    # Cleaned segments come first: a raw one below them was cleaned, too.
    there = _ledgers_of([segment], facts)
    return segment.is_cleaned and any(each > new.ledger_id for each in there)


def _replaces(segment: KafkaSegment, new: LedgerFacts, facts: Facts) -> bool:
    """Returns whether newer ledgers of a raw segment have batches at offsets of the ledger."""
    newer = [each for each in _ledgers_of([segment], facts) if each > new.ledger_id]
    bases = [facts[each].span.base_offset for each in newer]
    return not segment.is_cleaned and min(bases, default=new.span.next_offset) < (
        new.span.next_offset
    )


def _is_copy(new: LedgerFacts, old: LedgerFacts) -> bool:
    """Returns whether the ledger has the first batches of an older one, as far as is known."""
    one, other = new.span, old.span
    return (
        (one.base_offset, one.first_batch_timestamp_ms)
        == (other.base_offset, other.first_batch_timestamp_ms)
        and one.next_offset <= other.next_offset
        and one.size_bytes <= other.size_bytes
    )


def _cut(log: KafkaLog, span: Span, facts: Facts) -> set[int]:
    """Removes what a truncation deleted, whose first remaining batches are of `span`.

    Returns the raw ledgers among that.
    """
    base, segments, removed = span.base_offset, list[KafkaSegment](), set[int]()
    for segment in log.segments:
        bases = [facts[each].span.base_offset for each in _ledgers_of([segment], facts)]
        if min(bases, default=segment.base_offset) >= base:
            if not segment.is_cleaned:
                removed.update(segment.ledger_ids)
            continue
        figures = segment.figures
        if segment.is_cleaned:
            figures.next_offset = min(figures.next_offset, base)
        segment.reserved_upto = min(segment.reserved_upto, base)
        aborted = [each for each in figures.aborted if each.last_offset < base]
        if len(aborted) < len(figures.aborted):
            del figures.aborted[:]
            figures.aborted.extend(aborted)
        if not segment.is_cleaned:
            behind = [x for x in segment.ledger_ids if facts[x].span.base_offset >= base]
            removed.update(behind)
            segment.ledger_ids[:] = [each for each in segment.ledger_ids if each not in behind]
        segments.append(segment)
    put_segments(log, segments)
    if log.HasField("first_dirty_offset"):
        log.first_dirty_offset = min(log.first_dirty_offset, base)
    log.log_start_offset = min(log.log_start_offset, span.next_offset)
    log.ClearField("truncated_to")
    forget_producers(log)
    return removed


def forget_producers(log: KafkaLog) -> None:
    """Forgets snapshots of batches that are not there: the next load replays what is."""
    log.ClearField("closed")
    log.ClearField("loaded")
    log.ClearField("rolled")


def _drop_lost(log: KafkaLog, span: Span, facts: Facts) -> None:
    """Drops cleaned segments behind the span's first batch of which nothing is left.

    Cleaned segments come first: they are of a log that a restore has replaced.
    """
    segments = [
        each
        for each in log.segments
        if not each.is_cleaned or _ledgers_of([each], facts) or each.base_offset < span.base_offset
    ]
    put_segments(log, segments)


def _order(log: KafkaLog, facts: Facts) -> None:
    """Sorts the segments: cleaned ones by offset, raw ones by ledger. Each begins at its first
    batch, if it has one.

    A raw segment without ledgers stays behind the one before it.
    """
    places, last = list[tuple[bool, int]](), -1
    for segment in log.segments:
        for ledger_id in _ledgers_of([segment], facts)[:1]:
            segment.base_offset = facts[ledger_id].span.base_offset
        last = min(segment.ledger_ids, default=last)
        places.append((not segment.is_cleaned, segment.base_offset if segment.is_cleaned else last))
    order = sorted(range(len(places)), key=places.__getitem__)
    put_segments(log, [log.segments[at] for at in order])
    _move_empty(log, facts)


def _move_empty(log: KafkaLog, facts: Facts) -> None:
    """Moves raw segments without batches, of a replaced log, behind all earlier offsets.

    Their ledgers join the segment before, if that is raw.
    """
    segments, end = list[KafkaSegment](), 0
    for segment in log.segments:
        ends = [facts[each].span.next_offset for each in _ledgers_of([segment], facts)]
        is_below = segment.base_offset < end and not ends and not segment.is_cleaned
        if is_below and segments and not segments[-1].is_cleaned:
            segments[-1].ledger_ids[:] = sorted([*segments[-1].ledger_ids, *segment.ledger_ids])
            continue
        if is_below:
            segment.base_offset = end
        segments.append(segment)
        recorded = segment.figures.next_offset if segment.is_cleaned else 0
        end = max(end, segment.base_offset, recorded, *ends)
    put_segments(log, segments)


def _insert(log: KafkaLog, facts: LedgerFacts) -> None:
    """Inserts a raw ledger that no segment names, after those with lower ids.

    It joins the segment before it if it has no batches, lies between two ledgers of that segment,
    or begins at that segment's base offset: the segment is empty then.
    """
    at = sum(
        each.is_cleaned or not each.ledger_ids or each.ledger_ids[0] < facts.ledger_id
        for each in log.segments
    )
    if at and not log.segments[at - 1].is_cleaned:
        segment = log.segments[at - 1]
        before, is_at_base = segment.ledger_ids, facts.span.base_offset == segment.base_offset
        if not facts.span.batches or (before and before[-1] > facts.ledger_id) or is_at_base:
            before[:] = sorted([*before, facts.ledger_id])
            return
    base = facts.span.base_offset if facts.span.batches else _next_offset(log, at)
    inserted = KafkaSegment(base_offset=base, ledger_ids=[facts.ledger_id])
    put_segments(log, [*log.segments[:at], inserted, *log.segments[at:]])


def _next_offset(log: KafkaLog, at: int) -> int:
    return log.segments[at - 1].figures.next_offset if at else log.log_start_offset

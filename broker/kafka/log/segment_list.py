"""The raw ledgers of each segment, as a topic's record lists them.

A segment that was never cleaned consists of one or more raw ledgers: a ledger also ends when its
topic is unloaded or the broker stops, and Kafka's segment does not. A new ledger therefore begins a
segment or continues the last one. Cleaned segments come first and never change.

    >>> log = KafkaLog()
    >>> relist(log, [3], {3: 0}.get)
    >>> relist(log, [3, 4], {}.get)
    >>> relist(log, [3, 4, 7], {7: 9}.get)
    >>> [(each.base_offset, list(each.ledger_ids)) for each in log.segments]
    [(0, [3, 4]), (9, [7])]

After a crash the last ledgers may be empty: their entries never became durable.

    >>> recovered(log, {3: 5, 4: 9}.get), recovered(log, {3: 5, 4: 8}.get)
    ((9, 9), (8, None))

A segment with entries that a repair could not restore has ended, at its reserved end.

    >>> log.segments[1].reserved_upto = 12
    >>> recovered(log, {3: 5, 4: 9, 7: 10}.get)
    (12, 12)

A truncation may have ended the log after the last remaining batch, or after a segment's base.

    >>> recovered(KafkaLog(segments=[{"base_offset": 5}], truncated_to=7), {}.get)
    (7, 5)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ledgerfold.broker.kafka.producers.producer_snapshots import carry_over
from ledgerfold.storage.errors import Corruption
from ledgerfold.storage.records import first_fall, key_of, put_segments
from ledgerfold.v1.records_pb2 import KafkaLog, KafkaSegment, TopicRecord


def check_order(topic: TopicRecord) -> None:
    """Raises Corruption if base offsets fall: lookups would miss batches, or never end."""
    fall = first_fall(topic.kafka)
    if fall is not None:
        path, found = key_of(topic).decode(), f"base offset {fall[1]} after {fall[0]}"
        raise Corruption(path, 0, "segments in order of base offset", found)


def relist(log: KafkaLog, raw_ids: Sequence[int], begins_at: Callable[[int], int | None]) -> None:
    """Updates the segments of `log` to the present raw ledgers.

    `begins_at`: returns the base offset of the segment that a ledger begins; None if the ledger
    continues the last segment, which is not cleaned then.
    """
    there = set(raw_ids)
    segments = list[KafkaSegment]()
    for at, segment in enumerate(log.segments, 1):
        if not segment.is_cleaned:
            segment.ledger_ids[:] = [each for each in segment.ledger_ids if each in there]
            for behind in (segment.closed_behind, segment.cut_behind):
                behind[:] = [each for each in behind if each in there]
            there.difference_update(segment.ledger_ids)
            # An ended empty segment stays, as after a cleaning.
            is_active = at == len(log.segments)
            segment.is_cleaned = not is_active and _has_ended_empty(segment)
        if segment.is_cleaned or segment.ledger_ids:
            segments.append(segment)
    for ledger_id in raw_ids:
        if ledger_id in there:
            base = begins_at(ledger_id)
            _drop_empty(segments, base)
            if base is None:
                segments[-1].ledger_ids.append(ledger_id)
            else:
                segments.append(KafkaSegment(base_offset=base, ledger_ids=[ledger_id]))
                # The active segment began there before, and is empty.
                carry_over(log.segments[-1:], segments[-1:])
    put_segments(log, segments)


def _drop_empty(segments: list[KafkaSegment], base: int | None) -> None:
    """Drops empty segments after the end of the log, whose last entries a crash removed.

    >>> log = KafkaLog(segments=[{"ledger_ids": [1]}, {"base_offset": 5, "is_cleaned": True}])
    >>> relist(log, [1, 9], lambda _: None)
    >>> [(each.base_offset, list(each.ledger_ids)) for each in log.segments]
    [(0, [1, 9])]
    """
    while segments and segments[-1].is_cleaned and not segments[-1].ledger_ids:
        if base is not None and segments[-1].base_offset < base:
            return
        segments.pop()


def move_active(log: KafkaLog, base_offset: int, previous: KafkaSegment | None) -> None:
    """Moves the empty active segment to an offset; `previous` is inserted before it.

    The segment before it records that the offsets in between are not assigned again.
    """
    *others, active = log.segments
    if others and not others[-1].is_cleaned and active.base_offset <= base_offset:
        others[-1].reserved_upto = base_offset if previous is None else previous.base_offset
    active.base_offset = base_offset
    if previous is not None:
        others.append(previous)
    put_segments(log, [*others, active])


def recovered(log: KafkaLog, end_of: Callable[[int], int | None]) -> tuple[int, int | None]:
    """Returns the log's end after a load, and the base offset of the segment that its new ledger
    begins.

    The base offset is None if the ledger continues the last segment. `end_of`: returns the offset
    after a raw ledger's last batch; None if it is empty.
    """
    end, follows_raw = 0, False
    # A repair gave up the end of the last segment, or more of it: nothing is added to it.
    is_ended = False
    # The base offset of an empty segment at the log's end.
    begins: int | None = None
    # All segments so far are complete.
    is_whole = True
    for segment in log.segments:
        if segment.is_cleaned:
            end, follows_raw = max(end, segment.base_offset, segment.figures.next_offset), False
            continue
        end_offset = _end(segment, end_of)
        if end_offset is not None:
            # It may follow ledgers of which a repair gave up everything.
            end = max(end, end_offset, segment.reserved_upto)
            is_ended = segment.reserved_upto >= end_offset
            follows_raw, begins = True, None
        elif is_whole or not follows_raw or not segment.ledger_ids:
            # Either nothing is lost, or no earlier raw segment can determine the end: a repair
            # found its ledgers missing, or there is none. Otherwise earlier entries may never have
            # become durable.
            end = max(end, segment.base_offset, segment.reserved_upto)
            is_ended = is_ended or segment.reserved_upto > 0
        if end_offset is None and segment.base_offset == end:
            begins = segment.base_offset
        is_whole = is_whole and _has_all(segment, end_offset)
    begins_at = end if begins == end or not follows_raw or is_ended else None
    if log.truncated_to > end:
        # The active segment continues there, after its last batch, unless it has ended.
        end = log.truncated_to
        begins_at = end if is_ended else begins_at
    elif end < log.log_start_offset:
        # After a truncation inside a batch, before any further append.
        end = begins_at = log.log_start_offset
    return end, begins_at


def intact_end(log: KafkaLog, offset: int, end_of: Callable[[int], int | None]) -> int:
    """Returns `offset` if the segments that begin before it still hold all their batches, else the
    end of the first one that does not.

    A later segment may be recorded before they are durable: a crash removes their end, and other
    batches get its offsets. `end_of`: as for recovered().

    >>> segment = KafkaSegment(base_offset=0, ledger_ids=[3], figures={"next_offset": 9})
    >>> log = KafkaLog(segments=[segment, KafkaSegment(base_offset=9, ledger_ids=[4])])
    >>> [intact_end(log, 9, {3: end}.get) for end in (9, 8, None)]
    [9, 8, 0]
    >>> log.segments[1].figures.next_offset = 20
    >>> intact_end(log, 9, {3: 9, 4: 15}.get)
    9
    """
    for segment in log.segments:
        if segment.is_cleaned or segment.base_offset >= offset:
            continue
        end = _end(segment, end_of)
        if not _has_all(segment, end, if_unrecorded=True):
            return segment.base_offset if end is None else end
    return offset


def _has_all(segment: KafkaSegment, held_end: int | None, *, if_unrecorded: bool = False) -> bool:
    """Returns whether an ended raw segment still holds all its batches.

    `held_end`: the present end; `if_unrecorded`: the answer if its end was not recorded.
    """
    if not segment.HasField("figures"):
        return if_unrecorded
    return segment.figures.next_offset <= (segment.base_offset if held_end is None else held_end)


def _has_ended_empty(segment: KafkaSegment) -> bool:
    """Returns whether it ended empty and not by a repair, which would have reserved the lost
    offsets.
    """
    if segment.ledger_ids or segment.reserved_upto or not segment.HasField("figures"):
        return False
    return segment.figures.next_offset == segment.base_offset


def _end(segment: KafkaSegment, end_of: Callable[[int], int | None]) -> int | None:
    """Returns the offset after a raw segment's last batch; None if it is empty."""
    ends = (end_of(each) for each in reversed(segment.ledger_ids))
    return next((each for each in ends if each is not None), None)

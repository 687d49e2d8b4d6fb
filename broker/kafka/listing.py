"""Which raw ledgers make up which segment of a Kafka log: what a topic's record lists of it.

A segment that was never cleaned lies in raw ledgers: in one where it began, and in more, for a
ledger also ends when its topic is unloaded or the broker stops, and Kafka's segment does not. So a
new ledger either begins a segment or goes on with the last one. Cleaned segments come first, and
stay what they are.

    >>> log = KafkaLog()
    >>> relist(log, [3], {3: 0}.get)
    >>> relist(log, [3, 4], {}.get)
    >>> relist(log, [3, 4, 7], {7: 9}.get)
    >>> [(each.base_offset, list(each.ledger_ids)) for each in log.segments]
    [(0, [3, 4]), (9, [7])]

After a crash the last ledgers may hold nothing: what was to be in them never got durable.

    >>> recovered(log, {3: 5, 4: 9}.get), recovered(log, {3: 5, 4: 8}.get)
    ((9, 9), (8, None))

A segment of which a repair gave up anything has ended, at the end that is reserved.

    >>> log.segments[1].reserved_upto = 12
    >>> recovered(log, {3: 5, 4: 9, 7: 10}.get)
    (12, 12)

A truncation may have ended the log behind the last batch that it left, or a segment's base.

    >>> recovered(KafkaLog(segments=[{"base_offset": 5}], truncated_to=7), {}.get)
    (7, 5)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ledgerfold.broker.kafka.remembered import hand_on
from ledgerfold.v1.records_pb2 import KafkaLog, KafkaSegment


def relist(log: KafkaLog, raw_ids: Sequence[int], begins_at: Callable[[int], int | None]) -> None:
    """Makes the segments of `log` those of the raw ledgers that there are now.

    `begins_at`: the base offset of the segment that a ledger begins; None: it goes on with the last
    one, which is not cleaned then.
    """
    there = set(raw_ids)
    kept = list[KafkaSegment]()
    for at, segment in enumerate(log.segments, 1):
        if not segment.is_cleaned:
            segment.ledger_ids[:] = [each for each in segment.ledger_ids if each in there]
            for behind in (segment.closed_behind, segment.cut_behind):
                behind[:] = [each for each in behind if each in there]
            there.difference_update(segment.ledger_ids)
            # One that ended with nothing in it stays, as a cleaning leaves such.
            is_active = at == len(log.segments)
            segment.is_cleaned = not is_active and _has_ended_empty(segment)
        if segment.is_cleaned or segment.ledger_ids:
            kept.append(segment)
    for ledger_id in raw_ids:
        if ledger_id in there:
            base = begins_at(ledger_id)
            _drop_empty(kept, base)
            if base is None:
                kept[-1].ledger_ids.append(ledger_id)
            else:
                kept.append(KafkaSegment(base_offset=base, ledger_ids=[ledger_id]))
                # The active one began there before, and holds nothing.
                hand_on(log.segments[-1:], kept[-1:])
    relisted = KafkaLog(segments=kept)
    del log.segments[:]
    log.segments.extend(relisted.segments)


def _drop_empty(kept: list[KafkaSegment], base: int | None) -> None:
    """Segments with nothing in them that the log, of which a crash took the end, has not reached.

    >>> log = KafkaLog(segments=[{"ledger_ids": [1]}, {"base_offset": 5, "is_cleaned": True}])
    >>> relist(log, [1, 9], lambda _: None)
    >>> [(each.base_offset, list(each.ledger_ids)) for each in log.segments]
    [(0, [1, 9])]
    """
    while kept and kept[-1].is_cleaned and not kept[-1].ledger_ids:
        if base is not None and kept[-1].base_offset < base:
            return
        kept.pop()


def move_active(log: KafkaLog, base_offset: int, left: KafkaSegment | None) -> None:
    """The active segment, which holds nothing, begins at that offset; `left`: in front of it.

    The segment before it remembers that the offsets in between are not given out again.
    """
    *others, active = log.segments
    if others and not others[-1].is_cleaned and active.base_offset <= base_offset:
        others[-1].reserved_upto = base_offset if left is None else left.base_offset
    active.base_offset = base_offset
    if left is not None:
        others.append(left)
    relisted = KafkaLog(segments=[*others, active])
    del log.segments[:]
    log.segments.extend(relisted.segments)


def recovered(log: KafkaLog, end_of: Callable[[int], int | None]) -> tuple[int, int | None]:
    """The end of the log that a load finds, and where its new ledger begins a segment.

    None: it goes on with the last one that is left. `end_of`: the offset behind what a raw ledger
    holds; None: it holds nothing.
    """
    end, follows_raw = 0, False
    # A repair gave up what the last one had last, or more of it: nothing is added to that.
    is_ended = False
    # Of the segment that begins where the log ends, and holds nothing.
    begins: int | None = None
    # Those before it have all that they held when they ended.
    is_whole = True
    for segment in log.segments:
        if segment.is_cleaned:
            end, follows_raw = max(end, segment.base_offset, segment.figures.next_offset), False
            continue
        held = _end(segment, end_of)
        if held is not None:
            # It may lie behind ledgers of which a repair gave up everything.
            end = max(end, held, segment.reserved_upto)
            is_ended = segment.reserved_upto >= held
            follows_raw, begins = True, None
        elif is_whole or not follows_raw or not segment.ledger_ids:
            # Nothing is lost, or nothing before it tells where it began: a repair found its ledgers
            # gone, or there is no raw one. Else entries before it may never have got durable.
            end = max(end, segment.base_offset, segment.reserved_upto)
            is_ended = is_ended or segment.reserved_upto > 0
        if held is None and segment.base_offset == end:
            begins = segment.base_offset
        is_whole = is_whole and _has_all(segment, held)
    begins_at = end if begins == end or not follows_raw or is_ended else None
    if log.truncated_to > end:
        # The active segment goes on there, behind what it holds, unless it has ended.
        end = log.truncated_to
        begins_at = end if is_ended else begins_at
    elif end < log.log_start_offset:
        # Behind a truncation into the midst of a batch, where nothing was appended.
        end = begins_at = log.log_start_offset
    return end, begins_at


def holds_all_before(log: KafkaLog, offset: int, end_of: Callable[[int], int | None]) -> bool:
    """Whether segments that ended before that offset hold all that they held when they ended.

    One that follows may be recorded before they are durable: a crash takes what they held last, and
    other batches get its offsets. `end_of`: as for recovered().

    >>> segment = KafkaSegment(base_offset=0, ledger_ids=[3], figures={"next_offset": 9})
    >>> log = KafkaLog(segments=[segment, KafkaSegment(base_offset=9, ledger_ids=[4])])
    >>> [holds_all_before(log, 9, {3: end}.get) for end in (9, 8, None)]
    [True, False, False]
    """
    for segment in log.segments:
        if segment.is_cleaned or segment.base_offset >= offset:
            continue
        if not _has_all(segment, _end(segment, end_of), if_untold=True):
            return False
    return True


def _has_all(segment: KafkaSegment, held: int | None, *, if_untold: bool = False) -> bool:
    """Whether a raw segment that ended has all that it held then. `held`: the end of what it has.

    `if_untold`: the answer where nothing tells what that was.
    """
    if not segment.HasField("figures"):
        return if_untold
    return segment.figures.next_offset <= (segment.base_offset if held is None else held)


def _has_ended_empty(segment: KafkaSegment) -> bool:
    """And not for a repair, which would have reserved what it gave up."""
    if segment.ledger_ids or segment.reserved_upto or not segment.HasField("figures"):
        return False
    return segment.figures.next_offset == segment.base_offset


def _end(segment: KafkaSegment, end_of: Callable[[int], int | None]) -> int | None:
    """Behind the last batch of a raw segment; None: it holds nothing. Asks no more than it must."""
    ends = (end_of(each) for each in reversed(segment.ledger_ids))
    return next((each for each in ends if each is not None), None)

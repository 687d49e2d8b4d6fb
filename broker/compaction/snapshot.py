"""The input of a compaction: its range, and a check that its segments contain every entry of it.

The snapshot seals the open segment; later entries belong to the next run. Its input is the
compacted ledger and the raw segments after its horizon, never the whole topic. A damaged range is
refused.

Reads at or below the horizon always use the compacted ledger, and raw ledgers below it may be
deleted. So an entry that is missing from the input of a run would be lost. The snapshot checks for
this before a run, the commit again before it changes anything.

  >>> segment = SegmentRecord(last={"ledger_id": 1, "entry_id": 4})
  >>> segment.first.ledger_id = 1
  >>> log = [LedgerRecord(ledger_id=1, segments=[segment])]
  >>> check_coverage(log, [segment], after=EARLIEST, through=Position(1, 4))
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from ledgerfold.broker.common.names import COMPACTION_CURSOR
from ledgerfold.broker.compaction.interfaces import CompactableTopic
from ledgerfold.broker.log.ledger_record import last_entry
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import CompactionFailed
from ledgerfold.storage.limits import check_run_segments
from ledgerfold.storage.segment import live_position, record_position, segments_sealed
from ledgerfold.v1.records_pb2 import LedgerRecord, SegmentRecord


class TopicSnapshot(NamedTuple):
    """The range of a run. Segments of the previous compacted ledger come first."""

    segments: list[SegmentRecord]
    compacted_segments: int
    horizon: Position
    horizon_previous: Position | None
    previous_ledger_id: int
    # The horizon, or a cursor moved by an administrator: raw entries through it are not read.
    raw_after: Position
    # Retention removed everything below it, from the compacted ledger too.
    floor: Position
    # Identifies a load of the topic.
    epoch: int


async def snapshot(topic: CompactableTopic, *, again: bool = False) -> TopicSnapshot | None:
    """Returns a run's input; None if there is nothing to compact and not `again`.

    Raises CompactedLedgerDamaged; Corruption or MissingFile of a damaged raw ledger in the range;
    CompactionFailed if an entry of the range is in no sealed segment, or `__compaction` was moved
    after all entries; LimitExceeded.
    """
    log = topic.log
    log.views.check()
    last, view = await log.commit.seal(), log.views.current
    compacted, routed_by = log.views.segments(), view.horizon or EARLIEST
    covered = record_position(compacted[-1], last=True) if compacted else EARLIEST
    after = max(routed_by, covered, topic.compaction_moved_to or EARLIEST)
    if last is None or last <= routed_by or last.ledger_id not in log.ledgers:
        is_skipped = topic.emulation().skip_run_without_new_data
        if view.horizon is None or (is_skipped and not again):
            return None
        # Pulsar's repeated run ends with the last entry that it reads: that of the compacted
        # ledger.
        is_repeated = compacted and not is_skipped
        last = live_position(compacted[-1], last=True) if is_repeated else view.horizon
    elif covered < last <= after:
        raise CompactionFailed(
            "phase one",
            f"it timed out: {COMPACTION_CURSOR} was moved to {after}, and no entry follows. "
            "Publish, or move it back.",
        )
    raw = [
        segment
        for record in log.ledgers.records()
        for segment in segments_sealed(record, after)
        if (segment.first.ledger_id, segment.first.entry_id) <= last
    ]
    check_run_segments(len(compacted) + len(raw))
    taken = TopicSnapshot(
        segments=compacted + raw,
        compacted_segments=len(compacted),
        horizon=last,
        horizon_previous=view.horizon,
        previous_ledger_id=view.ledger_id,
        raw_after=after,
        floor=log.views.floor,
        epoch=topic.stored.record.epoch,
    )
    check_range(topic, taken)
    return taken


def check_range(topic: CompactableTopic, snapshot: TopicSnapshot) -> None:
    """Checks that the range is whole, and in the snapshot's segments. Raises like snapshot()."""
    after = snapshot.raw_after
    ledgers = topic.log.ledgers.records()
    for ledger in ledgers:
        damage = topic.store.damage_of(ledger.ledger_id)
        last = last_entry(ledger)
        is_in_range = ledger.ledger_id <= snapshot.horizon.ledger_id and (last or after) > after
        if damage is not None and is_in_range:
            raise damage
    raw = snapshot.segments[snapshot.compacted_segments :]
    check_coverage(ledgers, raw, after=after, through=snapshot.horizon)


def check_coverage(
    ledgers: Iterable[LedgerRecord],
    segments: Sequence[SegmentRecord],
    *,
    after: Position,
    through: Position,
) -> None:
    """Raises CompactionFailed unless sealed `segments` contain each entry p, after < p <= through.

    Entries that a repair gave up (`lost` in the ledger's record) are not required.
    """
    sealed = defaultdict[int, list[tuple[int, int]]](list)
    for segment in segments:
        if segment.sealed:
            ids = (segment.first.entry_id, segment.last.entry_id)
            sealed[segment.last.ledger_id].append(ids)
    for ledger in ledgers:
        last = last_entry(ledger)
        if last is None or last <= after or ledger.ledger_id > through.ledger_id:
            continue
        first = max(Position(ledger.ledger_id, 0), after.next)
        ranges = _held(ledger, sealed[ledger.ledger_id])
        missing = _first_missing(first, min(last, through), ranges)
        if missing is not None:
            raise CompactionFailed(
                "snapshot",
                f"entry {missing} is in the range through {through}, but in no sealed segment of "
                "the run. Nothing was changed; compact again.",
            )


def _held(ledger: LedgerRecord, sealed: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the first and last entry id of each contained or given-up range, in order."""
    lost = ((each.first_entry_id, each.last_entry_id) for each in ledger.lost)
    return sorted(chain(sealed, lost))


def _first_missing(
    first: Position, last: Position, sealed: Sequence[tuple[int, int]]
) -> Position | None:
    next_id = first.entry_id
    for low, high in sealed:
        if low > next_id:
            break
        next_id = max(next_id, high + 1)
    return None if next_id > last.entry_id else Position(first.ledger_id, next_id)

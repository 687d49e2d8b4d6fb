"""The input of a loaded topic's next run, and its history, as plans: nothing is sealed or moved.

They are as the snapshot of a run (broker/compaction/commit.py), except for the open segment: it is
read up to its durable end. A plan of an analysis has no output. Called on the event loop; the
caller pins the view.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.segment import record_position
from ledgerfold.v1.compactor_pb2 import CompactionPlan
from ledgerfold.v1.records_pb2 import LedgerRecord, SegmentRecord

if TYPE_CHECKING:
    from ledgerfold.broker.topics.broker import Broker
    from ledgerfold.broker.topics.topic import Topic


def next_input(broker: Broker, topic: Topic) -> CompactionPlan:
    """Returns the compacted ledger, and the entries above the horizon.

    Raises CompactedLedgerDamaged; Corruption or MissingFile of a damaged raw ledger.
    """
    log = topic.log
    log.views.check()
    view, compacted = log.views.current, log.views.segments()
    covered = record_position(compacted[-1], last=True) if compacted else EARLIEST
    after = max(view.horizon or EARLIEST, covered, topic.compaction_moved_to or EARLIEST)
    raw = _segments(topic, after)
    horizon = record_position(raw[-1], last=True) if raw else after
    plan = _plan(broker, topic, compacted, raw, after, horizon)
    if log.views.floor > EARLIEST:
        plan.retention_floor.ledger_id, plan.retention_floor.entry_id = log.views.floor
    return plan


def history(broker: Broker, topic: Topic) -> CompactionPlan:
    """Returns all raw ledgers. Raises Corruption or MissingFile if one is damaged."""
    raw = _segments(topic, EARLIEST)
    horizon = record_position(raw[-1], last=True) if raw else EARLIEST
    return _plan(broker, topic, [], raw, EARLIEST, horizon)


def _plan(
    broker: Broker,
    topic: Topic,
    compacted: Sequence[SegmentRecord],
    raw: Sequence[SegmentRecord],
    after: Position,
    horizon: Position,
) -> CompactionPlan:
    plan = CompactionPlan(
        topic=topic.name,
        retain_null_key=topic.policies().retain_null_key,
        ledgers_dir=str(broker.store.ledgers_dir),
        segments=[*compacted, *raw],
        compacted_segments=len(compacted),
        time_ms=broker.clock_ms(),
    )
    for place, position in ((plan.horizon_previous, after), (plan.horizon, horizon)):
        place.ledger_id, place.entry_id = position
    return plan


def _segments(topic: Topic, after: Position) -> list[SegmentRecord]:
    """Returns the segments that hold entries above `after`."""
    found: list[SegmentRecord] = []
    for ledger in topic.log.ledgers.records():
        segments = list(_above(ledger, after))
        damage = topic.store.damage_of(ledger.ledger_id)
        if segments and damage is not None:
            raise damage
        found += segments
    return found


def _above(ledger: LedgerRecord, after: Position) -> Iterable[SegmentRecord]:
    return (
        segment
        for segment in ledger.segments
        if segment.entries and record_position(segment, last=True) > after
    )

"""A check whether a run has work: new entries, or another strategy than the view's. Pure.

* Entries published since the horizon are new. Damage also counts, because the run reports it. An
  empty topic counts the first time: a run records its success.
* The view stays as its run wrote it until another run. So a run is due if the strategy, its
  settings, or its version differ from that run's; and always for a strategy whose result can change
  without new entries: one that depends on the time, and a user-defined one, whose code is unknown
  here.

  >>> topic = TopicRecord(compacted={"run_number": 7})
  >>> runs = [RunRecord(number=7, strategy="event-time", strategy_version="1")]
  >>> is_outdated(topic, runs, CompactionStrategy(name="event-time"))
  False
  >>> is_outdated(topic, runs, CompactionStrategy(name="publishing-order"))
  True
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ledgerfold.broker.compaction.interfaces import CompactableTopic
from ledgerfold.storage.entry import EARLIEST
from ledgerfold.strategies.catalogue import listed
from ledgerfold.v1.records_pb2 import RUN_STATE_SUCCESS, CompactionStrategy, RunRecord, TopicRecord


def is_outdated(
    topic: TopicRecord, runs: Iterable[RunRecord], strategy: CompactionStrategy
) -> bool:
    """Returns whether the strategy may keep other entries of the same data than the view's run did.

    True if that run's record was deleted.
    """
    if not topic.HasField("compacted"):
        return False
    current = next((run for run in runs if run.number == topic.compacted.run_number), None)
    known = listed(strategy.name)
    if current is None or known is None or known.heeds_time:
        return True
    if current.strategy_version not in ("", str(known.version)):
        return True
    settings = dict(current.strategy_settings)
    return current.strategy != strategy.name or settings != dict(strategy.settings)


def has_news(topic: CompactableTopic, runs: Sequence[RunRecord]) -> bool:
    """Returns whether a run would find something new. `runs`: those that the status covers.

    Counts entries instead of comparing positions: a rolled, still empty ledger has a last position
    beyond the horizon, but no entries.
    """
    log = topic.log
    if log.views.has_damage or log.ledgers.entries_between(
        log.views.horizon or EARLIEST, log.positions.last()
    ):
        return True
    return log.views.horizon is None and not _was_found_empty(topic, runs)


def _was_found_empty(topic: CompactableTopic, runs: Sequence[RunRecord]) -> bool:
    return bool(
        topic.record.compaction_cursor
        and runs
        and runs[-1].state == RUN_STATE_SUCCESS
        and not runs[-1].HasField("horizon")
    )

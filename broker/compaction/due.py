"""Whether a run would have anything to do: news, or another strategy than the view's. Pure.

* What was published since the horizon is news. So is damage: the run tells it. So is that there is
  nothing, the first time: a run says so with its success.
* The view stays as its run made it, until another run makes it anew. So a strategy, or settings,
  or rules of another version, that differ from that run's are a reason for one; and a strategy
  whose result changes by itself always is: one that heeds the time, and one of one's own, whose
  code nobody here knows.

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
    """Whether the strategy may leave something else of the same data than the run that made the
    topic's view did. (Nobody can tell where that run's record is gone.)
    """
    if not topic.HasField("compacted"):
        return False
    made = next((run for run in runs if run.number == topic.compacted.run_number), None)
    known = listed(strategy.name)
    if made is None or known is None or known.heeds_time:
        return True
    if made.strategy_version not in ("", str(known.version)):
        return True
    return made.strategy != strategy.name or dict(made.strategy_settings) != dict(strategy.settings)


def has_news(topic: CompactableTopic, runs: Sequence[RunRecord]) -> bool:
    """`runs`: those that the status speaks of.

    Counts entries instead of comparing positions: a ledger that was rolled and is still empty has a
    last position beyond the horizon, but nothing in it.
    """
    log = topic.log
    if log.has_damage or log.entries_between(log.horizon or EARLIEST, log.last_position()):
        return True
    return log.horizon is None and not _was_found_empty(topic, runs)


def _was_found_empty(topic: CompactableTopic, runs: Sequence[RunRecord]) -> bool:
    return bool(
        topic.record.compaction_cursor
        and runs
        and runs[-1].state == RUN_STATE_SUCCESS
        and not runs[-1].HasField("horizon")
    )

"""A check whether a run has work: new entries, or other rules than the view's run had. Pure.

* Entries published since the horizon are new. Damage also counts, because the run reports it. An
  empty topic counts the first time: a run records its success.
* The view stays as its run wrote it until another run. So a run is due if the strategy, its
  settings, its version, or the policies for messages without a key and for empty values differ from
  that run's; and always for a strategy whose result can change without new entries: one that
  depends on the time, and a user-defined one, whose code is unknown here.

  >>> topic = TopicRecord(compacted={"run_number": 7})
  >>> runs = [RunRecord(number=7, strategy="event-time", strategy_version="2")]
  >>> by_time = RunRules(CompactionStrategy(name="event-time"))
  >>> is_outdated(topic, runs, by_time)
  False
  >>> is_outdated(topic, runs, by_time._replace(retain_null_key=True))
  True
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ledgerfold.broker.compaction.interfaces import CompactableTopic
from ledgerfold.storage.entry import EARLIEST
from ledgerfold.strategies.catalogue import drops_null_keys, listed
from ledgerfold.v1.records_pb2 import RUN_STATE_SUCCESS, CompactionStrategy, RunRecord, TopicRecord


class RunRules(NamedTuple):
    """The rules by which a run keeps messages, without the version of its code."""

    strategy: CompactionStrategy
    retain_null_key: bool = False
    unsized_empties_survive: bool = False

    def were_of(self, run: RunRecord) -> bool:
        """Returns whether that run had the same rules."""
        name = self.strategy.name
        return (
            run.strategy == name
            and dict(run.strategy_settings) == dict(self.strategy.settings)
            and (drops_null_keys(name) or run.retain_null_key == self.retain_null_key)
            and run.unsized_empties_survive == self.unsized_empties_survive
        )


def rules_of(topic: CompactableTopic, strategy: CompactionStrategy) -> RunRules:
    """Returns the rules of a run that would begin now."""
    return RunRules(
        strategy, topic.policies().retain_null_key, topic.emulation().unsized_empties_survive
    )


def is_outdated(topic: TopicRecord, runs: Iterable[RunRecord], rules: RunRules) -> bool:
    """Returns whether a run may keep other entries of the same data than the view's run did.

    True if that run's record was deleted.
    """
    if not topic.HasField("compacted"):
        return False
    current = next((run for run in runs if run.number == topic.compacted.run_number), None)
    known = listed(rules.strategy.name)
    if current is None or known is None or known.depends_on_time:
        return True
    return current.strategy_version not in ("", str(known.version)) or not rules.were_of(current)


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

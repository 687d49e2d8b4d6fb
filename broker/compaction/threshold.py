"""The automatic trigger: more bytes after the horizon than the threshold allows.

Each loaded topic is checked at every monitor interval, and when it rolls a segment or a ledger. The
comparison is strict, and 0 disables the trigger (Pulsar's PersistentTopic.checkCompaction;
docs/PROFILES.md, rule 11.3). The bytes are exact here; Pulsar estimates.

A failed run is not retried at each interval with the same data: after n failures in a row the next
automatic attempt waits interval * 2^n, ten minutes at most. An administrator's trigger never waits,
and no trigger waits if the clock was set back to before the last failure.

The last check of each loaded topic is kept, for its compaction status.

  >>> decide(Threshold(999, "topic"), Situation(backlog_bytes=1000), now_ms=0, interval_ms=60_000)
  Decision(fire=True, why='above', backlog_bytes=1000, threshold_bytes=999, source='topic')
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakKeyDictionary

from ledgerfold.broker.compaction.history import CompactionHistory, failures_in_a_row
from ledgerfold.broker.compaction.interfaces import CompactableTopic, CompactionBroker
from ledgerfold.broker.policies.effective import Threshold
from ledgerfold.broker.worker.compactor import Compactor
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.v1.admin_pb2 import ThresholdCheck
from ledgerfold.v1.records_pb2 import RUN_TRIGGER_THRESHOLD, RunTrigger

BACKOFF_MAX_MS = 600_000
_DOUBLINGS_MAX = 20
_log = logging.getLogger(__name__)
Sleep = Callable[[float], Awaitable[object]]


@dataclass(frozen=True)
class Situation:
    """The inputs of a decision, apart from the threshold and the time."""

    backlog_bytes: int
    has_run: bool = False
    is_compactor_off: bool = False
    failures: int = 0
    failed_ms: int = 0


@dataclass(frozen=True)
class Decision:
    """A decision. `source`: the level that set the threshold: topic, namespace or broker."""

    fire: bool
    why: str
    backlog_bytes: int
    threshold_bytes: int
    source: str


def decide(
    threshold: Threshold, situation: Situation, *, now_ms: int, interval_ms: int
) -> Decision:
    """Decides whether to start a compaction now."""
    pause_ms = min(BACKOFF_MAX_MS, interval_ms * 2 ** min(situation.failures, _DOUBLINGS_MAX))
    # A failure in the future: the clock was set back, so the wait is unknown.
    waits = situation.failures > 0 and 0 <= now_ms - situation.failed_ms < pause_ms
    if threshold.threshold_bytes <= 0:
        why = "no threshold"
    elif situation.backlog_bytes <= threshold.threshold_bytes:
        why = "not above"
    elif situation.has_run:
        why = "a run is in progress"
    elif situation.is_compactor_off:
        why = "the compactor is off"
    elif waits:
        why = f"waits after {situation.failures} failed runs"
    else:
        why = "above"
    return Decision(why == "above", why, situation.backlog_bytes, *threshold)


class Trigger(Protocol):
    """The part of the scheduler that the monitor uses (broker/compaction/scheduler.py)."""

    @property
    def history(self) -> CompactionHistory: ...
    @property
    def compactor(self) -> Compactor: ...
    def has_run(self, topic: str) -> bool: ...
    async def trigger(self, topic: CompactableTopic, trigger: RunTrigger) -> int: ...


class ThresholdMonitor:
    """The periodic threshold check of all loaded topics."""

    def __init__(
        self, broker: CompactionBroker, scheduler: Trigger, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._broker, self._scheduler, self._sleep = broker, scheduler, sleep
        # By loaded topic.
        self._last: WeakKeyDictionary[CompactableTopic, ThresholdCheck] = WeakKeyDictionary()

    async def run(self) -> None:
        """Checks all topics at every interval until cancelled."""
        while True:
            await self._sleep(self._broker.settings.compaction_monitor_interval_ms / 1000)
            await self.check_all()

    async def check_all(self) -> None:
        for topic in list(self._broker.topics.values()):
            try:
                await self.check(topic)
            except LedgerfoldError as error:
                _log.warning("The threshold of %s was not checked: %s", topic.name, error)
            except Exception:
                # Logged, and checked again at the next interval: the monitor never ends.
                _log.exception("The threshold of %s was not checked", topic.name)
            # Streams are served in between, regardless of the number of topics.
            await asyncio.sleep(0)

    async def check(self, topic: CompactableTopic) -> Decision:
        """Decides, and triggers.

        Raises the error of a refused trigger (a full queue, for example).
        """
        decision = self.decide(topic)
        if not decision.fire:
            _log.debug("No compaction of %s: %s", topic.name, decision)
            return decision
        _log.info(
            "Compaction of %s: %d bytes after the horizon exceed the threshold of the %s, %d",
            topic.name,
            decision.backlog_bytes,
            decision.source,
            decision.threshold_bytes,
        )
        try:
            number = await self._scheduler.trigger(topic, RUN_TRIGGER_THRESHOLD)
        except LedgerfoldError as error:
            self._record(topic, decision, str(error))
            raise
        self._record(topic, decision, "" if number else "nothing new")
        return decision

    def last_check(self, topic: CompactableTopic) -> ThresholdCheck | None:
        """Returns the last check since the topic was loaded."""
        return self._last.get(topic)

    def decide(self, topic: CompactableTopic) -> Decision:
        """Decides, and keeps the decision as the last one unless it is to trigger."""
        decision = self._decision(topic)
        if not decision.fire:
            self._record(topic, decision, decision.why)
        return decision

    def _record(self, topic: CompactableTopic, decision: Decision, refusal: str) -> None:
        self._last[topic] = ThresholdCheck(
            checked_ms=self._broker.clock_ms(),
            fired=not refusal,
            why=refusal or decision.why,
            backlog_bytes=decision.backlog_bytes,
            threshold_bytes=decision.threshold_bytes,
            level=decision.source,
        )

    def _decision(self, topic: CompactableTopic) -> Decision:
        threshold = self._broker.policy_levels.threshold(topic.record)
        # Expensive inputs are computed only if they matter.
        backlog_bytes = topic.compaction_backlog_bytes() if threshold.threshold_bytes > 0 else 0
        failures = failed_ms = 0
        if 0 < threshold.threshold_bytes < backlog_bytes:
            runs = self._scheduler.history.oldest_first(topic.name)
            failures, failed_ms = failures_in_a_row(runs)
        return decide(
            threshold,
            Situation(
                backlog_bytes=backlog_bytes,
                has_run=self._scheduler.has_run(topic.name),
                is_compactor_off=self._scheduler.compactor.is_disabled,
                failures=failures,
                failed_ms=failed_ms,
            ),
            now_ms=self._broker.clock_ms(),
            interval_ms=self._broker.settings.compaction_monitor_interval_ms,
        )

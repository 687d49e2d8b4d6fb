"""Compaction control: the schedule of runs and their status.

`CompactionScheduler` keeps at most one unfinished run per topic, RUNS_AT_ONCE of them in the
worker, the others in a bounded queue, dirtiest topic first. A run itself is in
broker/compaction/run.py, its history in broker/compaction/history.py, the automatic trigger in
broker/compaction/threshold.py.

Rules and their sources (docs/PROFILES.md, rules 10.2 and 10.3; Pulsar's PersistentTopic):

* A trigger while a run of the topic is queued or running is refused (CompactionRunning).
* If nothing is new since the horizon, a trigger starts no run and changes no status
  (apache/pulsar#24449), unless the profile requires a run, or the strategy may produce another view
  (broker/compaction/due.py). An empty topic that was never compacted gets one run, a success
  without a ledger, and no other run until something is published.
* A run uses the strategy that is set when it starts, or the strategy of its trigger.
* Status: NOT_RUN, RUNNING (queued or running), SUCCESS, ERROR with the text of the last error. It
  is durable, unless the profile resets it with each load. A cancelled run counts as an error,
  "cancelled".
* Unloading or deleting a topic fences its run, which then changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial

from ledgerfold.broker.common.names import COMPACTION_CURSOR
from ledgerfold.broker.compaction.due import has_news, is_outdated, rules_of
from ledgerfold.broker.compaction.history import (
    RESTARTED_MESSAGE,
    CompactionHistory,
    CompactionStats,
    last_ended,
    stats_of,
    status_of_record,
)
from ledgerfold.broker.compaction.interfaces import CompactableTopic, CompactionBroker
from ledgerfold.broker.compaction.own_strategies import check_allowed
from ledgerfold.broker.compaction.queue import CompactionQueue
from ledgerfold.broker.compaction.run import CompactionRun
from ledgerfold.broker.compaction.run_files import RunFiles
from ledgerfold.broker.compaction.snapshot import TopicSnapshot
from ledgerfold.broker.compaction.threshold import Sleep, ThresholdMonitor
from ledgerfold.broker.faults.compaction import run_or_fail
from ledgerfold.broker.faults.faults import Faults
from ledgerfold.broker.worker.compactor import Compactor, RunPlan
from ledgerfold.storage.crash_points import reach
from ledgerfold.storage.errors import (
    CompactionCancelled,
    CompactionFenced,
    CompactionRunning,
    CompactorUnavailable,
    LedgerfoldError,
    SubscriptionBusy,
    Unavailable,
)
from ledgerfold.v1.admin_pb2 import GetCompactionStatusResponse
from ledgerfold.v1.records_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_TRIGGER_ADMIN,
    CompactionStrategy,
    RunRecord,
    RunTrigger,
)

# A run uses all cores of the worker: two at once would only share them, and its memory.
RUNS_AT_ONCE = 1
_CANCELLED = "cancelled"
_AWAY = "unloaded or deleted"
_log = logging.getLogger(__name__)


class CompactionScheduler:
    """The compaction control of one broker, on its event loop. `faults`: rules that fail runs."""

    def __init__(
        self,
        broker: CompactionBroker,
        compactor: Compactor,
        sleep: Sleep = asyncio.sleep,
        faults: Faults | None = None,
    ) -> None:
        self.compactor = compactor
        self._run_plan: RunPlan = compactor.run
        if faults is not None:
            self._run_plan = partial(run_or_fail, compactor.run, faults)
        self.history = CompactionHistory(broker.metadata, lambda: broker.executor, broker.clock_ms)
        self.monitor = ThresholdMonitor(broker, self, sleep)
        self._broker = broker
        self._files = RunFiles(broker.store)
        self._queue: CompactionQueue[CompactionRun] = CompactionQueue(
            broker.settings.compaction_queue_max,
            _dirtiness,
        )
        # Queued or running, by topic.
        self._runs: dict[str, CompactionRun] = {}
        # Topics whose trigger is being handled.
        self._reserved: set[str] = set()
        self._being_answered: dict[str, asyncio.Event] = {}
        # Topics on which no run may begin now.
        self._barred: set[str] = set()
        self._tasks: set[asyncio.Task[object]] = set()
        self._running = 0
        self._is_stopping, self._has_monitors = False, True
        # Called for every ended run, successful or not.
        self.on_ended: set[Callable[[RunRecord], None]] = set()

    def start(self, *, monitors: bool = True) -> None:
        """Closes runs that a dead process left, and starts the monitor if `monitors`."""
        self._has_monitors = monitors
        interrupted = self.history.close_interrupted(self._is_alive)
        if interrupted:
            _log.warning("%d compactions were interrupted by the broker's end", interrupted)
        if monitors:
            self._spawn(self.monitor.run())

    async def stop(self) -> None:
        """Ends every run and returns when none is left. The worker is still running."""
        self._is_stopping = True
        self._reserved.clear()
        stopped = CompactionFenced(RESTARTED_MESSAGE)
        await asyncio.gather(*(self._interrupt(run, stopped) for run in list(self._runs.values())))
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Operations

    async def trigger(
        self,
        topic: CompactableTopic,
        trigger: RunTrigger,
        strategy: CompactionStrategy | None = None,
    ) -> int:
        """Queues a run and returns its number.

        Returns 0 if there is nothing new to compact, or if the topic is barred or no longer loaded.
        `strategy`: used by this run only, instead of the topic's. Raises CompactionRunning,
        CompactionQueueFull, CompactorUnavailable (it is off), Unavailable (the broker is stopping),
        CompactionFenced, StorageError, StrategyNotAllowed.
        """
        if strategy is not None:
            await check_allowed(self._broker, strategy)
        if self._broker.topics.get(topic.name) is not topic or topic.name in self._barred:
            return 0
        self._check_free(topic)
        if trigger == RUN_TRIGGER_ADMIN:
            self.compactor.retry_now()
        chosen = strategy or topic.policies().compaction_strategy
        if topic.emulation().skip_run_without_new_data and not self._is_due(topic, chosen):
            return 0
        self._queue.check_room(len(self._reserved))
        with self._answering(topic.name):
            return await self._queue_run(topic, trigger, strategy)

    @contextmanager
    def _answering(self, topic: str) -> Iterator[None]:
        """Reserves the topic's place, unless it is fenced.

        A fence waits for the end of this block.
        """
        self._reserved.add(topic)
        answered = self._being_answered[topic] = asyncio.Event()
        try:
            yield
        finally:
            self._reserved.discard(topic)
            if self._being_answered.get(topic) is answered:
                del self._being_answered[topic]
            answered.set()

    async def _queue_run(
        self, topic: CompactableTopic, trigger: RunTrigger, strategy: CompactionStrategy | None
    ) -> int:
        await topic.enable_compaction_cursor()
        self._check_usable(topic)
        chosen = strategy or topic.policies().compaction_strategy
        record = await self.history.queue(topic.stored, trigger, chosen)
        reach("run.recorded")
        run = CompactionRun(
            self._broker, topic, record, self.history, self._run_plan, self._files, strategy
        )
        if not self._is_usable(topic):
            await run.abort(CompactionFenced(f"{topic.name} was {_AWAY} before the run."))
            self._check_usable(topic)
        self._runs[topic.name] = run
        self._queue.add(run)
        self._start_next()
        return record.number

    async def cancel(self, topic: str) -> int:
        """Cancels the topic's run; returns its number once it has ended and its files are removed.

        Returns 0 if there was none, or if it ended before it could be cancelled.
        """
        run = self._runs.get(topic)
        if run is None:
            return 0
        await self._interrupt(run, CompactionCancelled(_CANCELLED))
        return run.number if run.record.state == RUN_STATE_CANCELLED else 0

    async def fence(self, topic: str, why: str = _AWAY) -> None:
        """Ends the topic's run before an operation, and returns when it has ended."""
        self._reserved.discard(topic)
        answered = self._being_answered.get(topic)
        if answered is not None:
            # It may have recorded a run, which it then ends.
            await answered.wait()
        run = self._runs.get(topic)
        if run is not None:
            await self._interrupt(run, CompactionFenced(f"{topic} was {why} during the run."))

    async def ended(self, topic: str) -> None:
        """Returns when the topic's run, if there is one, has ended without intervention."""
        run = self._runs.get(topic)
        if run is not None:
            await run.ended.wait()

    @contextmanager
    def barred(self, topic: str) -> Iterator[None]:
        """Prevents runs of the topic inside; triggers do nothing. Raises SubscriptionBusy."""
        if topic in self._barred:
            raise SubscriptionBusy(
                topic, COMPACTION_CURSOR, "it is being deleted or truncated; try again."
            )
        self._barred.add(topic)
        self._reserved.discard(topic)
        try:
            yield
        finally:
            self._barred.discard(topic)

    def consider(self, topic: CompactableTopic) -> None:
        """Checks the threshold now, not at the next interval. Does not block."""
        if self._is_stopping or not self._has_monitors:
            return
        try:
            fires = self.monitor.decide(topic).fire
        except Exception:
            # The caller, a roll, must not fail.
            _log.exception("The threshold of %s was not checked", topic.name)
        else:
            if fires:
                self._spawn(self.monitor.check(topic))

    # Queries

    @property
    def queue_length(self) -> int:
        """The number of queued runs."""
        return len(self._queue)

    @property
    def running(self) -> int:
        return self._running

    def has_run(self, topic: str) -> bool:
        return topic in self._runs or topic in self._reserved

    def snapshot_of(self, topic: str) -> TopicSnapshot | None:
        """Returns the input of the topic's run, until it has ended."""
        run = self._runs.get(topic)
        return None if run is None else run.snapshot

    def status(self, topic: CompactableTopic) -> GetCompactionStatusResponse:
        run = self._runs.get(topic.name)
        if run is not None:
            status = run.status()
        else:
            runs = self._runs_known(topic)
            status = status_of_record(runs[-1] if runs else None, topic.policies())
        check = self.monitor.last_check(topic)
        if check is not None:
            status.threshold_check.CopyFrom(check)
        return status

    def stats(self, topic: CompactableTopic) -> CompactionStats:
        runs = self._runs_known(topic)
        strategy = topic.policies().compaction_strategy
        return stats_of(runs)._replace(last=last_ended(runs), strategy=strategy)

    async def watch(self, topic: CompactableTopic) -> AsyncIterator[GetCompactionStatusResponse]:
        """Yields the status now, then at each change until the current run, if any, has ended.

        A slow watcher gets the latest status, not every change.
        """
        run = self._runs.get(topic.name)
        if run is None:
            yield self.status(topic)
            return
        is_last = False
        while not is_last:
            changed, is_last = run.changed, run.ended.is_set()
            yield run.status()
            if not is_last:
                await changed.wait()

    # Internals

    def _runs_known(self, topic: CompactableTopic) -> list[RunRecord]:
        """Returns the runs that status and stats cover, oldest first."""
        runs = self.history.oldest_first(topic.name)
        if topic.emulation().status_survives_unload:
            return runs
        return [run for run in runs if run.number > topic.last_run_before_load]

    def _is_due(self, topic: CompactableTopic, strategy: CompactionStrategy) -> bool:
        if has_news(topic, self._runs_known(topic)):
            return True
        runs = self.history.oldest_first(topic.name)
        return is_outdated(topic.record, runs, rules_of(topic, strategy))

    def _is_alive(self, record: RunRecord) -> bool:
        run = self._runs.get(record.topic)
        return run is not None and run.number == record.number

    def _check_usable(self, topic: CompactableTopic) -> None:
        if not self._is_usable(topic):
            raise CompactionFenced(f"{topic.name} was unloaded, or the broker is stopping.")

    def _is_usable(self, topic: CompactableTopic) -> bool:
        """Returns whether the topic was neither unloaded nor fenced during its trigger."""
        is_loaded = self._broker.topics.get(topic.name) is topic
        return is_loaded and topic.name in self._reserved

    def _check_free(self, topic: CompactableTopic) -> None:
        run = self._runs.get(topic.name)
        if run is not None:
            raise CompactionRunning(topic.name, run.number)
        if topic.name in self._reserved:
            raise CompactionRunning(topic.name, topic.record.last_run_number + 1)
        if self._is_stopping:
            raise Unavailable("The broker is stopping.")
        if self.compactor.is_disabled:
            raise CompactorUnavailable(
                "The compactor is off. Restart the broker without --compactor off."
            )

    async def _interrupt(self, run: CompactionRun, error: LedgerfoldError) -> None:
        if self._queue.remove(run):
            await run.abort(error)
            self._forget(run)
        else:
            run.interrupt(error)
            await run.ended.wait()

    def _start_next(self) -> None:
        while self._running < RUNS_AT_ONCE and not self._is_stopping:
            run = self._queue.take()
            if run is None:
                return
            self._running += 1
            self._spawn(self._execute(run))

    async def _execute(self, run: CompactionRun) -> None:
        try:
            await self._files.retry()
            await run.execute()
        finally:
            # NOTE: nothing is awaited between the run's end and _forget(): when tasks that waited
            # for the end resume, the topic has no run.
            await run.abort(CompactionFenced(RESTARTED_MESSAGE))
            self._running -= 1
            self._forget(run)
            self._start_next()

    def _forget(self, run: CompactionRun) -> None:
        if self._runs.get(run.topic.name) is run:
            del self._runs[run.topic.name]
        for callback in tuple(self.on_ended):
            try:
                callback(run.record)
            except Exception:
                _log.exception("A callback after run %d of %s failed", run.number, run.topic.name)

    def _spawn(self, work: Coroutine[object, object, object]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("A task of the compaction scheduler failed: %r", error, exc_info=error)


def _dirtiness(run: CompactionRun) -> int:
    """Returns the backlog.

    0 if that fails, so that the run waits last and then reports the error.
    """
    try:
        return run.topic.compaction_backlog_bytes()
    except Exception:
        _log.exception("Cannot compute the backlog of %s", run.topic.name)
        return 0

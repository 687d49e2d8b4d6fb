"""The durable history of compactions: run records, and Pulsar's status and stats derived from them.

A record is written when a run is queued, when it starts, when its ledger id is known and when it
ends. The end of a successful run is not written here: it belongs to the batch that publishes the
view (broker/compaction/commit.py). The last RUNS_KEPT runs of a topic are kept.

Pulsar keeps the status in memory and forgets it at each load; the history persists, so that a run
which failed or was interrupted by a restart can still be queried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from typing import Final, NamedTuple

from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.metadata import MetadataBatch, MetadataStore
from ledgerfold.v1.admin_pb2 import (
    COMPACTION_STATUS_ERROR,
    COMPACTION_STATUS_NOT_RUN,
    COMPACTION_STATUS_SUCCESS,
    GetCompactionStatusResponse,
)
from ledgerfold.v1.records_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_ERROR,
    RUN_STATE_QUEUED,
    RUN_STATE_RUNNING,
    RUN_STATE_SUCCESS,
    CompactionStrategy,
    Policies,
    RunRecord,
    RunTrigger,
    TopicRecord,
)

RUNS_KEPT = 100
BROKER_RESTARTED = "BROKER_RESTARTED"
RESTARTED_MESSAGE = "The broker stopped during the run."
# Reasons unrelated to the data or the worker: these runs neither failed nor succeeded.
_EXTERNAL_REASONS = frozenset({BROKER_RESTARTED, "COMPACTION_FENCED"})
_UNFINISHED: Final = (RUN_STATE_QUEUED, RUN_STATE_RUNNING)


class CompactionStats(NamedTuple):
    """Pulsar's `compaction` block of the topic stats. Times in ms; 0: not yet.

    In addition to Pulsar's: the last ended run, and the strategy in force for the next.
    """

    removed_events: int = 0
    succeeded_ms: int = 0
    failed_ms: int = 0
    duration_ms: int = 0
    last: RunRecord | None = None
    strategy: CompactionStrategy | None = None


class CompactionHistory:
    """The store of run records. Every write is one synced batch."""

    def __init__(
        self, metadata: MetadataStore, executor: Callable[[], Executor], clock_ms: Callable[[], int]
    ) -> None:
        self._metadata, self._executor, self._clock_ms = metadata, executor, clock_ms
        # Ends of runs that the disk refused, by topic and number: they are reported, and written
        # with the next successful record.
        self._unsaved: dict[tuple[str, int], RunRecord] = {}

    async def queue(
        self, stored: StoredTopic, trigger: RunTrigger, strategy: CompactionStrategy
    ) -> RunRecord:
        """Assigns the next run number and records it; deletes the oldest record beyond RUNS_KEPT.

        Raises Moved (the topic was unloaded), DiskFailure.
        """
        queued = RunRecord(
            topic=stored.name,
            state=RUN_STATE_QUEUED,
            trigger=trigger,
            strategy=strategy.name,
            strategy_settings=strategy.settings,
            queued_ms=self._clock_ms(),
            ledger_id=-1,
            previous_ledger_id=-1,
        )

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            record.last_run_number += 1
            queued.number = record.last_run_number
            self._put(queued, batch)
            if queued.number > RUNS_KEPT:
                batch.delete("run", record.name, queued.number - RUNS_KEPT)

        await stored.change(edit, self._unsaved.clear)
        return queued

    async def save(self, run: RunRecord) -> None:
        """Writes the record in its current state, unless the topic was deleted meanwhile.

        (A deletion waits for the run's end first.)
        """
        if self._metadata.topic(run.topic) is None:
            return
        batch = self._metadata.begin()
        self._put(run, batch)
        saved = tuple(self._unsaved)
        try:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._executor(), self._metadata.write, batch)
        except DiskFailure:
            self._unsaved[run.topic, run.number] = run
            raise
        for key in saved:
            self._unsaved.pop(key, None)

    def _put(self, run: RunRecord, batch: MetadataBatch) -> None:
        for unsaved in self._unsaved.values():
            if self._metadata.topic(unsaved.topic) is not None:
                batch.put(unsaved)
        batch.put(run)

    def forget(self, topic: str) -> None:
        """Drops unsaved records of a deleted topic; a new topic of its name counts runs from 1."""
        for key in [key for key in self._unsaved if key[0] == topic]:
            del self._unsaved[key]

    def close_interrupted(self, is_alive: Callable[[RunRecord], bool]) -> int:
        """Ends runs that a dead process left unfinished as ERROR; called at the broker's start.

        `is_alive`: returns whether this process already began the run. Returns how many ended.
        """
        interrupted = [
            run
            for run in self._metadata.runs(None)
            if run.state in _UNFINISHED and not is_alive(run)
        ]
        if not interrupted:
            return 0
        with self._metadata.batch() as batch:
            for run in interrupted:
                mark_interrupted(run, self._clock_ms())
                batch.put(run)
        return len(interrupted)

    def oldest_first(self, topic: str | None) -> list[RunRecord]:
        """Returns the runs of one topic, or of all."""
        runs = self._metadata.runs(topic)
        return [self._unsaved.get((run.topic, run.number), run) for run in runs]

    def runs(self, *topics: str, limit: int = 0) -> list[RunRecord]:
        """Returns runs of the topics (none given: all), newest first by queueing time.

        Limit 0: all.
        """
        runs = [run for topic in topics or (None,) for run in self.oldest_first(topic)]
        newest_first = sorted(runs, key=lambda run: (run.queued_ms, run.number), reverse=True)
        return newest_first[:limit] if limit > 0 else newest_first


def status_of_record(run: RunRecord | None, policies: Policies) -> GetCompactionStatusResponse:
    """Returns Pulsar's LongRunningProcessStatus of the last run, which has ended, if any.

    `policies`: the effective ones.
    """
    status = GetCompactionStatusResponse(
        status=COMPACTION_STATUS_NOT_RUN, run=run, strategy=policies.compaction_strategy
    )
    if run is not None and run.state == RUN_STATE_SUCCESS:
        status.status = COMPACTION_STATUS_SUCCESS
    elif run is not None:
        status.status, status.last_error = COMPACTION_STATUS_ERROR, run.error_message
    return status


def mark_interrupted(run: RunRecord, ended_ms: int) -> None:
    run.state, run.ended_ms = RUN_STATE_ERROR, ended_ms
    run.error_reason, run.error_message = BROKER_RESTARTED, RESTARTED_MESSAGE


def duration_ms(run: RunRecord) -> int:
    """Returns the duration of an ended run; 0 if it never started, or the clock was set back."""
    return max(0, run.ended_ms - (run.started_ms or run.ended_ms))


def stats_of(runs: Iterable[RunRecord]) -> CompactionStats:
    """Derives stats from runs, oldest first. Success and failure times do not clear each other."""
    stats = CompactionStats()
    for run in runs:
        if run.state in _UNFINISHED:
            continue
        stats = stats._replace(duration_ms=duration_ms(run))
        if run.state == RUN_STATE_SUCCESS:
            removed = run.counts.removed_events
            stats = stats._replace(succeeded_ms=run.ended_ms, removed_events=removed)
        else:
            stats = stats._replace(failed_ms=run.ended_ms)
    return stats


def last_ended(runs: Sequence[RunRecord]) -> RunRecord | None:
    """Returns the last ended run of `runs`, oldest first."""
    return next((run for run in reversed(runs) if run.state not in _UNFINISHED), None)


def failures_in_a_row(runs: Sequence[RunRecord]) -> tuple[int, int]:
    """Counts the latest runs (oldest first) that failed or were cancelled.

    Returns the last end time too.
    Runs interrupted by an unload or a restart of the broker are skipped.
    """
    count = ended_ms = 0
    for run in reversed(runs):
        if run.state not in (RUN_STATE_ERROR, RUN_STATE_CANCELLED):
            break
        if run.error_reason in _EXTERNAL_REASONS:
            continue
        count += 1
        # The time of the latest run: the clock may have been set back since an earlier one.
        ended_ms = ended_ms or run.ended_ms
    return count, ended_ms

"""The durable history of compactions: run records, and what Pulsar's status and stats make of them.

A record is written when a run is queued, when it starts, when its ledger id is known and when it
ends. The end of a successful run is not written here: it belongs to the batch that publishes the
view (Topic.commit_compaction). The last RUNS_KEPT runs of a topic are kept.

Pulsar keeps the status in memory and forgets it at each load; the history survives, so that a run
which failed or was cut off by a restart can still be asked about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from typing import Final, NamedTuple

from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.metadata import MetadataBatch, MetadataStore
from ledgerfold.v1.records_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_ERROR,
    RUN_STATE_QUEUED,
    RUN_STATE_RUNNING,
    RUN_STATE_SUCCESS,
    CompactionStrategy,
    RunRecord,
    RunTrigger,
    TopicRecord,
)

RUNS_KEPT = 100
BROKER_RESTARTED = "BROKER_RESTARTED"
RESTARTED_MESSAGE = "The broker stopped while the run was on its way."
# Reasons that say nothing about the data or the worker: such a run neither failed nor succeeded.
_NOBODYS_FAULT = frozenset({BROKER_RESTARTED, "COMPACTION_FENCED"})
_ON_THE_WAY: Final = (RUN_STATE_QUEUED, RUN_STATE_RUNNING)


class CompactionStats(NamedTuple):
    """Pulsar's `compaction` block of the topic stats. Times in ms; 0: not yet.

    And, what Pulsar's has not: the last run that ended, the strategy in force for the next.
    """

    removed_events: int = 0
    succeeded_ms: int = 0
    failed_ms: int = 0
    duration_ms: int = 0
    last: RunRecord | None = None
    strategy: CompactionStrategy | None = None


class CompactionHistory:
    """Reads and writes run records. Every write is one synced batch."""

    def __init__(
        self, metadata: MetadataStore, executor: Callable[[], Executor], clock_ms: Callable[[], int]
    ) -> None:
        self._metadata, self._executor, self._clock_ms = metadata, executor, clock_ms
        # Ends of runs that the disk did not take, by topic and number: told all the same, and
        # written with the next record that it takes.
        self._unsaved: dict[tuple[str, int], RunRecord] = {}

    async def queue(
        self, stored: StoredTopic, trigger: RunTrigger, strategy: CompactionStrategy
    ) -> RunRecord:
        """Gives out the next run number and records it; the oldest record beyond RUNS_KEPT goes.

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
                batch.delete_run(record.name, queued.number - RUNS_KEPT)

        await stored.change(edit, self._unsaved.clear)
        return queued

    async def save(self, run: RunRecord) -> None:
        """Writes the record as it is, unless the topic was deleted meanwhile.

        (Which waits for the run's end before it deletes anything.)
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
                batch.put_run(unsaved)
        batch.put_run(run)

    def forget(self, topic: str) -> None:
        """It was deleted; one that is made again under its name counts its runs anew."""
        for key in [key for key in self._unsaved if key[0] == topic]:
            del self._unsaved[key]

    def close_interrupted(self, is_alive: Callable[[RunRecord], bool]) -> int:
        """At the broker's start: runs that a dead process left on their way end as ERROR.

        `is_alive`: for a run that this process began already. Returns how many ended.
        """
        interrupted = [
            run
            for run in self._metadata.runs(None)
            if run.state in _ON_THE_WAY and not is_alive(run)
        ]
        if not interrupted:
            return 0
        with self._metadata.batch() as batch:
            for run in interrupted:
                mark_interrupted(run, self._clock_ms())
                batch.put_run(run)
        return len(interrupted)

    def oldest_first(self, topic: str | None) -> list[RunRecord]:
        """Of one topic, or all."""
        runs = self._metadata.runs(topic)
        return [self._unsaved.get((run.topic, run.number), run) for run in runs]

    def runs(self, *topics: str, limit: int = 0) -> list[RunRecord]:
        """Newest first, by the time they were queued; no topics: of all. Limit 0: all."""
        runs = [run for topic in topics or (None,) for run in self.oldest_first(topic)]
        newest_first = sorted(runs, key=lambda run: (run.queued_ms, run.number), reverse=True)
        return newest_first[:limit] if limit > 0 else newest_first


def mark_interrupted(run: RunRecord, ended_ms: int) -> None:
    run.state, run.ended_ms = RUN_STATE_ERROR, ended_ms
    run.error_reason, run.error_message = BROKER_RESTARTED, RESTARTED_MESSAGE


def duration_ms(run: RunRecord) -> int:
    """How long a run that has ended took; 0 when it never started, or the clock was set back."""
    return max(0, run.ended_ms - (run.started_ms or run.ended_ms))


def stats_of(runs: Iterable[RunRecord]) -> CompactionStats:
    """From runs, oldest first. A success does not clear the failure's time, nor the other way."""
    stats = CompactionStats()
    for run in runs:
        if run.state in _ON_THE_WAY:
            continue
        stats = stats._replace(duration_ms=duration_ms(run))
        if run.state == RUN_STATE_SUCCESS:
            removed = run.counts.removed_events
            stats = stats._replace(succeeded_ms=run.ended_ms, removed_events=removed)
        else:
            stats = stats._replace(failed_ms=run.ended_ms)
    return stats


def last_ended(runs: Sequence[RunRecord]) -> RunRecord | None:
    """Of runs, oldest first."""
    return next((run for run in reversed(runs) if run.state not in _ON_THE_WAY), None)


def failures_in_a_row(runs: Sequence[RunRecord]) -> tuple[int, int]:
    """How many of the latest runs (oldest first) failed or were cancelled, and when the last ended.

    Runs cut off by an unload or a restart of the broker are passed over.
    """
    count = ended_ms = 0
    for run in reversed(runs):
        if run.state not in (RUN_STATE_ERROR, RUN_STATE_CANCELLED):
            break
        if run.error_reason in _NOBODYS_FAULT:
            continue
        count += 1
        # Of the latest: the clock may have been set back since an earlier one.
        ended_ms = ended_ms or run.ended_ms
    return count, ended_ms

"""A compaction of one topic, from the queue to its end.

1. The topic's open segment is sealed, which gives the range. If that is empty, the run ends as a
   success without a ledger (Pulsar's compaction of an empty topic), without using the worker.
   The strategy is fixed at the start: later changes apply to the next run.
2. A new ledger id is allocated, and the run's record says RUNNING with that id.
3. The worker executes the plan and returns a manifest.
4. The commit verifies the manifest and publishes it with the run's record, in one write.

A run that fails, is cancelled or is fenced removes its ledger's files and records the reason; the
old view was never touched. Interruptions are checked between steps; while the worker is running
they take effect at once; once the manifest has arrived they are ignored.

A run always ends, after any exception: unloads, deletions and watchers wait for it. The worker call
is a separate task, which an interruption cancels: the run's own task is cancelled only by the end
of the process.

States: QUEUED -> RUNNING -> SUCCESS | ERROR | CANCELLED, and from QUEUED directly to the last two.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from copy import deepcopy

from ledgerfold.broker.compaction.commit import commit
from ledgerfold.broker.compaction.due import RunRules, is_outdated, rules_of
from ledgerfold.broker.compaction.history import (
    RESTARTED_MESSAGE,
    CompactionHistory,
    status_of_record,
)
from ledgerfold.broker.compaction.interfaces import CompactableTopic, CompactionBroker
from ledgerfold.broker.compaction.own_strategies import check_allowed
from ledgerfold.broker.compaction.progress import RunProgress
from ledgerfold.broker.compaction.run_files import RunFiles
from ledgerfold.broker.compaction.snapshot import TopicSnapshot, snapshot
from ledgerfold.broker.worker.compactor import RunPlan, may_have_pulsar_entries
from ledgerfold.storage.crash_points import reach
from ledgerfold.storage.entry import EARLIEST
from ledgerfold.storage.errors import (
    CompactionCancelled,
    CompactionFailed,
    CompactionFenced,
    DiskFailure,
    LedgerfoldError,
)
from ledgerfold.strategies.catalogue import listed, strategy_text
from ledgerfold.v1.admin_pb2 import (
    COMPACTION_PHASE_COMMIT,
    COMPACTION_STATUS_RUNNING,
    CompactionProgress,
    GetCompactionStatusResponse,
)
from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest
from ledgerfold.v1.records_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_ERROR,
    RUN_STATE_RUNNING,
    RUN_STATE_SUCCESS,
    CompactionStrategy,
    RunRecord,
)

_log = logging.getLogger(__name__)


class CompactionRun:
    """A run. At each change of its record or its progress `changed` is set and replaced."""

    def __init__(
        self,
        broker: CompactionBroker,
        topic: CompactableTopic,
        record: RunRecord,
        history: CompactionHistory,
        run_plan: RunPlan,
        files: RunFiles,
        strategy: CompactionStrategy | None = None,
    ) -> None:
        self.topic, self.record = topic, record
        self._own_strategy = strategy
        self._progress = RunProgress()
        self.changed = asyncio.Event()
        self.ended = asyncio.Event()
        # Its input, once known: trimming keeps it (broker/topics/trimming.py).
        self.snapshot: TopicSnapshot | None = None
        self._broker, self._history, self._run_plan = broker, history, run_plan
        self._files = files
        self._interruption: LedgerfoldError | None = None
        self._is_past_interruption = False
        # Set while the worker is running.
        self._working: asyncio.Task[Manifest] | None = None
        # The record that the commit writes, once that has begun.
        self._done: RunRecord | None = None

    @property
    def number(self) -> int:
        return self.record.number

    def interrupt(self, error: LedgerfoldError) -> None:
        """Makes the run end with `error` soon. No effect if it is too late."""
        if self._is_past_interruption or self._interruption is not None:
            return
        self._interruption = error
        if self._working is not None:
            self._working.cancel()

    async def abort(self, error: LedgerfoldError) -> None:
        """Ends a run that never started. No effect if it has ended."""
        if not self.ended.is_set():
            await self._end_with(error)

    async def execute(self) -> None:
        """Executes the run. Its outcome is in the record; a run's errors are not raised.

        Raises only what ends the process (CancelledError and the like): the run ends too, its
        record says so, and the next start finds its files.
        """
        try:
            try:
                await self._carry_out()
            except LedgerfoldError as error:
                await self._fail(error)
            except Exception as error:
                # NOTE: a defect ends its run, not the broker, whose other topics are unharmed.
                _log.exception("Run %d of %s: internal error", self.number, self.topic.name)
                await self._fail(CompactionFailed("broker", f"{type(error).__name__}: {error}"))
        finally:
            await self.abort(self._interruption or CompactionFenced(RESTARTED_MESSAGE))

    def status(self) -> GetCompactionStatusResponse:
        if self.ended.is_set():
            return status_of_record(self.record, self.topic.policies())
        return GetCompactionStatusResponse(
            status=COMPACTION_STATUS_RUNNING,
            run=self.record,
            progress=self._progress.shown(self._broker.clock_ms()),
            strategy=self.topic.policies().compaction_strategy,
        )

    # Steps

    async def _carry_out(self) -> None:
        self._check_interruption()
        self.record.state = RUN_STATE_RUNNING
        self.record.started_ms = self._broker.clock_ms()
        strategy = self._take_strategy()
        self._notify()
        # The policy may predate a restart with other allowed strategies.
        await check_allowed(self._broker, strategy)
        self._check_interruption()
        runs = self._history.oldest_first(self.topic.name)
        again = is_outdated(self.topic.record, runs, rules_of(self.topic, strategy))
        taken = self.snapshot = await snapshot(self.topic, again=again)
        reach("run.sealed")
        self._check_interruption()
        if taken is None:
            await self._succeed_without_ledger()
            return
        await self._take_ledger(taken)
        self._check_interruption()
        plan = self._plan(taken)
        reach("run.planned")
        manifest = await self._run_in_worker(plan)
        self._is_past_interruption = True
        reach("run.manifest-received")
        await self._commit(plan, manifest, taken)

    def _take_strategy(self) -> CompactionStrategy:
        """Fixes the strategy; later changes apply to the next run."""
        strategy = self._own_strategy or self.topic.policies().compaction_strategy
        record = self.record
        record.strategy = strategy.name
        record.strategy_settings.clear()
        record.strategy_settings.update(strategy.settings)
        _log.info(
            "Compacting %s, run %d, by %s", record.topic, record.number, strategy_text(strategy)
        )
        return strategy

    def _check_interruption(self) -> None:
        if self._interruption is not None:
            raise self._interruption

    async def _succeed_without_ledger(self) -> None:
        self._is_past_interruption = True
        done = self._succeeded()
        await self._history.save(done)
        self._end(done)

    async def _take_ledger(self, snapshot: TopicSnapshot) -> None:
        """Records which ledger the run writes, and which it replaces."""
        record = self.record
        record.ledger_id = await self._broker.in_thread(self._broker.metadata.allocate_ledger_id)
        record.previous_ledger_id = snapshot.previous_ledger_id
        record.horizon.ledger_id, record.horizon.entry_id = snapshot.horizon
        record.retain_null_key = self.topic.policies().retain_null_key
        record.plan_time_ms = self._broker.clock_ms()
        record.unsized_empties_survive = self.topic.emulation().unsized_empties_survive
        if snapshot.floor > EARLIEST:
            floor = record.retention_floor
            floor.ledger_id, floor.entry_id = snapshot.floor
        await self._history.save(record)

    def _plan(self, snapshot: TopicSnapshot) -> CompactionPlan:
        record, store = self.record, self._broker.store
        known = listed(record.strategy)
        plan = CompactionPlan(
            # Brokers that share a worker may have topics of the same names.
            run_id=f"{self.topic.name}#{record.number}#{uuid.uuid4().hex}",
            topic=self.topic.name,
            strategy=record.strategy,
            strategy_version=known.version if known else 0,
            strategy_settings=record.strategy_settings,
            time_ms=record.plan_time_ms,
            renumber_batches=self.topic.emulation().strategic_renumbers,
            retain_null_key=record.retain_null_key,
            ledgers_dir=str(store.ledgers_dir),
            segments=snapshot.segments,
            compacted_segments=snapshot.compacted_segments,
            ledger_id=record.ledger_id,
            horizon=record.horizon,
            segment_bytes_max=self._broker.settings.store.segment_bytes_max,
            keeps_segments=self._continues_previous(),
            segment_garbage_max=self._broker.settings.segment_garbage_max,
            unsized_empties_survive=record.unsized_empties_survive,
            has_pulsar_entries=may_have_pulsar_entries(self._broker.metadata),
        )
        if record.HasField("retention_floor"):
            plan.retention_floor.CopyFrom(record.retention_floor)
        if snapshot.raw_after > EARLIEST:
            before = plan.horizon_previous
            before.ledger_id, before.entry_id = snapshot.raw_after
        return plan

    def _continues_previous(self) -> bool:
        """Returns whether the run that wrote the view had the same rules and code as this one."""
        number, record = self.topic.record.compacted.run_number, self.record
        previous = [
            each for each in self._history.oldest_first(self.topic.name) if each.number == number
        ]
        known = listed(record.strategy)
        rules = RunRules(
            CompactionStrategy(name=record.strategy, settings=record.strategy_settings),
            record.retain_null_key,
            record.unsized_empties_survive,
        )
        return (
            known is not None
            and bool(previous)
            and previous[0].strategy_version == str(known.version)
            and rules.were_of(previous[0])
        )

    async def _run_in_worker(self, plan: CompactionPlan) -> Manifest:
        self._working = asyncio.create_task(self._run_plan(plan, self._on_progress))
        try:
            await asyncio.wait({self._working})
            return self._result_of(self._working)
        finally:
            # No effect if it is done; otherwise the process is ending.
            self._working.cancel()
            self._working = None

    def _result_of(self, working: asyncio.Task[Manifest]) -> Manifest:
        """Raises the interruption, if there was one, regardless of the worker's result."""
        if working.cancelled():
            raise self._interruption or CompactionFailed("worker", "the call was cancelled")
        error = working.exception()
        if self._interruption is not None:
            raise self._interruption from error
        if error is not None:
            raise error
        return working.result()

    def _on_progress(self, progress: CompactionProgress) -> None:
        self._progress.report(progress, self._broker.clock_ms())
        self._notify()

    async def _commit(
        self, plan: CompactionPlan, manifest: Manifest, snapshot: TopicSnapshot
    ) -> None:
        self._on_progress(CompactionProgress(phase=COMPACTION_PHASE_COMMIT))
        identity = (manifest.run_id, manifest.ledger_id, manifest.horizon)
        if identity != (plan.run_id, plan.ledger_id, plan.horizon):
            raise CompactionFailed("manifest", "it belongs to another run")
        done = self._done = self._succeeded(manifest)
        raw = snapshot.segments[snapshot.compacted_segments :]
        done.counts.bytes_new = sum(segment.size_bytes for segment in raw)
        try:
            await commit(self.topic, done, manifest, snapshot)
        except Exception:
            if not self._is_published():
                raise
            _log.exception(
                "Run %d of %s failed after its publication", self.number, self.topic.name
            )
        self._end(done)

    def _succeeded(self, manifest: Manifest | None = None) -> RunRecord:
        done = deepcopy(self.record)
        done.state, done.ended_ms = RUN_STATE_SUCCESS, self._broker.clock_ms()
        if manifest is not None:
            done.counts.CopyFrom(manifest.counts)
            done.strategy_version = manifest.strategy_version
            done.engine = manifest.engine
        return done

    def _is_published(self) -> bool:
        return self._broker.metadata.ledger(self.record.ledger_id) is not None

    # The end

    async def _fail(self, error: LedgerfoldError) -> None:
        keeps_files = self._may_be_published(error)
        self._is_past_interruption = True
        if self.record.ledger_id >= 0 and not keeps_files:
            await self._files.remove(self.record.ledger_id)
        await self._end_with(error)

    def _may_be_published(self, error: LedgerfoldError) -> bool:
        """Returns whether the metadata may name the files.

        If they do not, the next start removes them like every unreferenced ledger.
        """
        if self._done is None:
            return False
        # NOTE: a metadata write whose sync failed may yet prove durable.
        if isinstance(error, DiskFailure) and error.may_be_durable:
            return True
        try:
            return self._is_published()
        except Exception:
            _log.exception("Run %d of %s may be stored: files stay", self.number, self.topic.name)
            return True

    async def _end_with(self, error: LedgerfoldError) -> None:
        """Ends a run that did not succeed. Raises nothing."""
        ended = deepcopy(self.record)
        is_cancelled = isinstance(error, CompactionCancelled)
        ended.state = RUN_STATE_CANCELLED if is_cancelled else RUN_STATE_ERROR
        ended.error_reason, ended.error_message = error.reason, error.message
        try:
            ended.ended_ms = self._broker.clock_ms()
            if self._done is not None and self._is_published():
                # The process is ending between the commit's write and its return.
                ended = self._done
            else:
                await self._history.save(ended)
        except Exception as failure:
            _log.error("Run %d of %s: end not recorded: %s", self.number, self.topic.name, failure)
        finally:
            self._end(ended)

    def _end(self, record: RunRecord) -> None:
        self.record = record
        self._is_past_interruption = True
        self.ended.set()
        self._notify()
        _log_end(record)

    def _notify(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


def _log_end(record: RunRecord) -> None:
    took_ms = record.ended_ms - (record.started_ms or record.ended_ms)
    if record.state == RUN_STATE_SUCCESS:
        _log.info(
            "Compacted %s, run %d: %d of %d messages kept, %d keys, %d ms, ledger %d, "
            "by %s, version %s%s",
            record.topic,
            record.number,
            record.counts.messages_out,
            record.counts.messages_in,
            record.counts.keys,
            took_ms,
            record.ledger_id,
            record.strategy,
            record.strategy_version,
            record.engine and f", {record.engine}",
        )
    else:
        _log.warning(
            "Compaction run %d of %s ended after %d ms (%s): %s",
            record.number,
            record.topic,
            took_ms,
            record.error_reason,
            record.error_message,
        )

"""One compaction of one topic, from its place in the queue to its end.

1. The topic seals its open segment and says what is in range. Nothing: the run ends as a success
   without a ledger (Pulsar's compaction of an empty topic), and no worker is asked.
   From its start on it has its strategy: what is set later is the next run's.
2. A new ledger id is taken, and the run's record says RUNNING with that id.
3. The worker carries out the plan and answers with a manifest.
4. The topic verifies the manifest and publishes it, the run's record along with it, in one write.

A run that fails, is cancelled or is fenced removes its ledger's files, and its record says why; the
old view was never touched. Between steps an interruption is looked for; while the worker is at it,
it takes effect at once; from the manifest on it comes too late.

A run always ends, whatever is raised and wherever: unloads, deletions and watchers wait for it. The
worker is asked in a task of its own, which is what an interruption cancels: the run's own task is
never cancelled but by the end of the whole process.

States: QUEUED -> RUNNING -> SUCCESS | ERROR | CANCELLED, and from QUEUED straight to the last two.
"""

from __future__ import annotations

import asyncio
import logging
import uuid

from ledgerfold.broker.compaction.due import is_outdated
from ledgerfold.broker.compaction.history import RESTARTED_MESSAGE, CompactionHistory
from ledgerfold.broker.compaction.interfaces import (
    CompactableTopic,
    CompactionBroker,
    CompactionSnapshot,
    Compactor,
)
from ledgerfold.broker.compaction.own_strategies import check_allowed
from ledgerfold.broker.compaction.run_files import RunFiles
from ledgerfold.storage.crash_points import reach
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import (
    CompactionCancelled,
    CompactionFailed,
    CompactionFenced,
    DiskFailure,
    LedgerfoldError,
)
from ledgerfold.strategies.catalogue import listed, told
from ledgerfold.v1.admin_pb2 import (
    COMPACTION_PHASE_COMMIT,
    COMPACTION_PHASE_QUEUED,
    CompactionProgress,
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
from ledgerfold.v1.records_pb2 import Position as PositionRecord

_log = logging.getLogger(__name__)


class CompactionRun:
    """`record` and `progress` are live; at each change `changed` is set and replaced."""

    def __init__(
        self,
        broker: CompactionBroker,
        topic: CompactableTopic,
        record: RunRecord,
        history: CompactionHistory,
        compactor: Compactor,
        files: RunFiles,
        strategy: CompactionStrategy | None = None,
    ) -> None:
        self.topic, self.record = topic, record
        self._own_strategy = strategy
        self.progress = CompactionProgress(phase=COMPACTION_PHASE_QUEUED)
        self.changed = asyncio.Event()
        self.ended = asyncio.Event()
        # What it reads, once it knows: trimming leaves that to it (broker/topics/trimming.py).
        self.snapshot: CompactionSnapshot | None = None
        self._broker, self._history, self._compactor = broker, history, compactor
        self._files = files
        self._interruption: LedgerfoldError | None = None
        self._is_past_interruption = False
        # Set while the worker is at it.
        self._working: asyncio.Task[Manifest] | None = None
        # What the record becomes by the commit, once that has begun.
        self._done: RunRecord | None = None

    @property
    def number(self) -> int:
        return self.record.number

    def interrupt(self, error: LedgerfoldError) -> None:
        """Makes the run end with `error`, soon. Without effect when it comes too late."""
        if self._is_past_interruption or self._interruption is not None:
            return
        self._interruption = error
        if self._working is not None:
            self._working.cancel()

    async def abort(self, error: LedgerfoldError) -> None:
        """Ends a run that never started. Without effect on one that has ended."""
        if not self.ended.is_set():
            await self._end_with(error)

    async def execute(self) -> None:
        """Carries the run out. Its outcome is in the record; no error of a run comes out of here.

        What does is the end of the process (CancelledError and the like), which the run does not
        outlive either: its record says so, and the next start finds its files.
        """
        try:
            try:
                await self._carry_out()
            except LedgerfoldError as error:
                await self._fail(error)
            except Exception as error:
                # NOTE: a defect ends its run, not the broker, whose other topics are unharmed.
                _log.exception("Compaction run %d of %s", self.number, self.topic.name)
                await self._fail(CompactionFailed("broker", f"{type(error).__name__}: {error}"))
        finally:
            await self.abort(self._interruption or CompactionFenced(RESTARTED_MESSAGE))

    # The steps

    async def _carry_out(self) -> None:
        self._check_interruption()
        self.record.state = RUN_STATE_RUNNING
        self.record.started_ms = self._broker.clock_ms()
        strategy = self._take_strategy()
        self._notify()
        # A policy may be of a time when the broker was told something else at its start.
        await check_allowed(self._broker, strategy)
        self._check_interruption()
        runs = self._history.oldest_first(self.topic.name)
        again = is_outdated(self.topic.record, runs, strategy)
        snapshot = self.snapshot = await self.topic.snapshot_for_compaction(again=again)
        reach("run.sealed")
        self._check_interruption()
        if snapshot is None:
            await self._succeed_without_ledger()
            return
        await self._take_ledger(snapshot)
        self._check_interruption()
        plan = self._plan(snapshot)
        reach("run.planned")
        manifest = await self._run_in_worker(plan)
        self._is_past_interruption = True
        reach("run.manifest-received")
        await self._commit(plan, manifest, snapshot)

    def _take_strategy(self) -> CompactionStrategy:
        """What is set from now on is the next run's."""
        strategy = self._own_strategy or self.topic.policies().compaction_strategy
        record = self.record
        record.strategy = strategy.name
        record.strategy_settings.clear()
        record.strategy_settings.update(strategy.settings)
        _log.info("Compacting %s, run %d, by %s", record.topic, record.number, told(strategy))
        return strategy

    def _check_interruption(self) -> None:
        if self._interruption is not None:
            raise self._interruption

    async def _succeed_without_ledger(self) -> None:
        self._is_past_interruption = True
        done = self._succeeded()
        await self._history.save(done)
        self._end(done)

    async def _take_ledger(self, snapshot: CompactionSnapshot) -> None:
        """From now on the record says which ledger the run writes, and what it replaces."""
        record = self.record
        record.ledger_id = await self._new_ledger_id()
        record.previous_ledger_id = snapshot.previous_ledger_id
        record.horizon.CopyFrom(_position(snapshot.horizon))
        record.retain_null_key = self.topic.policies().retain_null_key
        record.plan_time_ms = self._broker.clock_ms()
        if snapshot.floor > EARLIEST:
            record.retention_floor.CopyFrom(_position(snapshot.floor))
        await self._history.save(record)

    def _plan(self, snapshot: CompactionSnapshot) -> CompactionPlan:
        record, store = self.record, self._broker.store
        known = listed(record.strategy)
        plan = CompactionPlan(
            # Brokers that share a worker have topics of the same names.
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
        )
        if record.HasField("retention_floor"):
            plan.retention_floor.CopyFrom(record.retention_floor)
        if snapshot.raw_after > EARLIEST:
            plan.horizon_previous.CopyFrom(_position(snapshot.raw_after))
        return plan

    async def _new_ledger_id(self) -> int:
        loop, allocate = asyncio.get_running_loop(), self._broker.metadata.allocate_ledger_id
        return await loop.run_in_executor(self._broker.executor, allocate)

    async def _run_in_worker(self, plan: CompactionPlan) -> Manifest:
        self._working = asyncio.create_task(self._compactor.run(plan, self._on_progress))
        try:
            await asyncio.wait({self._working})
            return self._result_of(self._working)
        finally:
            # Without effect when it is done; else the process is ending.
            self._working.cancel()
            self._working = None

    def _result_of(self, working: asyncio.Task[Manifest]) -> Manifest:
        """Raises the interruption, if there was one, whatever the worker made of it."""
        if working.cancelled():
            raise self._interruption or CompactionFailed("worker", "the call was cancelled")
        error = working.exception()
        if self._interruption is not None:
            raise self._interruption from error
        if error is not None:
            raise error
        return working.result()

    def _on_progress(self, progress: CompactionProgress) -> None:
        self.progress = progress
        self._notify()

    async def _commit(
        self, plan: CompactionPlan, manifest: Manifest, snapshot: CompactionSnapshot
    ) -> None:
        self._on_progress(CompactionProgress(phase=COMPACTION_PHASE_COMMIT))
        given = (manifest.run_id, manifest.ledger_id, manifest.horizon)
        if given != (plan.run_id, plan.ledger_id, plan.horizon):
            raise CompactionFailed("manifest", "it is another run's")
        done = self._done = self._succeeded(manifest)
        try:
            await self.topic.commit_compaction(done, manifest, snapshot)
        except Exception:
            if not self._is_published():
                raise
            _log.exception("Run %d of %s is published, but", self.number, self.topic.name)
        self._end(done)

    def _succeeded(self, manifest: Manifest | None = None) -> RunRecord:
        done = RunRecord()
        done.CopyFrom(self.record)
        done.state, done.ended_ms = RUN_STATE_SUCCESS, self._broker.clock_ms()
        if manifest is not None:
            done.counts.CopyFrom(manifest.counts)
            done.strategy_version = manifest.strategy_version
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
        """Whether the metadata may name the files. If they do not, the next start removes them, as
        it does with every ledger that no record names."""
        if self._done is None:
            return False
        # NOTE: a metadata write whose sync failed may yet prove durable.
        if isinstance(error, DiskFailure) and error.may_be_durable:
            return True
        try:
            return self._is_published()
        except Exception:
            _log.exception("Whether run %d of %s is published", self.number, self.topic.name)
            return True

    async def _end_with(self, error: LedgerfoldError) -> None:
        """The last step of a run that did not succeed. No error comes out of it."""
        ended = RunRecord()
        ended.CopyFrom(self.record)
        is_cancelled = isinstance(error, CompactionCancelled)
        ended.state = RUN_STATE_CANCELLED if is_cancelled else RUN_STATE_ERROR
        ended.error_reason, ended.error_message = error.reason, error.message
        try:
            ended.ended_ms = self._broker.clock_ms()
            if self._done is not None and self._is_published():
                # The process ends between the commit's write and its return.
                ended = self._done
            else:
                await self._history.save(ended)
        except Exception as failure:
            _log.error("The end of run %d of %s: %s", self.number, self.topic.name, failure)
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


def _position(position: Position) -> PositionRecord:
    return PositionRecord(ledger_id=position.ledger_id, entry_id=position.entry_id)


def _log_end(record: RunRecord) -> None:
    took_ms = record.ended_ms - (record.started_ms or record.ended_ms)
    if record.state == RUN_STATE_SUCCESS:
        _log.info(
            "Compacted %s, run %d: %d of %d messages kept, %d keys, %d ms, ledger %d, "
            "by %s, version %s",
            record.topic,
            record.number,
            record.counts.messages_out,
            record.counts.messages_in,
            record.counts.keys,
            took_ms,
            record.ledger_id,
            record.strategy,
            record.strategy_version,
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

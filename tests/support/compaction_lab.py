"""A broker without files, Spark or network, for tests of compaction control.

>>> from ledgerfold.v1.records_pb2 import RUN_STATE_SUCCESS, RUN_TRIGGER_ADMIN
>>> async def example() -> bool:
...     lab = Lab()
...     topic = lab.topic("t", backlog_bytes=100)
...     number = await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
...     await lab.compactor.started()  # the run is in the worker, and waits there
...     lab.compactor.finish()  # or .fail(error)
...     await lab.ended(topic)
...     return lab.run_of(topic, number).state == RUN_STATE_SUCCESS
>>> asyncio.run(example())
True
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ledgerfold.broker.common.names import TopicName
from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.compaction.interfaces import CompactionSnapshot
from ledgerfold.broker.compaction.scheduler import CompactionScheduler
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.broker.policies.effective import broker_policies, effective_policies
from ledgerfold.broker.policies.profiles import Emulation, emulation
from ledgerfold.broker.topics.partitions import Partitions
from ledgerfold.broker.worker.compactor import OnProgress
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.metadata import MetadataBatch, MetadataStore
from ledgerfold.v1.admin_pb2 import CompactionProgress
from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest
from ledgerfold.v1.records_pb2 import (
    CompactedView,
    LedgerRecord,
    Policies,
    RunCounts,
    RunRecord,
    TopicRecord,
)
from ledgerfold.v1.records_pb2 import Position as PositionRecord
from tests.support.inline_executor import InlineExecutor

FIRST_LEDGER_ID = 100


class FailingPairs(MemoryKeyValue):
    """What the metadata are kept in. `failure`: what a write raises."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: Exception | None = None

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        if self.failure is not None:
            raise self.failure
        super().write(puts, deletes)


def _metadata(pairs: FailingPairs) -> MetadataStore:
    """The next ledger id is FIRST_LEDGER_ID, and needs no write."""
    metadata = MetadataStore(pairs)
    metadata.skip_ledger_ids(FIRST_LEDGER_ID - 2)
    assert metadata.allocate_ledger_id() == FIRST_LEDGER_ID - 1
    return metadata


class FakeStore:
    """Remembers whose files were removed. `failure`: what a removal raises."""

    def __init__(self) -> None:
        self.ledgers_dir = Path("/ledgers")
        self.removed: list[int] = []
        self.failure: BaseException | None = None

    def damage_of(self, ledger_id: int) -> None:
        """There is none."""

    def record(self, ledger_id: int) -> LedgerRecord:
        return LedgerRecord(ledger_id=ledger_id)

    def delete_files(self, ledger_id: int) -> None:
        if self.failure is not None:
            raise self.failure
        self.removed.append(ledger_id)


@dataclass(frozen=True)
class FakeSnapshot:
    horizon: Position
    horizon_previous: Position | None = None
    previous_ledger_id: int = -1
    segments: tuple[()] = ()
    compacted_segments: int = 0
    raw_after: Position = EARLIEST
    floor: Position = EARLIEST
    epoch: int = 1


@dataclass
class CountedLog:
    """`entries`: how many lie in ledger 1."""

    entries: int = 0
    horizon: Position | None = None
    has_damage: bool = False

    def check_compacted(self) -> None:
        """It is whole."""

    def has_ledger(self, ledger_id: int) -> bool:
        return True

    def last_position(self) -> Position:
        return Position(1, self.entries - 1)

    def last_published(self) -> Position:
        return self.last_position()

    def entries_between(self, after: Position, through: Position) -> int:
        return max(0, through.entry_id - max(after.entry_id, -1)) if after < through else 0


@dataclass
class LabTopic:
    lab: Lab
    stored: StoredTopic
    log: CountedLog
    backlog_bytes: int
    commit_failure: BaseException | None = None
    snapshot_failure: BaseException | None = None
    # Called between the batch and the return of a commit.
    after_commit: Callable[[], None] = lambda: None
    epoch: int = 1
    last_run_before_load: int = 0

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def record(self) -> TopicRecord:
        return self.stored.record

    def own_policies(self) -> Policies:
        return self.lab.partitions.policies_of(self.record)

    def policies(self) -> Policies:
        namespace = self.lab.metadata.namespace(TopicName.parse(self.name).namespace)
        own = Policies() if namespace is None else namespace.policies
        return effective_policies(self.own_policies(), own, broker_policies(self.lab.settings))

    def emulation(self) -> Emulation:
        namespace = self.lab.metadata.namespace(TopicName.parse(self.name).namespace)
        own = Policies() if namespace is None else namespace.policies
        return emulation(own.emulation, self.own_policies().emulation)

    def compaction_backlog_bytes(self) -> int:
        return self.backlog_bytes

    async def enable_compaction_cursor(self) -> None:
        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            record.compaction_cursor = True

        await self.stored.change(edit)

    async def snapshot_for_compaction(self, *, again: bool = False) -> FakeSnapshot | None:
        await asyncio.sleep(0)
        if self.snapshot_failure is not None:
            raise self.snapshot_failure
        last = self.log.last_position()
        if last.entry_id < 0 or (last == self.log.horizon and not again):
            return None
        horizon, ledger_id = self.log.horizon, self.record.compacted.ledger_id or -1
        return FakeSnapshot(last, horizon, ledger_id, raw_after=horizon or EARLIEST)

    async def commit_compaction(
        self, run: RunRecord, manifest: Manifest, snapshot: CompactionSnapshot
    ) -> None:
        await asyncio.sleep(0)
        if self.commit_failure is not None:
            raise self.commit_failure

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            view = CompactedView(
                ledger_id=manifest.ledger_id, horizon=manifest.horizon, run_number=run.number
            )
            record.compacted.CopyFrom(view)
            batch.put_ledger(LedgerRecord(ledger_id=manifest.ledger_id))
            batch.put_run(run)

        await self.stored.change(edit)
        self.log.horizon = Position(manifest.horizon.ledger_id, manifest.horizon.entry_id)
        self.backlog_bytes = 0
        self.after_commit()


class HeldCompactor:
    """A worker whose runs wait until the test lets them go. Plans are kept in order."""

    def __init__(self) -> None:
        self.is_disabled = False
        self.retries = 0
        self.plans: list[CompactionPlan] = []
        self.cancelled: list[str] = []
        self._on_progress: OnProgress | None = None
        self._outcome: asyncio.Future[Manifest] | None = None
        self._arrivals: asyncio.Queue[CompactionPlan] = asyncio.Queue()

    def retry_now(self) -> None:
        self.retries += 1

    async def run(self, plan: CompactionPlan, on_progress: OnProgress) -> Manifest:
        assert self._outcome is None, "two runs at once"
        self.plans.append(plan)
        self._on_progress = on_progress
        self._outcome = asyncio.get_running_loop().create_future()
        self._arrivals.put_nowait(plan)
        try:
            return await self._outcome
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            self.cancelled.append(plan.run_id)
            raise
        finally:
            self._outcome = None

    async def started(self) -> CompactionPlan:
        """The next plan that arrived."""
        async with asyncio.timeout(5):
            return await self._arrivals.get()

    def progress(self, **fields: Any) -> None:
        assert self._on_progress is not None
        self._on_progress(CompactionProgress(**fields))

    def finish(self, removed_events: int = 0) -> None:
        plan = self.plans[-1]
        self.answer(
            Manifest(
                run_id=plan.run_id,
                ledger_id=plan.ledger_id,
                horizon=plan.horizon,
                counts=RunCounts(removed_events=removed_events, messages_out=1),
            )
        )

    def answer(self, manifest: Manifest) -> None:
        assert self._outcome is not None
        self._outcome.set_result(manifest)

    def fail(self, error: BaseException) -> None:
        assert self._outcome is not None
        self._outcome.set_exception(error)


@dataclass
class Lab:
    """Everything together. `now_ms` is the clock; `settings` may be replaced before `scheduler`."""

    settings: BrokerSettings = field(
        default_factory=lambda: BrokerSettings(data_dir=Path("unused"), compaction_queue_max=3)
    )
    pairs: FailingPairs = field(default_factory=FailingPairs)
    metadata: MetadataStore = field(init=False)
    store: Any = field(default_factory=FakeStore)
    compactor: HeldCompactor = field(default_factory=HeldCompactor)
    topics: dict[str, LabTopic] = field(default_factory=dict)
    executor: Executor = field(default_factory=InlineExecutor)
    now_ms: int = 1_000_000
    _scheduler: CompactionScheduler | None = None

    def __post_init__(self) -> None:
        self.metadata = _metadata(self.pairs)

    def clock_ms(self) -> int:
        self.now_ms += 1
        return self.now_ms

    @property
    def partitions(self) -> Partitions:
        return Partitions(self.metadata, lambda: self.executor, self.clock_ms)

    @property
    def scheduler(self) -> CompactionScheduler:
        if self._scheduler is None:
            self._scheduler = CompactionScheduler(self, self.compactor, sleep=_never)
        return self._scheduler

    def topic(
        self, name: str, *, entries: int = 5, backlog_bytes: int = 100, **policies: Any
    ) -> LabTopic:
        full = str(TopicName.parse(name))
        record = TopicRecord(name=full, policies=Policies(**policies))
        with self.metadata.batch() as batch:
            batch.put_topic(record)
        stored = StoredTopic(record, self.metadata, self.executor)
        self.topics[full] = LabTopic(self, stored, CountedLog(entries), backlog_bytes)
        return self.topics[full]

    async def ended(self, topic: LabTopic) -> None:
        """Until the topic has no run on its way."""
        async with asyncio.timeout(5):
            async for _ in self.scheduler.watch(topic):
                pass

    def topic_record(self, topic: LabTopic) -> TopicRecord:
        """As it is in the metadata."""
        record = self.metadata.topic(topic.name)
        assert record is not None
        return record

    def run_of(self, topic: LabTopic, number: int) -> RunRecord:
        """As it is in the metadata."""
        return next(run for run in self.metadata.runs(topic.name) if run.number == number)


def position(ledger_id: int, entry_id: int) -> PositionRecord:
    return PositionRecord(ledger_id=ledger_id, entry_id=entry_id)


async def _never(seconds: float) -> None:
    await asyncio.Event().wait()

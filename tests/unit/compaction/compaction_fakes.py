"""A broker without files, Spark or network, for tests of compaction control.

lab = Lab()
topic = lab.topic("t", backlog_bytes=100)
await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
await lab.compactor.started()           # the run is in the worker, and waits there
lab.compactor.finish()                  # or .fail(error)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ledgerfold.broker.compaction.interfaces import CompactionSnapshot, OnProgress
from ledgerfold.broker.compaction.scheduler import CompactionScheduler
from ledgerfold.broker.ground.names import TopicName
from ledgerfold.broker.ground.settings import BrokerSettings
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.broker.policies.effective import broker_policies, effective_policies
from ledgerfold.broker.policies.profiles import Emulation, emulation
from ledgerfold.broker.topics.partitions import Partitions
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.admin_pb2 import CompactionProgress
from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest
from ledgerfold.v1.records_pb2 import (
    CompactedView,
    CursorRecord,
    LedgerRecord,
    NamespaceRecord,
    PartitionedTopicRecord,
    Policies,
    RunCounts,
    RunRecord,
    TopicRecord,
)
from ledgerfold.v1.records_pb2 import Position as PositionRecord
from tests.support.inline_executor import InlineExecutor

FIRST_LEDGER_ID = 100


class FakeBatch:
    """Collects; FakeMetadata applies it on a clean exit."""

    def __init__(self, metadata: FakeMetadata) -> None:
        self.metadata = metadata
        self.steps: list[Callable[[], object]] = []

    def put_topic(self, record: TopicRecord) -> None:
        self._put(self.metadata.topics_by_name, record.name, record)

    def put_partitioned_topic(self, record: PartitionedTopicRecord) -> None:
        self._put(self.metadata.partitioned, record.name, record)

    def put_namespace(self, record: NamespaceRecord) -> None:
        self._put(self.metadata.namespaces, record.name, record)

    def put_ledger(self, record: LedgerRecord) -> None:
        self._put(self.metadata.ledgers_by_id, record.ledger_id, record)

    def put_run(self, record: RunRecord) -> None:
        self._put(self.metadata.runs_by_key, (record.topic, record.number), record)

    def delete_run(self, topic: str, number: int) -> None:
        self.steps.append(lambda: self.metadata.runs_by_key.pop((topic, number), None))

    def _put(self, table: dict[Any, Any], key: object, record: Any) -> None:
        copy = type(record).FromString(record.SerializeToString())
        self.steps.append(lambda: table.__setitem__(key, copy))


class FakeMetadata:
    """Records by key, as copies; a batch is all or nothing. `failure`: what a write raises."""

    def __init__(self) -> None:
        self.topics_by_name: dict[str, TopicRecord] = {}
        self.partitioned: dict[str, PartitionedTopicRecord] = {}
        self.namespaces: dict[str, NamespaceRecord] = {}
        self.ledgers_by_id: dict[int, LedgerRecord] = {}
        self.runs_by_key: dict[tuple[str, int], RunRecord] = {}
        self.failure: LedgerfoldError | None = None
        self._next_ledger_id = FIRST_LEDGER_ID

    def topic(self, name: str) -> TopicRecord | None:
        return self.topics_by_name.get(name)

    def topics(self) -> list[TopicRecord]:
        return list(self.topics_by_name.values())

    def partitioned_topic(self, name: str) -> PartitionedTopicRecord | None:
        return self.partitioned.get(name)

    def cursors(self, topic: str) -> list[CursorRecord]:
        return []

    def namespace(self, name: str) -> NamespaceRecord | None:
        return self.namespaces.get(name)

    def ledger(self, ledger_id: int) -> LedgerRecord | None:
        return self.ledgers_by_id.get(ledger_id)

    def runs(self, topic: str | None) -> list[RunRecord]:
        keys = sorted(key for key in self.runs_by_key if topic in (None, key[0]))
        return [self.runs_by_key[key] for key in keys]

    def allocate_ledger_id(self) -> int:
        self._next_ledger_id += 1
        return self._next_ledger_id - 1

    @contextmanager
    def batch(self) -> Iterator[FakeBatch]:
        batch = self.begin()
        yield batch
        self.write(batch)

    def begin(self) -> FakeBatch:
        return FakeBatch(self)

    def write(self, batch: FakeBatch) -> None:
        if self.failure is not None:
            raise self.failure
        for step in batch.steps:
            step()


class FakeStore:
    """Remembers whose files were removed. `failure`: what a removal raises."""

    def __init__(self) -> None:
        self.ledgers_dir = Path("/ledgers")
        self.removed: list[int] = []
        self.failure: BaseException | None = None

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


@dataclass
class FakeLog:
    """`entries`: how many lie in ledger 1."""

    entries: int = 0
    horizon: Position | None = None
    has_damage: bool = False

    def check_compacted(self) -> None:
        """It is whole."""

    def last_position(self) -> Position:
        return Position(1, self.entries - 1)

    def last_published(self) -> Position:
        return self.last_position()

    def entries_between(self, after: Position, upto: Position) -> int:
        return max(0, upto.entry_id - max(after.entry_id, -1)) if after < upto else 0


@dataclass
class FakeTopic:
    lab: Lab
    stored: StoredTopic
    log: FakeLog
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

    async def snapshot_for_compaction(self) -> FakeSnapshot | None:
        await asyncio.sleep(0)
        if self.snapshot_failure is not None:
            raise self.snapshot_failure
        last = self.log.last_position()
        if last.entry_id < 0 or last == self.log.horizon:
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
            view = CompactedView(ledger_id=manifest.ledger_id, horizon=manifest.horizon)
            record.compacted.CopyFrom(view)
            batch.put_ledger(LedgerRecord(ledger_id=manifest.ledger_id))
            batch.put_run(run)

        await self.stored.change(edit)
        self.log.horizon = Position(manifest.horizon.ledger_id, manifest.horizon.entry_id)
        self.backlog_bytes = 0
        self.after_commit()


class FakeCompactor:
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
    metadata: Any = field(default_factory=FakeMetadata)
    store: Any = field(default_factory=FakeStore)
    compactor: FakeCompactor = field(default_factory=FakeCompactor)
    topics: dict[str, FakeTopic] = field(default_factory=dict)
    executor: Executor = field(default_factory=InlineExecutor)
    now_ms: int = 1_000_000
    _scheduler: CompactionScheduler | None = None

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
    ) -> FakeTopic:
        full = str(TopicName.parse(name))
        record = TopicRecord(name=full, policies=Policies(**policies))
        self.metadata.topics_by_name[full] = TopicRecord.FromString(record.SerializeToString())
        stored = StoredTopic(record, self.metadata, self.executor)
        self.topics[full] = FakeTopic(self, stored, FakeLog(entries), backlog_bytes)
        return self.topics[full]

    async def ended(self, topic: FakeTopic) -> None:
        """Until the topic has no run on its way."""
        async with asyncio.timeout(5):
            async for _ in self.scheduler.watch(topic):
                pass

    def run_of(self, topic: FakeTopic, number: int) -> RunRecord:
        """As it is in the metadata."""
        record: RunRecord = self.metadata.runs_by_key[topic.name, number]
        return record


def position(ledger_id: int, entry_id: int) -> PositionRecord:
    return PositionRecord(ledger_id=ledger_id, entry_id=entry_id)


async def _never(seconds: float) -> None:
    await asyncio.Event().wait()

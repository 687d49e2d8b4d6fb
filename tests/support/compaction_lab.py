"""A broker without files, Spark or network, for tests of the compaction's control.

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
from typing import Any, cast

from ledgerfold.broker.common.names import TopicName
from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.compaction.scheduler import CompactionScheduler
from ledgerfold.broker.log.record_writes import RecordWrites
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.broker.log.view import View
from ledgerfold.broker.policies.effective import PolicyLevels
from ledgerfold.broker.policies.profiles import Emulation
from ledgerfold.broker.subscriptions.delivery import DeliveryRules
from ledgerfold.broker.topics.partitions import Partitions
from ledgerfold.broker.worker.compactor import OnProgress
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.files import Files
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.metadata import MetadataBatch, MetadataStore
from ledgerfold.v1.admin_pb2 import CompactionProgress
from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest
from ledgerfold.v1.records_pb2 import (
    LedgerRecord,
    Policies,
    RunCounts,
    RunRecord,
    SegmentRecord,
    TopicRecord,
)
from ledgerfold.v1.records_pb2 import Position as PositionRecord
from tests.support.inline_executor import InlineExecutor
from tests.support.waiting import WAIT_S

FIRST_LEDGER_ID = 100


class FailingPairs(MemoryKeyValue):
    """A metadata store whose writes can fail. `failure`: the error that a write raises."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: Exception | None = None

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        if self.failure is not None:
            raise self.failure
        super().write(puts, deletes)


def _metadata(pairs: FailingPairs) -> MetadataStore:
    """The next ledger id is FIRST_LEDGER_ID and needs no write."""
    metadata = MetadataStore(pairs)
    metadata.skip_ledger_ids(FIRST_LEDGER_ID - 2)
    assert metadata.allocate_ledger_id() == FIRST_LEDGER_ID - 1
    return metadata


class FakeStore:
    """Records whose files were removed. Errors that a removal or a verification raises."""

    def __init__(self) -> None:
        self.ledgers_dir = Path("/ledgers")
        self.files = Files()
        self.removed: list[int] = []
        self.failure: BaseException | None = None
        self.verify_failure: BaseException | None = None

    def verify_compacted(
        self, ledger_id: int, topic: str, segments: object, previous: object
    ) -> LedgerRecord:
        if self.verify_failure is not None:
            raise self.verify_failure
        return LedgerRecord(ledger_id=ledger_id)

    def label_compacted(self, ledger: LedgerRecord, *, run: RunRecord) -> None:
        """Does nothing."""

    def mark_deleting(self, ledger_id: int, batch: MetadataBatch) -> None:
        """Marks the files of the old view, which has no record."""

    def damage_of(self, ledger_id: int) -> None:
        """Returns no damage."""

    def record(self, ledger_id: int) -> LedgerRecord:
        return LedgerRecord(ledger_id=ledger_id)

    def delete_files(self, ledger_id: int) -> None:
        if self.failure is not None:
            raise self.failure
        self.removed.append(ledger_id)


@dataclass
class CountedLog:
    """A log with all parts that compaction uses. `entries`: the number of entries in ledger 1."""

    entries: int = 0
    horizon: Position | None = None
    ledger_id: int = -1
    has_damage: bool = False
    floor: Position = EARLIEST
    seal_failure: BaseException | None = None
    failure: None = None
    ids: tuple[int, ...] = (1,)
    topic: LabTopic = field(init=False)

    def __post_init__(self) -> None:
        self.commit = self.ledgers = self.positions = self.state = self.tail = self.views = self

    def __contains__(self, ledger_id: int) -> bool:
        return True

    @property
    def current(self) -> View:
        return View(None, self.horizon, self.ledger_id)

    def renew(self) -> View:
        previous, compacted = self.current, self.topic.record.compacted
        self.horizon = Position(compacted.horizon.ledger_id, compacted.horizon.entry_id)
        self.ledger_id, self.topic.backlog_bytes = compacted.ledger_id, 0
        return previous

    def check(self) -> None:
        """Does nothing: the view is intact."""

    def segments(self) -> list[SegmentRecord]:
        return []

    def records(self) -> list[LedgerRecord]:
        return []

    async def seal(self) -> Position | None:
        await asyncio.sleep(0)
        if self.seal_failure is not None:
            raise self.seal_failure
        return self.last() if self.entries else None

    def first(self) -> Position:
        return Position(0, 0)

    def last(self) -> Position:
        return Position(1, self.entries - 1)

    def last_published(self) -> Position:
        return self.last()

    def previous(self, position: Position) -> Position:
        return Position(position.ledger_id, position.entry_id - 1)

    def entries_between(self, after: Position, through: Position) -> int:
        return max(0, through.entry_id - max(after.entry_id, -1)) if after < through else 0


@dataclass(eq=False)
class LabTopic:
    lab: Lab
    stored: StoredTopic
    log: CountedLog
    backlog_bytes: int
    # Called between the batch and the return of the first commit.
    after_commit: Callable[[], None] = lambda: None
    last_run_before_load: int = 0
    is_loaded: bool = True
    compaction_moved_to: Position | None = None

    def __post_init__(self) -> None:
        self.log.topic = self

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def record(self) -> TopicRecord:
        return self.stored.record

    @property
    def store(self) -> Any:
        return self.lab.store

    def policies(self) -> Policies:
        return self.lab.policy_levels.in_force(self.record)

    def emulation(self) -> Emulation:
        return self.lab.policy_levels.emulation(self.record)

    @property
    def delivery_rules(self) -> DeliveryRules:
        return DeliveryRules()

    def compaction_backlog_bytes(self) -> int:
        return self.backlog_bytes

    async def enable_compaction_cursor(self) -> None:
        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            record.compaction_cursor = True

        await self.stored.change(edit)

    async def trim(self) -> int:
        self.after_commit()
        return 0

    def remove_files(self, ledger_id: int) -> None:
        """Does nothing."""


class HeldCompactor:
    """A worker whose runs wait until the test releases them. Plans are kept in order."""

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
        """Returns the next plan that arrived."""
        async with asyncio.timeout(WAIT_S):
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
                strategy_version=str(plan.strategy_version),
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
    """All parts together. `now_ms` is the clock; `settings` may be replaced before `scheduler`."""

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

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)

    @property
    def partitions(self) -> Partitions:
        return Partitions(self.metadata, lambda: self.executor, self.clock_ms)

    @property
    def policy_levels(self) -> PolicyLevels:
        return PolicyLevels(self.metadata, self.settings)

    @property
    def scheduler(self) -> CompactionScheduler:
        if self._scheduler is None:
            self._scheduler = CompactionScheduler(
                cast(Any, self), cast(Any, self.compactor), sleep=_never
            )
        return self._scheduler

    def topic(
        self, name: str, *, entries: int = 5, backlog_bytes: int = 100, **policies: Any
    ) -> Any:
        """Returns a LabTopic, which stands in for a topic."""
        full = str(TopicName.parse(name))
        record = TopicRecord(name=full, policies=Policies(**policies))
        with self.metadata.batch() as batch:
            batch.put(record)
        stored = StoredTopic(record, RecordWrites(self.metadata, lambda: self.executor))
        self.topics[full] = LabTopic(self, stored, CountedLog(entries), backlog_bytes)
        return self.topics[full]

    async def ended(self, topic: LabTopic) -> None:
        """Waits until the topic has no run in progress."""
        async with asyncio.timeout(WAIT_S):
            async for _ in self.scheduler.watch(cast(Any, topic)):
                pass

    def topic_record(self, topic: LabTopic) -> TopicRecord:
        """Returns the record in the metadata."""
        record = self.metadata.topic(topic.name)
        assert record is not None
        return record

    def run_of(self, topic: LabTopic, number: int) -> RunRecord:
        """Returns the record in the metadata."""
        return next(run for run in self.metadata.runs(topic.name) if run.number == number)


def position(ledger_id: int, entry_id: int) -> PositionRecord:
    return PositionRecord(ledger_id=ledger_id, entry_id=entry_id)


async def _never(seconds: float) -> None:
    await asyncio.Event().wait()

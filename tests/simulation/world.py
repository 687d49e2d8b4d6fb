"""The state of one simulation: loop, disk, metadata, broker process, clients, oracle.

The broker starts and ends (`boot`, `crash`); disk and metadata stay. A crash takes effect between
two steps of the loop, or within a disk call (`Process.crash_in`).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

from ledgerfold.broker.common.clock import Timer
from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.snapshots import BrokerSnapshots
from ledgerfold.storage.errors import DiskFailure, LedgerfoldError, NotAllowed, TopicExists
from ledgerfold.storage.ledger import LedgerStore, StoreSettings
from ledgerfold.storage.metadata import MetadataBatch, MetadataStore
from ledgerfold.storage.recovery_report import RecoveryReport
from ledgerfold.storage.snapshot_folder import SnapshotFolder
from ledgerfold.storage.topic_archive import TopicImport
from ledgerfold.v1.records_pb2 import CompactionStrategy, Emulation
from tests.simulation.compactor import SimCompactor
from tests.simulation.coverage import Coverage
from tests.simulation.disk import DATA, Disk
from tests.simulation.executor import SimExecutor
from tests.simulation.files import SimFiles
from tests.simulation.jobs import Crash, Process
from tests.simulation.key_value import PairStore, SimKeyValue, settle_after_crash
from tests.simulation.loop import PROCESS, Pace, SimLoop
from tests.simulation.moments import CALLED, Moments
from tests.simulation.oracle import Oracle
from tests.simulation.whole_state import IMPORTED, snapshots_of

START_MS = 1_700_000_000_000


class _Ledgers(LedgerStore):
    """Tells when a deletion is decided."""

    on_deleting: Callable[[int], None]

    def mark_deleting(self, ledger_id: int, batch: MetadataBatch) -> None:
        self.on_deleting(ledger_id)
        super().mark_deleting(ledger_id, batch)


class SimClock:
    """The loop's time, as a broker.clock.Clock."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return START_MS + int(self._loop.time() * 1000)

    @staticmethod
    def time_of(at_ms: int) -> float:
        """Returns the loop's time within that millisecond."""
        return (at_ms - START_MS + 0.5) / 1000

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        return self._loop.call_later(delay_s, callback)


class World:
    def __init__(
        self,
        random: Random,
        pace: Pace,
        profile: str,
        store: StoreSettings,
        threshold_bytes: int,
        strategy: CompactionStrategy,
        kafka_config: Mapping[str, str] = MappingProxyType({}),
        garbage_max: float = 0.3,
    ) -> None:
        self.random = random
        self.loop = SimLoop(random, pace)
        self.loop.on_step = self._look
        self.clock = SimClock(self.loop)
        self.disk = Disk(self.loop.jobs, random)
        self.disk.on_fault = self.note
        self.pairs = PairStore()
        self.moments, self.coverage = Moments(), Coverage()
        self.trace: list[str] = []
        self.oracle = Oracle(
            self.disk,
            self.pairs,
            DATA / "ledgers",
            profile,
            self.note,
            self.clock.now_ms,
            lambda: START_MS + int(self.pairs.asked_s * 1000),
            lambda ledger_id: START_MS + int(self.pairs.decided_s[ledger_id] * 1000),
        )
        self.oracle.foreign.add(IMPORTED)
        self.settings = BrokerSettings(
            failover_delay_ms=0,
            data_dir=DATA,
            compactor="off",
            store=store,
            compaction_threshold_bytes=threshold_bytes,
            segment_garbage_max=garbage_max,
            compaction_strategy=strategy,
            emulation=Emulation(profile=profile),
            kafka_config=kafka_config,
            allow_reset=True,
        )
        self.broker: Broker | None = None
        self.process: Process | None = None
        self.compactor: SimCompactor | None = None
        self.snapshots: BrokerSnapshots | None = None
        # An archive that is imported before the next start.
        self.to_import: Path | None = None
        # The last import has succeeded, and said so.
        self.has_imported = False
        self.is_up = asyncio.Event()
        self.in_order = False
        # Some entries come from Pulsar clients.
        self.is_mixed = False
        # No more faults.
        self.is_converging = False
        # Unary calls in progress.
        self.calls = 0
        self._next_crash_is_power = False
        self._workers: list[Process] = []
        self._starts = 0
        # Boots of the machine; and the last one in which a broker has recovered.
        self._boots, self._recovered_boot = 1, 0
        executor = SimExecutor(self.loop.jobs)
        executor.current_process = PROCESS.get
        self.loop.set_default_executor(executor)
        self._clients: list[asyncio.Task[Any]] = []
        self._callers: list[asyncio.Task[Any]] = []

    def note(self, words: str) -> None:
        """Adds a line to the trace."""
        if not self.trace or not self.trace[-1].endswith(f"  {words}"):
            self.trace.append(f"{self.loop.steps:6d} {self.loop.time():9.3f}s  {words}")

    # Tasks

    def client(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Starts a task of a client. Its failure is a defect of the simulator."""
        task = self.loop.create_task(work, context=contextvars.Context())
        self._clients.append(task)
        return task

    def caller(self, work: Coroutine[Any, Any, Any]) -> None:
        """Starts a task of a client that makes a unary call, or stops the broker."""
        self._callers.append(self.client(work))

    @property
    def is_calling(self) -> bool:
        """Returns whether a call is in progress, or its task has not begun yet."""
        return bool(self.calls) or not all(each.done() for each in self._callers)

    def in_broker(self, work: Any) -> asyncio.Task[Any]:
        """Starts a task in the broker's process."""
        return self.loop.create_task(work, context=self._context())

    def _context(self) -> contextvars.Context:
        context = contextvars.Context()
        context.run(PROCESS.set, self.process)
        return context

    # The broker's life

    async def boot(self) -> None:
        """Starts the broker; a start that fails because of the disk is repeated."""
        while True:
            self._starts += 1
            process = self.process = Process(f"broker-{self._starts}")
            executor = SimExecutor(self.loop.jobs, process)
            archive, self.to_import = self.to_import, None
            if archive is None:
                future = self.loop.run_in_executor(executor, self._recover, process)
            else:
                future = self.loop.run_in_executor(executor, self._import, process, archive)
            while not (future.done() or process.is_dead):  # noqa: ASYNC110 - a death is silent
                await asyncio.sleep(0)
            if process.is_dead:
                # A supervisor starts the next one.
                return
            try:
                recovered = future.result()
            except DiskFailure as error:
                self.note(f"a start fails: {error}")
                # No broker runs, so there is nothing to kill.
                self.process = None
                await asyncio.sleep(0.2)
                continue
            except LedgerfoldError as error:
                self.oracle.fail(f"the broker does not start: {error!r}")
                return
            except Exception as error:
                self.oracle.unexpected(error)
                return
            metadata, store, report = recovered
            self.oracle.recovered(report)
            if archive is not None:
                # The command has ended.
                self.process = None
                continue
            await self.in_broker(self._start(metadata, store, executor))
            return

    def _recover(self, process: Process) -> tuple[MetadataStore, LedgerStore, RecoveryReport]:
        pairs = SimKeyValue(
            self.pairs,
            self.disk,
            process,
            self.oracle.on_write,
            self.loop.time,
            self.moments.reach,
        )
        metadata = MetadataStore(pairs)
        store = _Ledgers(
            DATA,
            metadata,
            files=SimFiles(self.disk, process, self._called),
            settings=self.settings.store,
            clock_ms=self.clock.now_ms,
        )
        store.on_deleting = lambda each: self.pairs.decided_s.update({each: self.loop.time()})
        boot = self._boots
        report = store.recover(is_same_boot=self._recovered_boot == boot)
        SnapshotFolder(DATA, store.files).sweep()
        self._recovered_boot = boot
        return metadata, store, report

    def _import(
        self, process: Process, archive: Path
    ) -> tuple[MetadataStore, LedgerStore, RecoveryReport]:
        """Imports a topic, as `topics import` does while no broker is there."""
        metadata, store, report = self._recover(process)
        self.has_imported = False
        try:
            found = TopicImport(archive, store.ledgers_dir, metadata, store.files).run()
            self.note(f"{found.topic} is imported")
            self.has_imported = True
        except (TopicExists, NotAllowed) as error:
            self.note(f"nothing is imported: {error!r:.110}")
        return metadata, store, report

    @property
    def is_same_boot(self) -> bool:
        """Returns whether the machine has kept running since a broker last recovered."""
        return self._recovered_boot == self._boots

    def _called(self, operation: str) -> None:
        moment = CALLED.get(operation)
        if moment is not None:
            self.moments.reach(moment)

    async def _start(
        self, metadata: MetadataStore, store: LedgerStore, executor: SimExecutor
    ) -> None:
        self.compactor = SimCompactor(
            self.disk, self._new_worker, self.moments.reach, self.oracle.planned
        )
        broker = Broker(self.settings, metadata, store, self.compactor, self.clock)
        broker.executor = broker.schemas.executor = executor
        try:
            await broker.start()
        except DiskFailure as error:
            self.note(f"a start fails: {error}")
            assert self.process is not None
            self.process.is_dead = True
            return
        self.broker = broker
        self.snapshots = snapshots_of(broker, self.oracle.saving)
        self.note("the broker is up")
        self.is_up.set()

    def _new_worker(self) -> Process:
        worker = Process(f"worker-{len(self._workers) + 1}")
        self._workers.append(worker)
        return worker

    def crash(self, *, power: bool, calls: int = -1, operation: str = "") -> None:
        """Crashes after that many disk calls, or before the next call of that kind.

        A power failure may lose what was not synced.
        """
        process = self.process
        if process is not None and not (process.is_dead or process.is_doomed):
            process.crash_in, process.crash_at = calls, operation
            self._next_crash_is_power = power

    def crash_now(self, *, power: bool) -> None:
        """Crashes between two steps."""
        process = self.process
        if process is not None and not process.is_dead:
            process.is_dead = True
            self._next_crash_is_power = power

    async def stop(self) -> None:
        """Stops the broker as SIGTERM does, and starts it again."""
        broker, process = self.broker, self.process
        if broker is None or process is None or process.is_dead:
            return
        self.note("the broker is told to stop")
        task = self.in_broker(broker.stop())
        self.broker = None
        self.is_up.clear()
        while not (task.done() or process.is_dead):  # noqa: ASYNC110 - a death is silent
            await asyncio.sleep(0)
        if not process.is_dead and not task.cancelled() and task.exception() is not None:
            self.oracle.unexpected(task.exception())
        self.note("the broker has stopped")
        process.is_dead = True
        self._next_crash_is_power = False

    def _look(self) -> None:
        if self.oracle.failure is not None:
            raise self.oracle.failure
        self.moments.run_due()
        process = self.process
        if process is not None and process.is_dead:
            self._after_death(process)
        if self.loop.errors:
            context = self.loop.errors.pop()
            error = context.get("exception")
            if not isinstance(error, Crash) and "never retrieved" not in context["message"]:
                self.oracle.unexpected(error or context["message"])

    def _after_death(self, process: Process) -> None:
        power, self._next_crash_is_power = self._next_crash_is_power, False
        self.coverage.died(self.moments, power=power)
        self.note("the power fails" if power else "the broker's process is gone")
        self.broker, self.process, self.compactor = None, None, None
        self.is_up.clear()
        self.loop.kill(process)
        for worker in self._workers:
            if power:
                self.loop.kill(worker)
            elif worker.crash_in < 0:
                worker.crash_in = self.random.randrange(40)
        if power:
            self.disk.lose_power(in_order=self.in_order)
            self._boots += 1
        self.oracle.is_settling = True
        settle_after_crash(self.pairs, self.random, self.oracle.on_write)
        self.oracle.is_settling = False
        self.client(self._boot_later())

    async def _boot_later(self) -> None:
        await asyncio.sleep(self.random.random() * 0.2)
        await self.boot()

    def close(self) -> None:
        """Ends all tasks and threads."""
        asyncio.events._set_running_loop(self.loop)
        try:
            self._close()
        finally:
            asyncio.events._set_running_loop(None)
        self.loop.close()

    def _close(self) -> None:
        if self.process is not None:
            self.loop.kill(self.process)
        for worker in self._workers:
            self.loop.kill(worker)
        self.loop.kill_clients()

"""A worker in memory that compacts step by step: it can be interrupted, killed, and be late.

It stands in for the supervisor (broker/worker/supervisor.py) and does with files what the real
worker does, through the same seam, in a job of its own process: removes and makes the run's folder,
reads and verifies the plan's segments, writes survivors aside, syncs, renames, syncs the folders.
What survives the pure model of the plan's strategy says (tests/model/choice_model.py).

* `kill(late_calls)`: the run fails at once; the old worker's job goes on for so many calls of the
  file system, as Spark's tasks do, and whoever comes after meets it.
* When the broker dies its worker notices late, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Protocol, TypeVar

from ledgerfold.broker.worker.compactor import Compactor, OnProgress
from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import EntryHeader, Position, read_header, verify_sections
from ledgerfold.storage.errors import (
    CompactionCancelled,
    CompactionFailed,
    CompactorUnavailable,
    InvalidStrategy,
    LedgerfoldError,
    MissingFile,
)
from ledgerfold.storage.files import Files
from ledgerfold.storage.segment import SegmentWriter
from ledgerfold.v1.compactor_pb2 import (
    AnalyzeRequest,
    CleanManifest,
    CleanPlan,
    CompactionPlan,
    Manifest,
    TellChoicesRequest,
    TellChoicesResponse,
)
from ledgerfold.v1.records_pb2 import CompactionStrategy, RunCounts, SegmentRecord
from ledgerfold.v1.what_if_pb2 import TopicWhatIf
from tests.model.choice_model import is_strategic, left_by
from tests.simulation.disk import Disk
from tests.simulation.executor import SimExecutor
from tests.simulation.files import SimFiles
from tests.simulation.jobs import Process
from tests.simulation.loop import PROCESS
from tests.simulation.moments import CALLED_BY_WORKER, MANIFEST
from tests.support.kafka_round import KafkaRound
from tests.support.memory_compactor import _rebuilt
from tests.support.old_segments import linked, live_rows, vector_of

T = TypeVar("T", covariant=True)


class SimCompactor(Compactor):
    """One per broker process. Workers are numbered over the whole simulation."""

    def __init__(
        self,
        disk: Disk,
        new_worker: Callable[[], Process],
        reach: Callable[[str], None] = lambda moment: None,
        planned: Callable[[CleanPlan], None] = lambda plan: None,
    ) -> None:
        """`planned`: told of each round that it is asked for."""
        self._disk, self._new_worker, self._reach = disk, new_worker, reach
        self._planned = planned
        self.worker = new_worker()
        self._died: asyncio.Future[None] | None = None

    def start(self) -> None:
        """Nothing to start."""

    async def stop(self) -> None:
        """Nothing to stop."""

    async def known(self) -> None:
        """It is there."""

    def retry_now(self) -> None:
        """It never waits."""

    async def tell_choices(self, request: TellChoicesRequest) -> TellChoicesResponse:
        """It has no words."""
        return TellChoicesResponse()

    async def check_strategy(self, strategy: CompactionStrategy) -> None:
        """It knows none but Ledgerfold's own."""
        raise InvalidStrategy(strategy.name, "it is not known here")

    @property
    def is_running(self) -> bool:
        return self._died is not None

    def kill(self, late_calls: int) -> None:
        """kill -9 of the worker."""
        self.worker.crash_in = late_calls
        self.worker = self._new_worker()
        if self._died is not None and not self._died.done():
            self._died.set_result(None)

    async def analyze(self, request: AnalyzeRequest) -> TopicWhatIf:
        """The simulation asks for none."""
        raise CompactorUnavailable("There is no Spark here.")

    async def run(self, plan: CompactionPlan, on_progress: OnProgress) -> Manifest:
        worker = self.worker
        return await self._execute(_Run(plan, self._files(worker), worker), worker)

    async def clean(self, plan: CleanPlan) -> CleanManifest:
        """A round of Kafka's cleaner, as run()."""
        worker = self.worker
        self._planned(plan)
        return await self._execute(_Clean(plan, self._files(worker)), worker)

    def _files(self, worker: Process) -> SimFiles:
        def called(operation: str) -> None:
            moment = CALLED_BY_WORKER.get(operation)
            if moment is not None:
                self._reach(moment)

        return SimFiles(self._disk, worker, called)

    async def _execute(self, task: _Work[T], worker: Process) -> T:
        loop = asyncio.get_running_loop()
        died = loop.create_future()
        self._died = died
        done = loop.run_in_executor(SimExecutor(self._disk.jobs, worker), task.execute)
        try:
            await asyncio.wait({done, died}, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                raise CompactionFailed("worker", "it died")
            self._reach(MANIFEST)
            return done.result()
        except asyncio.CancelledError:
            task.is_cancelled = True
            process = PROCESS.get()
            # A broker that died waits for nothing.
            if process is None or not process.is_dead:
                await asyncio.wait({done, died}, return_when=asyncio.FIRST_COMPLETED)
            raise
        finally:
            self._died = None


class _Work(Protocol[T]):
    is_cancelled: bool

    def execute(self) -> T: ...


class _Clean:
    """A round; what it wrote goes when it does not come to its end."""

    def __init__(self, plan: CleanPlan, files: Files) -> None:
        self._files = files
        self._round = KafkaRound(plan, files, self._check)
        self.is_cancelled = False

    def execute(self) -> CleanManifest:
        try:
            for folder in self._round.folders():
                self._files.remove_dir(folder)
            return self._round.run()
        except (LedgerfoldError, OSError) as error:
            for folder in self._round.folders():
                _remove(self._files, folder)
            if isinstance(error, LedgerfoldError):
                raise
            raise CompactionFailed("worker", repr(error)) from error

    def _check(self) -> None:
        if self.is_cancelled:
            raise CompactionCancelled("The round was cancelled.")


def _remove(files: Files, folder: Path) -> None:
    for _ in range(3):
        try:
            files.remove_dir(folder)
            return
        except (LedgerfoldError, FileNotFoundError):
            continue


class _Run:
    def __init__(self, plan: CompactionPlan, files: Files, worker: Process) -> None:
        self._plan, self._files, self._worker = plan, files, worker
        self._folder = Path(plan.ledgers_dir) / str(plan.ledger_id)
        self.is_cancelled = False

    def execute(self) -> Manifest:
        try:
            return self._execute()
        except (LedgerfoldError, OSError) as error:
            _remove(self._files, self._folder)
            if isinstance(error, LedgerfoldError):
                raise
            raise CompactionFailed("worker", repr(error)) from error

    def _execute(self) -> Manifest:
        plan, files = self._plan, self._files
        files.remove_dir(self._folder)
        files.make_dir(self._folder)
        segments, counts = self._copy()
        if segments:
            files.sync_dir(self._folder)
        else:
            files.remove_dir(self._folder)
        files.sync_dir(self._folder.parent)
        return Manifest(
            run_id=plan.run_id,
            ledger_id=plan.ledger_id,
            horizon=plan.horizon,
            segments=segments,
            counts=counts,
            # Without it, no later run keeps a segment.
            strategy_version=str(plan.strategy_version),
        )

    def _check(self) -> None:
        if self.is_cancelled:
            raise CompactionCancelled("The compaction was cancelled.")

    def _copy(self) -> tuple[list[SegmentRecord], RunCounts]:
        plan = self._plan
        placed = list(self._entries())
        entries = [(header, entry) for _, header, entry, _ in placed]
        # The messages that the ledgers contain, each with its entry and row.
        rows = [(at, row) for at, each in enumerate(placed) for row in each[3]]
        decoded = [list(decode(entry, header).messages()) for header, entry in entries]
        messages = [(entries[at][0], decoded[at][row]) for at, row in rows]
        left = left_by(plan, messages)
        renumber = plan.renumber_batches and is_strategic(plan)
        segments: list[SegmentRecord] = []
        writer: SegmentWriter | None = None
        # The old segments met so far, and those that are linked.
        asked, done = set[int](), set[int]()
        survivors = [rows[index] for index in left.rows]
        left_of = {at: [row for _, row in kept] for at, kept in groupby(survivors, itemgetter(0))}
        for at, kept in groupby(survivors, key=itemgetter(0)):
            self._check()
            number = placed[at][0]
            if number not in asked:
                asked.add(number)
                of_segment = [
                    (header, left_of.get(other, []))
                    for other, (its, header, _, _) in enumerate(placed)
                    if its == number
                ]
                index = len(segments) + (writer is not None)
                found = self._linked(number, of_segment, index)
                if found is not None:
                    if writer is not None:
                        segments.append(writer.seal())
                        writer = None
                    done.add(number)
                    segments.append(found)
            if number in done:
                continue
            if writer is None:
                writer = SegmentWriter(
                    Path(plan.ledgers_dir), plan.ledger_id, len(segments), self._files
                )
            header, entry = entries[at]
            rebuilt = _rebuilt(header, entry, [row for _, row in kept], renumber)
            writer.append(read_header(rebuilt), rebuilt)
            if writer.size_bytes >= plan.segment_bytes_max:
                segments.append(writer.seal())
                writer = None
        if writer is not None:
            segments.append(writer.seal())
        return segments, RunCounts(
            messages_in=len(messages),
            messages_out=len(survivors),
            removed_events=left.removed_events,
        )

    def _linked(
        self, number: int, entries: list[tuple[EntryHeader, list[int]]], index: int
    ) -> SegmentRecord | None:
        """A segment of the previous ledger in the new one, if it may stay as it is.

        `entries`: with the rows that are left of each. Retention may hide some of them.
        """
        plan, segment = self._plan, self._plan.segments[number]
        is_old = number < plan.compacted_segments and len(entries) == segment.entries
        if not (is_old and plan.keeps_segments) or is_strategic(plan):
            return None
        return linked(plan, segment, entries, index, self._files)

    def _entries(self) -> Iterator[tuple[int, EntryHeader, bytes, list[int]]]:
        """Each entry of the range, the number of its segment in the plan, and its live rows."""
        plan = self._plan
        before, horizon = plan.horizon_previous, plan.horizon
        low = (before.ledger_id, before.entry_id) if plan.HasField("horizon_previous") else (-1, -1)
        high = (horizon.ledger_id, horizon.entry_id)
        floor = (plan.retention_floor.ledger_id, plan.retention_floor.entry_id)
        for number, segment in enumerate(plan.segments):
            self._check()
            path = Path(plan.ledgers_dir) / segment.path
            try:
                data = self._files.open_read(path).pread(segment.size_bytes, 0)
            except FileNotFoundError as error:
                raise MissingFile(str(path), "a plan") from error
            if len(data) < segment.size_bytes:
                raise MissingFile(str(path), "a plan")
            vector = vector_of(Path(plan.ledgers_dir), segment, self._files)
            at = 0
            while at < len(data):
                header = read_header(data, at, segment.path)
                verify_sections(data, header, at, segment.path)
                is_raw = number >= plan.compacted_segments
                position: Position = header.position
                if low < position <= high if is_raw else position >= floor:
                    entry = data[at : at + header.size_bytes]
                    yield number, header, entry, live_rows(vector, header, at)
                at += header.size_bytes

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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
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
from ledgerfold.storage.segment import SegmentWriter, link_segment
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
        """Returns at once: the compactor is known."""

    def retry_now(self) -> None:
        """Does nothing: it never waits."""

    async def tell_choices(self, request: TellChoicesRequest) -> TellChoicesResponse:
        """Returns no words."""
        return TellChoicesResponse()

    async def check_strategy(self, strategy: CompactionStrategy) -> None:
        """Accepts only Ledgerfold's own strategies."""
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
        )

    def _check(self) -> None:
        if self.is_cancelled:
            raise CompactionCancelled("The compaction was cancelled.")

    def _copy(self) -> tuple[list[SegmentRecord], RunCounts]:
        plan = self._plan
        placed = list(self._entries())
        entries = [(header, entry) for _, header, entry in placed]
        rows = [
            (at, row)
            for at, (header, _) in enumerate(entries)
            for row in range(header.message_count)
        ]
        messages = [
            (header, message)
            for header, entry in entries
            for message in decode(entry, header).messages()
        ]
        left = left_by(plan, messages)
        renumber = plan.renumber_batches and is_strategic(plan)
        segments: list[SegmentRecord] = []
        writer: SegmentWriter | None = None
        done = set[int]()
        survivors = [rows[index] for index in left.rows]
        linked = self._unchanged(Counter(placed[at][0] for at, _ in survivors))
        for at, kept in groupby(survivors, key=itemgetter(0)):
            self._check()
            number = placed[at][0]
            if number in linked:
                if writer is not None:
                    segments.append(writer.seal())
                    writer = None
                if number not in done:
                    done.add(number)
                    segments.append(self._link(plan.segments[number], len(segments)))
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

    def _unchanged(self, left: Mapping[int, int]) -> set[int]:
        """The segments of the previous ledger of which every message is left: they are linked."""
        plan = self._plan
        if not plan.keeps_segments or is_strategic(plan):
            return set()
        records = enumerate(plan.segments[: plan.compacted_segments])
        return {number for number, each in records if left.get(number) == each.messages}

    def _link(self, record: SegmentRecord, index: int) -> SegmentRecord:
        plan = self._plan
        return link_segment(Path(plan.ledgers_dir), record, plan.ledger_id, index, self._files)

    def _entries(self) -> Iterator[tuple[int, EntryHeader, bytes]]:
        """Each entry of the range, and the number of its segment in the plan."""
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
            at = 0
            while at < len(data):
                header = read_header(data, at, segment.path)
                verify_sections(data, header, at, segment.path)
                is_raw = number >= plan.compacted_segments
                position: Position = header.position
                if low < position <= high if is_raw else position >= floor:
                    yield number, header, data[at : at + header.size_bytes]
                at += header.size_bytes

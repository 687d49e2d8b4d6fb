"""A compactor in this process, for tests of the broker: the plan's result by the pure model.

It reads and writes through the file-system seam (storage/files.py), so that a disk that forgets or
fails can be put under it. What it writes is what the real worker writes: segments of whole or
rebuilt entries, and a manifest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np

from ledgerfold.broker.worker.compactor import Compactor, OnProgress
from ledgerfold.compactor.job.rebuild import RawEntry, keep_rows
from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import EntryHeader, Position, read_header, verify_sections
from ledgerfold.storage.errors import InvalidStrategy
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
from ledgerfold.v1.records_pb2 import CompactionStrategy, RunCounts
from ledgerfold.v1.what_if_pb2 import TopicWhatIf
from tests.model.choice_model import CLASSES, is_strategic, left_by
from tests.support.kafka_round import KafkaRound


class MemoryCompactor(Compactor):
    """Stands in for the supervisor (broker/worker/supervisor.py).

    `failure`: what the next run raises, half done; as of a worker that was killed, its files stay.
    `may_go`: while it is cleared, a run waits; `has_begun` tells that one does.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self.failure: Exception | None = None
        self.analyses: list[AnalyzeRequest] = []
        self.has_begun = asyncio.Event()
        self.may_go = asyncio.Event()
        self.may_go.set()

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
        """Accepts Ledgerfold's own strategies, and those that its oracles know."""
        if strategy.name not in CLASSES:
            raise InvalidStrategy(strategy.name, "it is not known here")

    async def run(self, plan: CompactionPlan, on_progress: OnProgress) -> Manifest:
        self.has_begun.set()
        await self.may_go.wait()
        folder = Path(plan.ledgers_dir) / str(plan.ledger_id)
        self._files.make_dir(folder)
        manifest = self._write(plan)
        self._files.sync_dir(folder.parent)
        return manifest

    async def analyze(self, request: AnalyzeRequest) -> TopicWhatIf:
        """Only notes what it was asked; `may_go` holds it, too."""
        self.analyses.append(request)
        self.has_begun.set()
        await self.may_go.wait()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return TopicWhatIf()

    async def clean(self, plan: CleanPlan) -> CleanManifest:
        """A round of Kafka's cleaner. `may_go` and `failure` are as for a run."""
        self.has_begun.set()
        await self.may_go.wait()
        manifest = KafkaRound(plan, self._files).run()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return manifest

    def _write(self, plan: CompactionPlan) -> Manifest:
        entries = list(self._entries(plan))
        rows = [(at, row) for at, (header, _) in enumerate(entries) for row in range(_rows(header))]
        messages = [
            (header, message)
            for header, entry in entries
            for message in decode(entry, header).messages()
        ]
        left = left_by(plan, messages)
        writer = SegmentWriter(Path(plan.ledgers_dir), plan.ledger_id, 0, self._files)
        renumber = plan.renumber_batches and is_strategic(plan)
        survivors = [rows[index] for index in left.rows]
        for at, kept in groupby(survivors, key=itemgetter(0)):
            header, entry = entries[at]
            rebuilt = _rebuilt(header, entry, [row for _, row in kept], renumber)
            writer.append(read_header(rebuilt), rebuilt)
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        segment = writer.seal()
        if not survivors:
            self._files.remove_dir(Path(plan.ledgers_dir) / str(plan.ledger_id))
        return Manifest(
            run_id=plan.run_id,
            ledger_id=plan.ledger_id,
            horizon=plan.horizon,
            segments=[segment] if survivors else [],
            counts=RunCounts(
                messages_in=len(messages),
                messages_out=len(survivors),
                removed_events=left.removed_events,
            ),
        )

    def _entries(self, plan: CompactionPlan) -> Iterator[tuple[EntryHeader, bytes]]:
        before, horizon = plan.horizon_previous, plan.horizon
        low = (before.ledger_id, before.entry_id) if plan.HasField("horizon_previous") else (-1, -1)
        high = (horizon.ledger_id, horizon.entry_id)
        floor = (plan.retention_floor.ledger_id, plan.retention_floor.entry_id)
        for number, segment in enumerate(plan.segments):
            is_raw = number >= plan.compacted_segments
            file = self._files.open_read(Path(plan.ledgers_dir) / segment.path)
            data = file.pread(segment.size_bytes, 0)
            at = 0
            while at < len(data):
                header = read_header(data, at, segment.path)
                verify_sections(data, header, at, segment.path)
                position: Position = header.position
                if low < position <= high if is_raw else position >= floor:
                    yield header, data[at : at + header.size_bytes]
                at += header.size_bytes


def _rows(header: EntryHeader) -> int:
    return header.message_count


def _rebuilt(header: EntryHeader, entry: bytes, kept: list[int], renumber: bool = False) -> bytes:
    if len(kept) == header.message_count and not (renumber and _is_numbered(header, entry)):
        return entry
    start = header.header_bytes
    end = start + header.key_bytes
    raw = RawEntry(entry[:start], entry[start:end], entry[end:])
    return b"".join(keep_rows(header, raw, np.array(kept), renumber=renumber))


def _is_numbered(header: EntryHeader, entry: bytes) -> bool:
    """Returns whether ids differ from renumbering: from 0 on in a batch of that size, a single one
    as published alone.

    A run that leaves ids alone may have left the first two of a batch of three.
    """
    found = [(each.batch_index, each.batch_size) for each in decode(entry, header).messages()]
    count = len(found)
    return found != ([(index, count) for index in range(count)] if count > 1 else [(-1, 1)])

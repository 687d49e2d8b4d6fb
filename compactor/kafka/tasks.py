"""The Spark tasks of a cleaning: three kinds, as in compactor/job/tasks.py.

Tasks that read files are throttled (throttle.py): `bytes_per_second` is one task's share.

A LedgerfoldError becomes a Failure row, which later tasks pass on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from pyspark.accumulators import Accumulator

from ledgerfold.compactor.job.plan import InputSegment, Output
from ledgerfold.compactor.job.progress import Parts
from ledgerfold.compactor.job.rows import Failure, Positions
from ledgerfold.compactor.kafka.copy import Copy
from ledgerfold.compactor.kafka.merge import merge
from ledgerfold.compactor.kafka.plan import Range
from ledgerfold.compactor.kafka.record_filter import Rules
from ledgerfold.compactor.kafka.rows import Row
from ledgerfold.compactor.kafka.scan import scan
from ledgerfold.compactor.kafka.throttle import TaskThrottle
from ledgerfold.compactor.kafka.transactions import Line
from ledgerfold.compactor.positions import Integers
from ledgerfold.storage.errors import LedgerfoldError


@dataclass(frozen=True)
class ScanTask:
    """Scans files into fragments by bucket."""

    lines: tuple[Line, ...]
    mapped: Range
    buckets: int
    progress: Accumulator[Parts]
    skipped: tuple[Line, ...]
    bytes_per_second: float

    def __call__(self, runs: Iterable[tuple[InputSegment, ...]]) -> Iterator[Row]:
        files = tuple(chain.from_iterable(runs))
        throttle, skipped = TaskThrottle(self.bytes_per_second), self.skipped
        try:
            yield from scan(files, self.lines, self.mapped, self.buckets, skipped, throttle)
        except LedgerfoldError as error:
            yield 0, Failure.of(error)
        self.progress.add(
            Parts(
                scans=1,
                scanned_messages=sum(file.record.messages for file in files),
                scanned_bytes=sum(file.record.size_bytes for file in files),
            )
        )


@dataclass(frozen=True)
class MergeTask:
    """Merges a bucket's fragments into the surviving offsets."""

    firsts_max: int
    progress: Accumulator[Parts]
    shown_max: int = 0

    def __call__(self, rows: Iterable[Row]) -> Iterator[Row]:
        yield from merge(rows, self.firsts_max, self.shown_max)
        self.progress.add(Parts(merges=1))


@dataclass(frozen=True)
class CopyRun:
    """The files of a copy task, all of one group. Its offsets begin at `first_offset`."""

    files: tuple[InputSegment, ...]
    output: Output | None
    first_offset: int


@dataclass(frozen=True)
class RouteTask:
    """Routes surviving offsets to copy tasks."""

    firsts: tuple[int, ...]

    def __call__(self, rows: Iterable[Row]) -> Iterator[Row]:
        for _, content in rows:
            if isinstance(content, Positions):
                offsets = content.values
                bounds = [*np.searchsorted(offsets, self.firsts).tolist(), len(offsets)]
                for task, (start, end) in enumerate(pairwise(bounds)):
                    if start < end:
                        yield task, Positions.of(offsets[start:end])


@dataclass(frozen=True)
class CopyTask:
    """Copies the surviving records of a task's files into files of the new ledger."""

    runs: tuple[CopyRun, ...]
    rules: Rules
    progress: Accumulator[Parts]
    bytes_per_second: float

    def __call__(self, index: int, rows: Iterable[Row]) -> Iterator[Row]:
        run, throttle = self.runs[index], TaskThrottle(self.bytes_per_second)
        try:
            yield from Copy(index, self.rules, _joined(rows), run.output, throttle).run(run.files)
        except LedgerfoldError as error:
            yield index, Failure.of(error)
        self.progress.add(
            Parts(
                copies=1,
                copied_messages=sum(file.record.messages for file in run.files),
                copied_bytes=sum(file.record.size_bytes for file in run.files),
            )
        )


def _joined(rows: Iterable[Row]) -> Integers:
    found = [content.values for _, content in rows if isinstance(content, Positions)]
    return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)

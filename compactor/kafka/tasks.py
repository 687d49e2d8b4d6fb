"""The Spark tasks of a cleaning: three kinds, as in compactor/job/tasks.py.

Tasks that read files are throttled (throttle.py): `bytes_per_second` is one task's share.

A LedgerfoldError becomes a Failure row, which later tasks pass on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from ledgerfold.compactor.job.engine import Progress
from ledgerfold.compactor.job.plan import InputSegment, Output, size_bytes_of
from ledgerfold.compactor.job.progress import Parts, copy_parts, scan_parts
from ledgerfold.compactor.job.rows import by_task, guarded
from ledgerfold.compactor.kafka.copy import Copy
from ledgerfold.compactor.kafka.plan import Range
from ledgerfold.compactor.kafka.record_filter import Rules
from ledgerfold.compactor.kafka.rows import Chosen, Firsts, Row
from ledgerfold.compactor.kafka.scan import merge, scan
from ledgerfold.compactor.kafka.throttle import TaskThrottle
from ledgerfold.storage.kafka.transaction_index import AbortedTransaction


@dataclass(frozen=True)
class ScanTask:
    """Scans files into fragments by bucket."""

    lines: tuple[AbortedTransaction, ...]
    mapped: Range
    buckets: int
    progress: Progress
    skipped: tuple[AbortedTransaction, ...]
    bytes_per_second: float
    with_firsts: bool

    def __call__(self, runs: Iterable[tuple[InputSegment, ...]]) -> Iterator[Row]:
        files = tuple(chain.from_iterable(runs))
        rows = scan(
            files,
            self.lines,
            self.mapped,
            self.buckets,
            self.skipped,
            TaskThrottle(self.bytes_per_second),
            with_firsts=self.with_firsts,
        )
        yield from guarded(rows, [0])
        self.progress.add(scan_parts(files, size_bytes_of))


@dataclass(frozen=True)
class MergeTask:
    """Merges a bucket's fragments into the surviving records, by copy task.

    The first offset of each copy task divides the records. Other results go to the next partition,
    and the first offsets of the keys of each bucket to one of the partitions after that.
    """

    first_offsets: tuple[int, ...]
    firsts_max: int
    progress: Progress
    shown_max: int = 0

    @property
    def results(self) -> int:
        """The partition of other results."""
        return len(self.first_offsets)

    def __call__(self, bucket: int, rows: Iterable[Row]) -> Iterator[Row]:
        for _, content in guarded(merge(rows, self.firsts_max, self.shown_max), [0]):
            if isinstance(content, Chosen):
                offsets, starts = content.records
                for task, part in by_task(offsets, self.first_offsets):
                    yield task, Chosen.of(offsets[part], starts[part])
            elif isinstance(content, Firsts):
                yield self.results + 1 + bucket, content
            else:
                yield self.results, content
        self.progress.add(Parts(merges=1))


@dataclass(frozen=True)
class CopyRun:
    """The files of a copy task, all of one group. Its offsets begin at `first_offset`."""

    files: tuple[InputSegment, ...]
    output: Output | None
    first_offset: int


@dataclass(frozen=True)
class CopyTask:
    """Copies the surviving records of a task's files into files of the new ledger."""

    runs: tuple[CopyRun, ...]
    rules: Rules
    progress: Progress
    bytes_per_second: float

    def __call__(self, index: int, rows: Iterable[Row]) -> Iterator[Row]:
        run, throttle = self.runs[index], TaskThrottle(self.bytes_per_second)
        copy = Copy(index, self.rules, Chosen.joined(rows), run.output, throttle)
        yield from guarded(copy.run(run.files), [index])
        self.progress.add(copy_parts(run.files))

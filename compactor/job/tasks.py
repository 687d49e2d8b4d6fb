"""The three kinds of Spark tasks, each a function of a partition's rows.

They are objects of importable classes, so that remote executors find them by name. A
LedgerfoldError becomes a Failure row for every later task, and a task that receives one does no
work; anything else (a bug, a killed process) fails the Spark job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from ledgerfold.compactor.job.copy_survivors import copy_survivors
from ledgerfold.compactor.job.engine import Progress
from ledgerfold.compactor.job.merge_messages import merge_messages
from ledgerfold.compactor.job.plan import InputSegment, TaskPlan, key_bytes_of
from ledgerfold.compactor.job.progress import Parts, copy_parts, scan_parts
from ledgerfold.compactor.job.rows import CopyBegan, Row, guarded
from ledgerfold.compactor.job.scan import merge, scan
from ledgerfold.compactor.job.scan_messages import scan_messages
from ledgerfold.compactor.strategies.registry import AnyStrategy
from ledgerfold.compactor.strategies.strategic import MessageStrategy
from ledgerfold.storage.crash_points import armed


def scanned(
    segments: Sequence[InputSegment], strategy: AnyStrategy, buckets: int, retain_null_key: bool
) -> Iterator[Row]:
    """Runs the first half of phase one for either kind of strategy. Raises as scan does."""
    if isinstance(strategy, MessageStrategy):
        return scan_messages(segments, strategy.reads, buckets)
    return scan(segments, strategy, buckets, retain_null_key)


def merged(
    rows: Iterable[Row],
    strategy: AnyStrategy,
    first_ordinals: Sequence[int],
    indexed: Sequence[InputSegment] = (),
) -> Iterator[Row]:
    """Runs the second half of phase one."""
    if isinstance(strategy, MessageStrategy):
        return merge_messages(rows, strategy, first_ordinals)
    return merge(rows, strategy, first_ordinals, indexed)


@dataclass(frozen=True)
class ScanTask:
    """A task from segments to fragments, or messages, by bucket."""

    strategy: AnyStrategy
    buckets: int
    retain_null_key: bool
    progress: Progress

    def __call__(self, runs: Iterable[tuple[InputSegment, ...]]) -> Iterator[Row]:
        segments = tuple(chain.from_iterable(runs))
        rows = scanned(segments, self.strategy, self.buckets, self.retain_null_key)
        yield from guarded(rows, range(self.buckets), self.strategy.held)
        self.progress.add(scan_parts(segments, key_bytes_of))


@dataclass(frozen=True)
class MergeTask:
    """A task from the contents of a bucket to surviving positions, by copy task."""

    strategy: AnyStrategy
    first_ordinals: tuple[int, ...]
    indexed: tuple[InputSegment, ...]
    progress: Progress

    def __call__(self, rows: Iterable[Row]) -> Iterator[Row]:
        merged_rows = merged(rows, self.strategy, self.first_ordinals, self.indexed)
        yield from guarded(merged_rows, range(len(self.first_ordinals)), self.strategy.held)
        self.progress.add(Parts(merges=1))


@dataclass(frozen=True)
class CopyTask:
    """A task from the surviving positions of its segments to files."""

    tasks: TaskPlan
    progress: Progress
    clock: Callable[[], float]

    def __call__(self, index: int, rows: Iterable[Row]) -> Iterator[Row]:
        segments = self.tasks.copies[index]
        # The iterator releases the list once it is exhausted, before files are copied.
        received = iter(list(rows))
        yield 0, CopyBegan(self.clock())
        output, renumber = self.tasks.output, self.tasks.renumber_batches
        with armed(self.tasks.crash_at):
            yield from guarded(copy_survivors(received, segments, output, renumber), [0])
        self.progress.add(copy_parts(segments))

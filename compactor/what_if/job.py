"""The Spark job of an analysis: scan, merge, size, with a shuffle between stages.

    segments -> scan -> (bucket, chunk) -> merge -> (sizing task, positions) -> size -> figures

An analysis is divided into tasks like a run of the same plan (compactor/job/plan.py), except for
the last stage, which has less work than a copy. A small plan is one task. Only Spark's shuffle
files and the spools of merge tasks are written, in the worker's own folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from operator import index
from typing import NamedTuple

from ledgerfold.compactor.job.engine import Context
from ledgerfold.compactor.job.plan import Cut, InputSegment, contiguous, cut_segments
from ledgerfold.compactor.job.rows import Counts, Failure, guarded
from ledgerfold.compactor.strategies.registry import AnyStrategy
from ledgerfold.compactor.what_if.merge import Merge
from ledgerfold.compactor.what_if.rows import (
    AnalysisContent,
    AnalysisRow,
    Differing,
    Sized,
    StrategyCounts,
    Survivors,
)
from ledgerfold.compactor.what_if.scan import Scan
from ledgerfold.compactor.what_if.sizing import size

# The messages of its segments, surviving or not; sizing.py describes what a task holds of the
# survivors.
SIZE_TASK_MESSAGES = 4_000_000


def analysis_cut(
    segments: tuple[InputSegment, ...], cores: int, strategies: Sequence[AnyStrategy]
) -> Cut:
    """Divides segments into tasks; sizing tasks replace copies."""
    cut = cut_segments(segments, cores, strategies)
    tasks = -(-sum(map(_messages, segments)) // SIZE_TASK_MESSAGES)
    return cut._replace(copies=contiguous(segments, max(tasks, 1), _messages))


def _messages(segment: InputSegment) -> int:
    return segment.record.messages


@dataclass(frozen=True)
class Analysis:
    """An analysis and its division into tasks.

    `differences_max` is 0 unless differences are requested. A user-defined strategy is the only one
    of its analysis, and runs within its limits. `returns_survivors`: returns the survivors of the
    first strategy. `earlier`: survivors from other jobs, to compare with.
    """

    cut: Cut
    strategies: tuple[AnyStrategy, ...]
    retain_null_key: bool
    differences_max: int
    returns_survivors: bool = False
    earlier: tuple[Survivors, ...] = ()

    def scan(self, runs: Iterable[tuple[InputSegment, ...]]) -> Iterator[AnalysisRow]:
        scan = Scan(
            self.strategies, self.cut.buckets, self.retain_null_key, self.differences_max > 0
        )
        rows = scan.rows(tuple(chain.from_iterable(runs)))
        return guarded(rows, range(self.cut.buckets), *self._held)

    def merge(self, rows: Iterable[AnalysisRow]) -> Iterator[AnalysisRow]:
        firsts = tuple(run[0].ordinal for run in self.cut.copies)
        merge = Merge(self.strategies, firsts, self.differences_max, self.earlier)
        return guarded(merge.rows(rows), range(len(firsts)), *self._held)

    def size(self, task: int, rows: Iterable[AnalysisRow]) -> Iterator[AnalysisRow]:
        ordinals = [segment.ordinal for segment in self.cut.copies[task]]
        return size(rows, len(self.strategies), ordinals, returns_survivors=self.returns_survivors)

    @property
    def _held(self) -> list[Callable[[], AbstractContextManager[None]]]:
        """Applies the limits of the strategies."""
        return [strategy.held for strategy in self.strategies]


class Figures(NamedTuple):
    """The added-up results of tasks; `strategy_counts` and `sized` by strategy."""

    counts: Counts
    strategy_counts: list[StrategyCounts]
    sized: list[Sized]
    differing: Differing
    # The survivors of the first strategy, if requested.
    survivors: Survivors


def run_analysis(context: Context, analysis: Analysis) -> Figures:
    """Runs an analysis. Raises the errors of tasks: Corruption, MissingFile, DiskFailure,
    StrategyFailed; or Spark's own errors.
    """
    if not analysis.cut.scans:
        return figures_of([], analysis)
    scans = analysis.cut.scans
    rows = context.parallelize(scans, len(scans)).mapPartitions(analysis.scan)
    if analysis.cut.is_large:
        rows = rows.partitionBy(analysis.cut.buckets, index)
    rows = rows.mapPartitions(analysis.merge)
    if analysis.cut.is_large:
        rows = rows.partitionBy(len(analysis.cut.copies), index)
    sized = rows.mapPartitionsWithIndex(analysis.size)
    return figures_of([content for _, content in sized.collect()], analysis)


def figures_of(contents: Sequence[AnalysisContent], analysis: Analysis) -> Figures:
    """Adds up the results of tasks. Raises the error of a failed task."""
    numbers = range(len(analysis.strategies))
    counts, differing, survivors = Counts(), Differing(0, ()), list[Survivors]()
    strategy_counts = [StrategyCounts(number, 0, 0) for number in numbers]
    sized = [Sized(number, 0, 0, 0, 0) for number in numbers]
    for content in contents:
        match content:
            case Failure():
                raise content.error()
            case Counts():
                counts = counts.plus(content)
            case StrategyCounts(number):
                strategy_counts[number] = StrategyCounts(
                    number, *_sum(strategy_counts[number][1:], content[1:])
                )
            case Sized(number):
                sized[number] = Sized(number, *_sum(sized[number][1:], content[1:]))
            case Differing(keys, listed):
                first = sorted((*differing.listed, *listed))[: analysis.differences_max]
                differing = Differing(differing.keys + keys, tuple(first))
            case Survivors():
                survivors.append(content)
    return Figures(counts, strategy_counts, sized, differing, Survivors.joined(survivors))


def _sum(mine: Iterable[int], theirs: Iterable[int]) -> list[int]:
    return [each + other for each, other in zip(mine, theirs, strict=True)]

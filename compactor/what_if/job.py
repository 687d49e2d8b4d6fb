"""The Spark job of an analysis: scan, merge, size, with a shuffle between each two.

    segments -> scan -> (bucket, chunk) -> merge -> (sizing task, positions) -> size -> figures

Cut as a run of the same plan is (compactor/plan.py), but for the last stage, which has less to do
than one that copies; a small plan is one task. Nothing is written but Spark's shuffle files and
what merge tasks lay aside, in the worker's own folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from operator import index
from typing import NamedTuple

from pyspark import SparkContext

from ledgerfold.compactor.plan import Cut, InputSegment, contiguous, cut_segments
from ledgerfold.compactor.rows import Counts, Failure
from ledgerfold.compactor.strategies.registry import AnyStrategy
from ledgerfold.compactor.what_if.merge import Merge
from ledgerfold.compactor.what_if.rows import AnalysisContent, AnalysisRow, Differing, Judged, Sized
from ledgerfold.compactor.what_if.scan import Scan
from ledgerfold.compactor.what_if.sizing import size
from ledgerfold.compactor.what_if.survivors import Survivors
from ledgerfold.storage.errors import LedgerfoldError

# Of its segments, whether they stay or not; what a task holds of those that do: sizing.py.
SIZE_TASK_MESSAGES = 4_000_000


def analysis_cut(
    segments: tuple[InputSegment, ...], cores: int, strategies: Sequence[AnyStrategy]
) -> Cut:
    """Into tasks; in the place of copies, those that size."""
    cut = cut_segments(segments, cores, strategies)
    tasks = -(-sum(map(_messages, segments)) // SIZE_TASK_MESSAGES)
    return cut._replace(copies=contiguous(segments, max(tasks, 1), _messages))


def _messages(segment: InputSegment) -> int:
    return segment.record.messages


@dataclass(frozen=True)
class Analysis:
    """What is asked, and how it is cut into tasks. `differences_max` 0: not asked for. One of one's
    own is the only one: it is held to its bounds. `tells_survivors`: what stays under the first
    strategy is asked for. `given`: that of other jobs, which differences are told with, too."""

    cut: Cut
    strategies: tuple[AnyStrategy, ...]
    retain_null_key: bool
    differences_max: int
    tells_survivors: bool = False
    given: tuple[Survivors, ...] = ()

    def scan(self, runs: Iterable[tuple[InputSegment, ...]]) -> Iterator[AnalysisRow]:
        scan = Scan(
            self.strategies, self.cut.buckets, self.retain_null_key, self.differences_max > 0
        )
        try:
            with self._held():
                yield from scan.rows(tuple(chain.from_iterable(runs)))
        except LedgerfoldError as error:
            for bucket in range(self.cut.buckets):
                yield bucket, Failure.of(error)

    def merge(self, rows: Iterable[AnalysisRow]) -> Iterator[AnalysisRow]:
        firsts = tuple(run[0].ordinal for run in self.cut.copies)
        try:
            with self._held():
                merge = Merge(self.strategies, firsts, self.differences_max, self.given)
                yield from merge.rows(rows)
        except LedgerfoldError as error:
            for task in range(len(firsts)):
                yield task, Failure.of(error)

    def size(self, task: int, rows: Iterable[AnalysisRow]) -> Iterator[AnalysisRow]:
        ordinals = [segment.ordinal for segment in self.cut.copies[task]]
        return size(rows, len(self.strategies), ordinals, tells_survivors=self.tells_survivors)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Around a task. Raises StrategyFailed."""
        with ExitStack() as stack:
            for strategy in self.strategies:
                stack.enter_context(strategy.held())
            yield

    @property
    def is_solo(self) -> bool:
        return len(self.cut.scans) == self.cut.buckets == len(self.cut.copies) == 1


class Figures(NamedTuple):
    """What the tasks found, added up; `judged` and `sized` by strategy."""

    counts: Counts
    judged: list[Judged]
    sized: list[Sized]
    differing: Differing
    # Of the first strategy, where they were asked for.
    survivors: Survivors


def run_analysis(context: SparkContext, analysis: Analysis) -> Figures:
    """Raises what the tasks met: Corruption, MissingFile, DiskFailure, StrategyFailed; or Spark's
    own errors.
    """
    if not analysis.cut.scans:
        return figures_of([], analysis)
    scans = analysis.cut.scans
    rows = context.parallelize(scans, len(scans)).mapPartitions(analysis.scan)
    if not analysis.is_solo:
        rows = rows.partitionBy(analysis.cut.buckets, index)
    rows = rows.mapPartitions(analysis.merge)
    if not analysis.is_solo:
        rows = rows.partitionBy(len(analysis.cut.copies), index)
    sized = rows.mapPartitionsWithIndex(analysis.size)
    return figures_of([content for _, content in sized.collect()], analysis)


def figures_of(contents: Sequence[AnalysisContent], analysis: Analysis) -> Figures:
    """Raises the error that a task met."""
    numbers = range(len(analysis.strategies))
    counts, differing, survivors = Counts(), Differing(0, ()), list[Survivors]()
    judged = [Judged(number, 0, 0) for number in numbers]
    sized = [Sized(number, 0, 0, 0, 0) for number in numbers]
    for content in contents:
        match content:
            case Failure():
                raise content.error()
            case Counts():
                counts = counts.plus(content)
            case Judged(number):
                judged[number] = Judged(number, *_sum(judged[number][1:], content[1:]))
            case Sized(number):
                sized[number] = Sized(number, *_sum(sized[number][1:], content[1:]))
            case Differing(keys, listed):
                first = sorted((*differing.listed, *listed))[: analysis.differences_max]
                differing = Differing(differing.keys + keys, tuple(first))
            case Survivors():
                survivors.append(content)
    return Figures(counts, judged, sized, differing, Survivors.joined(survivors))


def _sum(mine: Iterable[int], theirs: Iterable[int]) -> list[int]:
    return [each + other for each, other in zip(mine, theirs, strict=True)]

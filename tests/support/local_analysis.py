"""The tasks of an analysis in this process, one after the other: the pipeline without Spark."""

from __future__ import annotations

from collections.abc import Sequence

from ledgerfold.compactor.job.plan import Cut, input_segments
from ledgerfold.compactor.job.plan_check import check_input
from ledgerfold.compactor.strategies.registry import AnyStrategy
from ledgerfold.compactor.what_if.job import Analysis, Figures, figures_of
from ledgerfold.compactor.what_if.rows import AnalysisRow, Survivors
from ledgerfold.v1.compactor_pb2 import CompactionPlan


def analyze(
    plan: CompactionPlan,
    strategies: Sequence[AnyStrategy],
    *,
    buckets: int = 1,
    is_spread: bool = False,
    differences_max: int = 0,
    returns_survivors: bool = False,
    given: Sequence[Survivors] = (),
) -> Figures:
    """`is_spread`: a task for each segment. Raises what a task raises."""
    segments = input_segments(plan, check_input)
    runs = tuple((each,) for each in segments) if is_spread else (segments,)
    cut = Cut(runs, buckets, runs)
    analysis = Analysis(
        cut,
        tuple(strategies),
        plan.retain_null_key,
        differences_max,
        returns_survivors,
        tuple(given),
    )
    scanned = [row for run in runs for row in analysis.scan([run])]
    merged = [row for bucket in range(buckets) for row in analysis.merge(_of(scanned, bucket))]
    sized = [row for task in range(len(runs)) for row in analysis.size(task, _of(merged, task))]
    return figures_of([content for _, content in sized], analysis)


def _of(rows: Sequence[AnalysisRow], number: int) -> list[AnalysisRow]:
    return [row for row in rows if row[0] == number]

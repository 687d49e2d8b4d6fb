"""The tasks of an analysis in this process, one after the other: the pipeline without Spark."""

from __future__ import annotations

from collections.abc import Sequence

from ledgerfold.compactor.job.inline import InlineEngine
from ledgerfold.compactor.job.plan import Cut, input_segments
from ledgerfold.compactor.job.plan_check import check_input
from ledgerfold.compactor.strategies.registry import AnyStrategy
from ledgerfold.compactor.what_if.job import Analysis, Figures, run_analysis
from ledgerfold.compactor.what_if.rows import Survivors
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
    """`is_spread`: a task for each segment. Raises the task's error."""
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
    return run_analysis(InlineEngine().context, analysis)

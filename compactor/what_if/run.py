"""One analysis in the worker: the job, and the driver's evaluation of its figures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from ledgerfold.compactor.job.engine import Engine
from ledgerfold.compactor.job.plan import cut_segments, input_segments
from ledgerfold.compactor.job.plan_check import check_input
from ledgerfold.compactor.job.work import PROCESS_ENDED
from ledgerfold.compactor.strategies.strategic import MessageStrategy
from ledgerfold.compactor.strategies.strategy import Strategy
from ledgerfold.compactor.what_if.forecasts import (
    Tried,
    candidate,
    differences,
    forecast,
    input_of,
)
from ledgerfold.compactor.what_if.history import read_history
from ledgerfold.compactor.what_if.job import Analysis, Figures, analysis_cut, run_analysis
from ledgerfold.compactor.what_if.lifetimes import read_lifetimes
from ledgerfold.compactor.what_if.replays import replays_of
from ledgerfold.compactor.what_if.rows import Survivors
from ledgerfold.compactor.what_if.work import STAGE, STRATEGIES_MAX, AnalysisWork
from ledgerfold.storage.errors import (
    InvalidRequest,
    InvalidStrategy,
    LedgerfoldError,
    StrategyFailed,
)
from ledgerfold.v1.compactor_pb2 import AnalyzeRequest
from ledgerfold.v1.records_pb2 import CompactionStrategy
from ledgerfold.v1.what_if_pb2 import Replay, StrategyForecast, TopicWhatIf

DIFFERENCES_MAX = 1_000
REPLAYS_MAX = 100
# Messages times user-defined strategies: 100 MB of bits in the driver and in each task.
COMPARED_MAX = 800_000_000


class _UserResult(NamedTuple):
    """The result of a user-defined strategy. `survivors` None: not requested, or it failed."""

    forecast: StrategyForecast
    survivors: Survivors | None = None


class AnalysisRun(AnalysisWork):
    def __init__(
        self, request: AnalyzeRequest, engine: Engine, trials: Sequence[Tried] = ()
    ) -> None:
        """Validates a request. `trials`: the trials of its strategies, in order.

        Raises InvalidRequest, UnknownStrategy if it is invalid.
        """
        if len(request.strategies) > STRATEGIES_MAX:
            raise InvalidRequest(f"At most {STRATEGIES_MAX} strategies are analysed at once.")
        if not request.strategies:
            raise InvalidRequest("Name a strategy.")
        if len(request.replays) > REPLAYS_MAX:
            raise InvalidRequest(f"At most {REPLAYS_MAX} triggers are replayed at once.")
        if not 0 <= request.differences_max <= DIFFERENCES_MAX:
            raise InvalidRequest(f"At most {DIFFERENCES_MAX} keys are listed.")
        if request.differences_max and len(request.strategies) < 2:
            raise InvalidRequest("A comparison needs at least two strategies.")
        super().__init__(engine, request.plan.topic)
        self._request = request
        self._segments = input_segments(request.plan, check_input)
        self._history = input_segments(request.history, check_input) if request.replays else ()
        self._candidates = [
            candidate(each, request.plan.time_ms, own)
            for each, own in zip_longest(request.strategies, trials)
        ]
        self._check_comparable()
        requested, strategy, _ = self._candidates[0]
        if request.replays and strategy is None:
            raise InvalidRequest(
                f"{requested.name} cannot be replayed: several runs of a user-defined strategy may "
                "retain other messages than a single run."
            )

    def _check_comparable(self) -> None:
        """Raises InvalidRequest if a comparison would be too large."""
        own = sum(each.strategy is None for each in self._candidates)
        messages = sum(each.record.messages for each in self._segments)
        if self._request.differences_max and own * messages > COMPARED_MAX:
            raise InvalidRequest(
                f"The topic has {messages} messages. For {own} user-defined strategies, at most "
                f"{COMPARED_MAX // own} messages can be compared: omit --diff."
            )

    def _execute(self) -> TopicWhatIf:
        request, candidates = self._request, self._candidates
        own = {
            at: self._of_user_defined(each.requested, each.own)
            for at, each in enumerate(candidates)
            if each.strategy is None
        }
        strategies = {
            at: each.strategy for at, each in enumerate(candidates) if each.strategy is not None
        }
        survivors = {at: each.survivors for at, each in own.items() if each.survivors is not None}
        # The order is that of the job's results.
        compared = [*strategies, *survivors]
        analysis = Analysis(
            analysis_cut(self._segments, self._engine.cores, tuple(strategies.values())),
            tuple(strategies.values()),
            request.plan.retain_null_key,
            # A single forecast is not compared.
            request.differences_max if len(compared) > 1 else 0,
            earlier=tuple(survivors.values()),
        )
        figures = run_analysis(self._engine.context, analysis)
        forecasts = {at: each.forecast for at, each in own.items()}
        for number, at in enumerate(strategies):
            forecasts[at] = forecast(candidates[at].requested, figures, number)
        answer = TopicWhatIf(input=input_of(figures))
        answer.forecasts.extend(forecasts[at] for at in range(len(candidates)))
        if analysis.differences_max:
            order = sorted(range(len(compared)), key=compared.__getitem__)
            differing = figures.differing.in_order(order)
            answer.differences.CopyFrom(
                differences(differing, self._segments, self._check_cancelled)
            )
        if request.replays:
            answer.replays.extend(self._replays())
        return answer

    def _of_user_defined(self, requested: CompactionStrategy, own: Tried) -> _UserResult:
        """Analyses one strategy alone, within its limits: a failure affects its forecast only."""
        try:
            figures = self._user_figures(own)
        except (InvalidStrategy, StrategyFailed) as error:
            return _UserResult(StrategyForecast(strategy=requested, not_forecast=error.message))
        is_compared = self._request.differences_max > 0
        return _UserResult(forecast(requested, figures), figures.survivors if is_compared else None)

    def _user_figures(self, own: Tried) -> Figures:
        """Runs its analysis. Raises InvalidStrategy, StrategyFailed, and errors of an analysis."""
        self._check_cancelled()
        assert own is not None
        if isinstance(own, InvalidStrategy):
            raise own
        strategies = (own.strategy,)
        cut = analysis_cut(self._segments, self._engine.cores, strategies)
        analysis = Analysis(
            cut,
            strategies,
            self._request.plan.retain_null_key,
            0,
            returns_survivors=self._request.differences_max > 0,
        )
        try:
            with self._engine.code_of(own):
                return run_analysis(self._engine.context, analysis)
        except LedgerfoldError:
            raise
        except self._engine.failures as error:
            self._check_cancelled()
            if not self._engine.is_end_of_process(error):
                raise
            raise StrategyFailed(own.name, f"in {STAGE}", PROCESS_ENDED) from error

    def _replays(self) -> list[Replay]:
        """Replays the history under the first strategy."""
        request, (requested, strategy, _) = self._request, self._candidates[0]
        context, cores = self._engine.context, self._engine.cores
        reads_event_times, lifetimes = False, None
        if isinstance(strategy, Strategy):
            reads_event_times = strategy.reads_event_times
        runs = cut_segments(self._history, cores).scans
        history = read_history(context, runs, reads_event_times)
        if isinstance(strategy, MessageStrategy):
            self._check_cancelled()
            cut = cut_segments(self._history, cores, (strategy,))
            lifetimes = read_lifetimes(context, cut, strategy)
        retain = request.plan.retain_null_key
        return replays_of(
            history, requested, request.replays, retain, self._check_cancelled, lifetimes
        )

"""One analysis in the worker: the Spark job, and what the driver makes of its figures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, zip_longest

from py4j.protocol import Py4JJavaError

from ledgerfold.compactor.plan import cut_segments, input_segments
from ledgerfold.compactor.plan_check import check_input
from ledgerfold.compactor.session import Session
from ledgerfold.compactor.spark_run import WORKER_ENDED, is_end_of_worker
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
from ledgerfold.compactor.what_if.spark_analysis import STAGE, SparkAnalysis
from ledgerfold.storage.errors import (
    InvalidRequest,
    InvalidStrategy,
    StrategyFailed,
)
from ledgerfold.v1.compactor_pb2 import AnalyzeRequest
from ledgerfold.v1.records_pb2 import CompactionStrategy
from ledgerfold.v1.what_if_pb2 import Replay, StrategyForecast, TopicWhatIf

STRATEGIES_MAX = 16
DIFFERENCES_MAX = 1_000
REPLAYS_MAX = 100


class AnalysisRun(SparkAnalysis):
    def __init__(
        self, request: AnalyzeRequest, session: Session, tried: Sequence[Tried] = ()
    ) -> None:
        """`tried`: of the strategies, in their order.

        Raises InvalidRequest, UnknownStrategy when the request makes no sense.
        """
        if len(request.strategies) > STRATEGIES_MAX:
            raise InvalidRequest(f"{STRATEGIES_MAX} strategies at most are asked about at once.")
        if not request.strategies:
            raise InvalidRequest("Name a strategy.")
        if len(request.replays) > REPLAYS_MAX:
            raise InvalidRequest(f"{REPLAYS_MAX} times to compact at most are tried at once.")
        if not 0 <= request.differences_max <= DIFFERENCES_MAX:
            raise InvalidRequest(f"{DIFFERENCES_MAX} keys at most are listed.")
        super().__init__(session, request.plan.topic)
        self._request = request
        self._segments = input_segments(request.plan, check_input)
        self._history = input_segments(request.history, check_input) if request.replays else ()
        self._candidates = [
            candidate(each, request.plan.time_ms, own)
            for each, own in zip_longest(request.strategies, tried)
        ]
        asked, strategy, _ = self._candidates[0]
        if request.replays and strategy is None:
            raise InvalidRequest(
                f"{asked.name} cannot be replayed: what runs of one of your own leave, one upon "
                "the other, may not be what one leaves over all."
            )

    def _execute(self) -> TopicWhatIf:
        request = self._request
        strategies = tuple(each.strategy for each in self._candidates if each.strategy is not None)
        # Where there is no forecast, nothing differs.
        differences_max = request.differences_max if strategies else 0
        analysis = Analysis(
            analysis_cut(self._segments, self._session.cores, strategies),
            strategies,
            request.plan.retain_null_key,
            differences_max,
        )
        figures = run_analysis(self._session.context, analysis)
        found = TopicWhatIf(input=input_of(figures))
        numbers = count()
        for each in self._candidates:
            if each.strategy is not None:
                found.forecasts.append(forecast(each.asked, figures, next(numbers)))
            else:
                found.forecasts.append(self._of_own(each.asked, each.own))
        if differences_max:
            found.differences.CopyFrom(
                differences(figures.differing, self._segments, self._check_cancelled)
            )
        if request.replays:
            found.replays.extend(self._replays())
        return found

    def _of_own(self, asked: CompactionStrategy, own: Tried) -> StrategyForecast:
        """Asked alone, within its bounds: what goes wrong with it is told of it alone."""
        try:
            return forecast(asked, self._figures_of_own(own))
        except (InvalidStrategy, StrategyFailed) as error:
            return StrategyForecast(strategy=asked, not_forecast=error.message)

    def _figures_of_own(self, own: Tried) -> Figures:
        """Raises InvalidStrategy, StrategyFailed, and what an analysis raises."""
        self._check_cancelled()
        assert own is not None
        if isinstance(own, InvalidStrategy):
            raise own
        strategies = (own.strategy,)
        cut = analysis_cut(self._segments, self._session.cores, strategies)
        analysis = Analysis(cut, strategies, self._request.plan.retain_null_key, 0)
        try:
            with self._session.code_of(own):
                return run_analysis(self._session.context, analysis)
        except Py4JJavaError as error:
            self._check_cancelled()
            if not is_end_of_worker(error):
                raise
            raise StrategyFailed(own.name, f"in {STAGE}", WORKER_ENDED) from error

    def _replays(self) -> list[Replay]:
        """Of the history, under the first strategy."""
        request, (asked, strategy, _) = self._request, self._candidates[0]
        context, cores = self._session.context, self._session.cores
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
        return replays_of(history, asked, request.replays, retain, self._check_cancelled, lifetimes)

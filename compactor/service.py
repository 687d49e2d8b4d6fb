"""The compactor service: runs plans on the one engine, one at a time, and analyses in between.

A Run call streams progress, at most ten times a second and only on a change, then the manifest. If
the client abandons the call, its run ends as with Cancel.

A user-defined strategy is tried before its run or analysis begins, and at CheckStrategy; it
describes its decisions at DescribeDecisions (compactor/user_strategies/sandbox.py). None of these
waits for a run in progress.

Every call carries the worker's secret in its metadata (SECRET_KEY): a plan names files to read, and
a folder to create and remove, so it is not accepted from any process that finds the port.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from google.protobuf.message import Message

from ledgerfold.compactor.job.engine import Engine
from ledgerfold.compactor.job.pipeline import Clock
from ledgerfold.compactor.job.run import CompactionRun
from ledgerfold.compactor.job.running import RunningCompaction
from ledgerfold.compactor.job.work import EngineRun, Result
from ledgerfold.compactor.strategies.registry import MAKERS
from ledgerfold.compactor.user_strategies.own import Own
from ledgerfold.compactor.user_strategies.sandbox import Trials
from ledgerfold.compactor.what_if.work import STRATEGIES_MAX, AnalysisWork, RunningAnalysis
from ledgerfold.rpc_errors import abort_on_error, abort_with
from ledgerfold.rpc_texts import remember_request
from ledgerfold.storage.errors import (
    CompactionCancelled,
    CompactorUnavailable,
    InvalidRequest,
    InvalidStrategy,
    NotAllowed,
)
from ledgerfold.storage.files import Files
from ledgerfold.strategies.catalogue import listed
from ledgerfold.strategies.loading import is_own
from ledgerfold.v1.compactor_pb2 import (
    AnalyzeRequest,
    AnalyzeResponse,
    CancelRequest,
    CancelResponse,
    CheckStrategyRequest,
    CheckStrategyResponse,
    CleanRequest,
    CleanResponse,
    CompactionPlan,
    DecisionMessage,
    DescribeDecisionsRequest,
    DescribeDecisionsResponse,
    GetCompactorInfoRequest,
    GetCompactorInfoResponse,
    RunRequest,
    RunResponse,
)
from ledgerfold.v1.compactor_pb2_grpc import CompactorServiceServicer
from ledgerfold.v1.records_pb2 import CompactionStrategy

if TYPE_CHECKING:
    from ledgerfold.compactor.what_if.forecasts import Tried

NAME = "ledgerfold.v1.CompactorService"
# The maximum number of messages of one key in a DescribeDecisions call.
CHOICES_MAX = 1_000
# The service's name in compactor.proto.
SECRET_KEY = "ledgerfold-compactor-secret-bin"
Response = TypeVar("Response")


class CompactorService(CompactorServiceServicer):
    """The service. `executor` has one thread, so that runs queue up. `engine`: None until it is up.
    `info` describes the worker. `runs_requested`: the number of runs and analyses requested so far.
    `allows_faults`: whether a plan may name a point at which the worker kills itself; if not, the
    broker fails the run when it is done (broker/faults/compaction.py).
    """

    def __init__(
        self,
        executor: Executor,
        files: Files,
        clock: Clock,
        info: GetCompactorInfoResponse,
        secret: bytes,
        trials: Trials,
        *,
        allows_faults: bool = False,
    ) -> None:
        self.engine: Engine | None = None
        self.runs_requested = 0
        self._trials, self._allows_faults = trials, allows_faults
        # The trials of strategies whose runs have not begun, by run.
        self._trying: dict[str, asyncio.Task[Own]] = {}
        self._secret = secret
        self._why_stopped = ""
        self._executor, self._files, self._clock = executor, files, clock
        self.info = info
        self._runs: dict[str, RunningCompaction[Any]] = {}
        self._analyses: set[RunningAnalysis] = set()

    async def Run(  # noqa: N802 - the wire contract's name
        self, request: RunRequest, context: Any
    ) -> AsyncIterator[RunResponse]:
        async with self._answering(request, context):
            has_vectors = request.HasField("plan_with_vectors")
            plan = request.plan_with_vectors if has_vectors else request.plan
            if not self._allows_faults:
                plan.ClearField("crash_at")
            own = await self._own_of(plan)
            engine = self._check_startable(plan.run_id)
            run = CompactionRun(plan, engine, self._files, self._clock, own)
            async for answer in self._to_its_end(run, RunResponse, context):
                yield answer

    async def Clean(  # noqa: N802
        self, request: CleanRequest, context: Any
    ) -> AsyncIterator[CleanResponse]:
        # A first compaction does not wait for this module.
        from ledgerfold.compactor.kafka.run import CleanRun

        async with self._answering(request, context):
            engine = self._check_startable(request.plan.run_id)
            run = CleanRun(request.plan, engine, self._files, self._clock)
            async for answer in self._to_its_end(run, CleanResponse, context):
                yield answer

    async def Cancel(  # noqa: N802
        self, request: CancelRequest, context: Any
    ) -> CancelResponse:
        async with self._answering(request, context):
            run = self._runs.get(request.run_id)
            trying = self._trying.get(request.run_id)
            if run is not None:
                run.cancel()
            if trying is not None:
                trying.cancel()
            return CancelResponse(found=run is not None or trying is not None)
        raise AssertionError("abort_on_error ends the call")

    async def Analyze(  # noqa: N802
        self, request: AnalyzeRequest, context: Any
    ) -> AnalyzeResponse:
        async with self._answering(request, context):
            engine = self._ready_engine()
            if request.HasField("plan_with_vectors"):
                request.plan.CopyFrom(request.plan_with_vectors)
            tried = await self._run_trials(request.strategies[:STRATEGIES_MAX])

            analysis = RunningAnalysis(
                partial(_analysis_of, request, engine, tried), self._executor
            )
            self._analyses.add(analysis)
            context.add_done_callback(lambda _: analysis.cancel())
            try:
                return AnalyzeResponse(found=await analysis.result())
            finally:
                self._analyses.discard(analysis)
                # An abandoned call ends here at once; its analysis ends a moment later.
                analysis.cancel()

    async def GetCompactorInfo(  # noqa: N802
        self, request: GetCompactorInfoRequest, context: Any
    ) -> GetCompactorInfoResponse:
        await self._check_secret(context)
        return self.info

    async def CheckStrategy(  # noqa: N802
        self, request: CheckStrategyRequest, context: Any
    ) -> CheckStrategyResponse:
        async with self._answering(request, context):
            own = await self._trials.of(request.strategy.name, request.strategy.settings)
            return CheckStrategyResponse(name=own.name, version=own.version, kind=own.kind)
        raise AssertionError("abort_on_error ends the call")

    async def DescribeDecisions(  # noqa: N802
        self, request: DescribeDecisionsRequest, context: Any
    ) -> DescribeDecisionsResponse:
        async with self._answering(request, context):
            if len(request.messages) > CHOICES_MAX:
                raise InvalidRequest(f"A call may contain at most {CHOICES_MAX} messages.")
            name, settings = request.strategy.name, request.strategy.settings
            choices = await self._trials.choices(name, settings, [*map(_as_json, request.messages)])
            answer = DescribeDecisionsResponse(why=choices.get("why", ""))
            for left, right, words in choices.get("choices", ()):
                answer.choices.add(left=left, right=right, words=words)
            return answer
        raise AssertionError("abort_on_error ends the call")

    async def stop(self, why: str) -> None:
        """Fails all runs, accepts no more, and waits until their files are removed."""
        self._why_stopped = why
        for analysis in self._analyses:
            analysis.cancel()
        runs = list(self._runs.values())
        for run in runs:
            run.cancel(why)
        for trying in self._trying.values():
            trying.cancel()
        await asyncio.gather(*(run.ended() for run in runs))

    @asynccontextmanager
    async def _answering(self, request: Message, context: Any) -> AsyncIterator[None]:
        """Answers a call: checks its secret, and aborts it on an error."""
        async with abort_on_error(context):
            await self._check_secret(context)
            remember_request(request)
            yield

    async def _check_secret(self, context: Any) -> None:
        secret = dict(context.invocation_metadata() or ()).get(SECRET_KEY, b"")
        if not hmac.compare_digest(secret, self._secret):
            refusal = NotAllowed(
                "The call does not have this worker's secret. Start the broker with the worker's "
                "LEDGERFOLD_COMPACTOR_SECRET."
            )
            await abort_with(context, refusal, grpc.StatusCode.PERMISSION_DENIED)

    def _ready_engine(self) -> Engine:
        if self._why_stopped:
            raise CompactorUnavailable(f"The compactor is stopping: {self._why_stopped}.")
        if self.engine is None:
            raise CompactorUnavailable("The compactor is starting. Try again when it is ready.")
        self.runs_requested += 1
        return self.engine

    async def _own_of(self, plan: CompactionPlan) -> Own | None:
        """Tries the user-defined strategy that the plan names. Returns None if it names a built-in
        one.

        Raises InvalidStrategy, CompactionCancelled, CompactorUnavailable.
        """
        if plan.strategy in MAKERS or not is_own(plan.strategy):
            return None
        self._check_startable(plan.run_id)
        trial = self._trials.of(plan.strategy, plan.strategy_settings)
        trying = self._trying[plan.run_id] = asyncio.create_task(trial)
        try:
            await asyncio.wait({trying})
        finally:
            # No effect if it is done; otherwise the caller has abandoned the call.
            trying.cancel()
            del self._trying[plan.run_id]
        if trying.cancelled():
            self._check_startable(plan.run_id)
            raise CompactionCancelled("The compaction was cancelled.")
        return trying.result()

    async def _run_trials(self, strategies: Sequence[CompactionStrategy]) -> list[Tried]:
        """Tries the user-defined ones among `strategies`."""

        async def run_trial(requested: CompactionStrategy) -> Tried:
            if listed(requested.name) is not None or not is_own(requested.name):
                return None
            try:
                return await self._trials.of(requested.name, requested.settings)
            except InvalidStrategy as error:
                return error

        return await asyncio.gather(*map(run_trial, strategies))

    async def _to_its_end(
        self, run: EngineRun[Result], response: Callable[..., Response], context: Any
    ) -> AsyncIterator[Response]:
        """Starts a run. Yields its progress, then its manifest."""
        run_id = run.run_id
        running = RunningCompaction(run, self._executor, lambda: self._forget(run_id))
        self._runs[run_id] = running
        for analysis in self._analyses:
            analysis.preempt()
        context.add_done_callback(lambda _: running.cancel())
        async for progress in running.progress():
            yield response(progress=progress)
        yield response(manifest=await running.result())

    def _check_startable(self, run_id: str) -> Engine:
        engine = self._ready_engine()
        if run_id in self._runs or run_id in self._trying:
            raise InvalidRequest(f"Run {run_id!r} is already in progress.")
        return engine

    @property
    def is_idle(self) -> bool:
        """True if no run and no analysis is in progress."""
        return not (self._runs or self._trying or self._analyses)

    def _forget(self, run_id: str) -> None:
        del self._runs[run_id]


def _analysis_of(request: AnalyzeRequest, engine: Engine, trials: Sequence[Tried]) -> AnalysisWork:
    # A first compaction does not wait for these modules.
    from ledgerfold.compactor.what_if.kafka.replays import KafkaAnalysisRun
    from ledgerfold.compactor.what_if.run import AnalysisRun

    if request.HasField("kafka"):
        return KafkaAnalysisRun(request.kafka, engine)
    return AnalysisRun(request, engine, trials)


def _as_json(message: DecisionMessage) -> dict[str, Any]:
    """Encodes a message for the process of a trial (compactor/user_strategies/samples.py)."""
    at = message.id
    return {
        "key": message.key.decode(errors="surrogateescape"),
        "value": base64.b64encode(message.value).decode(),
        "properties": dict(message.properties),
        "event_time_ms": message.event_time_ms,
        "publish_time_ms": message.publish_time_ms,
        "message_id": (at.ledger_id, at.entry_id, at.batch_index),
    }

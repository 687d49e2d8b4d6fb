"""The compactor service: runs plans on the one session, one after the other, and analyses between.

A Run call streams progress, at most ten times a second and only when it changed, then the manifest.
A call that its client gave up ends its run as Cancel does.

A strategy of one's own is tried before its run or its analysis begins, at CheckStrategy, and asked
for its words at TellChoices (trial.py): none of these waits for other runs.

Every call carries the worker's secret in its metadata (SECRET_KEY): a plan names files that are
read, and a folder that is made and removed, so it is not taken from just any process that finds the
port.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Executor
from typing import Any

import grpc

from ledgerfold.compactor.kafka.run import CleanRun
from ledgerfold.compactor.pipeline import Clock
from ledgerfold.compactor.run import CompactionRun
from ledgerfold.compactor.running import RunningCompaction
from ledgerfold.compactor.session import Session
from ledgerfold.compactor.spark_run import Result, SparkRun
from ledgerfold.compactor.strategies.own import Own
from ledgerfold.compactor.strategies.registry import MAKERS
from ledgerfold.compactor.trial import Trials
from ledgerfold.compactor.what_if.forecasts import Tried
from ledgerfold.compactor.what_if.kafka.run import KafkaAnalysisRun
from ledgerfold.compactor.what_if.run import STRATEGIES_MAX, AnalysisRun
from ledgerfold.compactor.what_if.running import RunningAnalysis
from ledgerfold.compactor.what_if.spark_analysis import SparkAnalysis
from ledgerfold.rpc_errors import abort_with, errors_told_to
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
    GetCompactorInfoRequest,
    GetCompactorInfoResponse,
    RunRequest,
    RunResponse,
    TellChoicesRequest,
    TellChoicesResponse,
    ToldMessage,
)
from ledgerfold.v1.compactor_pb2_grpc import CompactorServiceServicer
from ledgerfold.v1.records_pb2 import CompactionStrategy

NAME = "ledgerfold.v1.CompactorService"
# Of one key.
CHOICES_MAX = 1_000
# As compactor.proto has it.
SECRET_KEY = "ledgerfold-compactor-secret-bin"


class CompactorService(CompactorServiceServicer):
    """`executor` has one thread, so that runs queue up. `session` is None until Spark is warm."""

    def __init__(
        self,
        executor: Executor,
        files: Files,
        clock: Clock,
        info: GetCompactorInfoResponse,
        secret: bytes,
        trials: Trials,
    ) -> None:
        self.session: Session | None = None
        self._trials = trials
        # Of runs that have not begun, by run.
        self._trying: dict[str, asyncio.Task[Own]] = {}
        self._secret = secret
        self._why_stopped = ""
        self._executor, self._files, self._clock, self._info = executor, files, clock, info
        self._runs: dict[str, RunningCompaction[Any]] = {}
        self._analyses: set[RunningAnalysis] = set()

    async def Run(  # noqa: N802 - the wire contract's name
        self, request: RunRequest, context: Any
    ) -> AsyncIterator[RunResponse]:
        async with errors_told_to(context):
            await self._check_secret(context)
            remember_request(request)
            plan = request.plan
            own = await self._own_of(plan)
            session = self._check_startable(plan.run_id)
            run = self._start(CompactionRun(plan, session, self._files, self._clock, own))
            context.add_done_callback(lambda _: run.cancel())
            async for progress in run.progress():
                yield RunResponse(progress=progress)
            yield RunResponse(manifest=await run.result())

    async def Clean(  # noqa: N802
        self, request: CleanRequest, context: Any
    ) -> AsyncIterator[CleanResponse]:
        async with errors_told_to(context):
            await self._check_secret(context)
            remember_request(request)
            session = self._check_startable(request.plan.run_id)
            run = self._start(CleanRun(request.plan, session, self._files, self._clock))
            context.add_done_callback(lambda _: run.cancel())
            async for progress in run.progress():
                yield CleanResponse(progress=progress)
            yield CleanResponse(manifest=await run.result())

    async def Cancel(  # noqa: N802
        self, request: CancelRequest, context: Any
    ) -> CancelResponse:
        async with errors_told_to(context):
            await self._check_secret(context)
            remember_request(request)
            run = self._runs.get(request.run_id)
            trying = self._trying.get(request.run_id)
            if run is not None:
                run.cancel()
            if trying is not None:
                trying.cancel()
            return CancelResponse(found=run is not None or trying is not None)
        raise AssertionError("errors_told_to ends the call")

    async def Analyze(  # noqa: N802
        self, request: AnalyzeRequest, context: Any
    ) -> AnalyzeResponse:
        async with errors_told_to(context):
            await self._check_secret(context)
            remember_request(request)
            session = self._ready_session()
            tried = await self._tried(request.strategies[:STRATEGIES_MAX])

            def made() -> SparkAnalysis:
                if request.HasField("kafka"):
                    return KafkaAnalysisRun(request.kafka, session)
                return AnalysisRun(request, session, tried)

            analysis = RunningAnalysis(made, self._executor)
            self._analyses.add(analysis)
            context.add_done_callback(lambda _: analysis.cancel())
            try:
                return AnalyzeResponse(found=await analysis.result())
            finally:
                self._analyses.discard(analysis)
                # A call that was given up ends here at once, what it asked for a moment later.
                analysis.cancel()

    async def GetCompactorInfo(  # noqa: N802
        self, request: GetCompactorInfoRequest, context: Any
    ) -> GetCompactorInfoResponse:
        await self._check_secret(context)
        return self._info

    async def CheckStrategy(  # noqa: N802
        self, request: CheckStrategyRequest, context: Any
    ) -> CheckStrategyResponse:
        async with errors_told_to(context):
            await self._check_secret(context)
            remember_request(request)
            own = await self._trials.of(request.strategy.name, request.strategy.settings)
            return CheckStrategyResponse(name=own.name, version=own.version, kind=own.kind)
        raise AssertionError("errors_told_to ends the call")

    async def TellChoices(  # noqa: N802
        self, request: TellChoicesRequest, context: Any
    ) -> TellChoicesResponse:
        async with errors_told_to(context):
            await self._check_secret(context)
            remember_request(request)
            if len(request.messages) > CHOICES_MAX:
                raise InvalidRequest(f"{CHOICES_MAX} messages at most are asked about at once.")
            name, settings = request.strategy.name, request.strategy.settings
            told = await self._trials.choices(name, settings, [*map(_as_json, request.messages)])
            answer = TellChoicesResponse(why=told.get("why", ""))
            for left, right, words in told.get("choices", ()):
                answer.choices.add(left=left, right=right, words=words)
            return answer
        raise AssertionError("errors_told_to ends the call")

    async def stop(self, why: str) -> None:
        """Fails all runs and waits for their ends: their files are gone then. Takes no more."""
        self._why_stopped = why
        for analysis in self._analyses:
            analysis.cancel()
        runs = list(self._runs.values())
        for run in runs:
            run.cancel(why)
        for trying in self._trying.values():
            trying.cancel()
        await asyncio.gather(*(run.ended() for run in runs))

    async def _check_secret(self, context: Any) -> None:
        given = dict(context.invocation_metadata() or ()).get(SECRET_KEY, b"")
        if not hmac.compare_digest(given, self._secret):
            refusal = NotAllowed(
                "This worker serves those who know its secret: give the broker the same "
                "LEDGERFOLD_COMPACTOR_SECRET."
            )
            await abort_with(context, refusal, grpc.StatusCode.PERMISSION_DENIED)

    def _ready_session(self) -> Session:
        if self._why_stopped:
            raise CompactorUnavailable(f"The compactor is ending: {self._why_stopped}.")
        if self.session is None:
            raise CompactorUnavailable("The compactor is starting. Try again when it serves.")
        return self.session

    async def _own_of(self, plan: CompactionPlan) -> Own | None:
        """The strategy of one's own that the plan names, tried.

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
            # Without effect when it is done; else the caller is gone.
            trying.cancel()
            del self._trying[plan.run_id]
        if trying.cancelled():
            self._check_startable(plan.run_id)
            raise CompactionCancelled("The compaction was cancelled.")
        return trying.result()

    async def _tried(self, strategies: Sequence[CompactionStrategy]) -> list[Tried]:
        """Of each that is asked about."""

        async def tried(asked: CompactionStrategy) -> Tried:
            if listed(asked.name) is not None or not is_own(asked.name):
                return None
            try:
                return await self._trials.of(asked.name, asked.settings)
            except InvalidStrategy as error:
                return error

        return await asyncio.gather(*map(tried, strategies))

    def _start(self, run: SparkRun[Result]) -> RunningCompaction[Result]:
        run_id = run.run_id
        running = RunningCompaction(run, self._executor, lambda: self._forget(run_id))
        self._runs[run_id] = running
        for analysis in self._analyses:
            analysis.give_way()
        return running

    def _check_startable(self, run_id: str) -> Session:
        session = self._ready_session()
        if run_id in self._runs or run_id in self._trying:
            raise InvalidRequest(f"Run {run_id!r} is on its way already.")
        return session

    def _forget(self, run_id: str) -> None:
        del self._runs[run_id]


def _as_json(message: ToldMessage) -> dict[str, Any]:
    """For the process of a trial (choices.py)."""
    at = message.id
    return {
        "key": message.key.decode(errors="surrogateescape"),
        "value": base64.b64encode(message.value).decode(),
        "properties": dict(message.properties),
        "event_time_ms": message.event_time_ms,
        "publish_time_ms": message.publish_time_ms,
        "message_id": (at.ledger_id, at.entry_id, at.batch_index),
    }

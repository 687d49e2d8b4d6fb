"""The compactor service: runs plans on the one session, one after the other, and analyses between.

A Run call streams progress, at most ten times a second and only when it changed, then the manifest.
A call that its client gave up ends its run as Cancel does.

Every call carries the worker's secret in its metadata (SECRET_KEY): a plan names files that are
read, and a folder that is made and removed, so it is not taken from just any process that finds the
port.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from typing import Any

import grpc

from ledgerfold.compactor.pipeline import Clock
from ledgerfold.compactor.run import CompactionRun
from ledgerfold.compactor.running import RunningCompaction
from ledgerfold.compactor.session import Session
from ledgerfold.compactor.what_if.run import AnalysisRun
from ledgerfold.compactor.what_if.running import RunningAnalysis
from ledgerfold.rpc_errors import abort_with, errors_told_to
from ledgerfold.storage.errors import CompactorUnavailable, InvalidRequest, NotAllowed
from ledgerfold.storage.files import Files
from ledgerfold.v1.compactor_pb2 import (
    AnalyzeRequest,
    AnalyzeResponse,
    CancelRequest,
    CancelResponse,
    CompactionPlan,
    GetCompactorInfoRequest,
    GetCompactorInfoResponse,
    RunRequest,
    RunResponse,
)
from ledgerfold.v1.compactor_pb2_grpc import CompactorServiceServicer

NAME = "ledgerfold.v1.CompactorService"
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
    ) -> None:
        self.session: Session | None = None
        self._secret = secret
        self._why_stopped = ""
        self._executor, self._files, self._clock, self._info = executor, files, clock, info
        self._runs: dict[str, RunningCompaction] = {}
        self._analyses: set[RunningAnalysis] = set()

    async def Run(  # noqa: N802 - the wire contract's name
        self, request: RunRequest, context: Any
    ) -> AsyncIterator[RunResponse]:
        async with errors_told_to(context):
            await self._check_secret(context)
            run = self._start(request.plan)
            context.add_done_callback(lambda _: run.cancel())
            async for progress in run.progress():
                yield RunResponse(progress=progress)
            yield RunResponse(manifest=await run.result())

    async def Cancel(  # noqa: N802
        self, request: CancelRequest, context: Any
    ) -> CancelResponse:
        await self._check_secret(context)
        run = self._runs.get(request.run_id)
        if run is not None:
            run.cancel()
        return CancelResponse(found=run is not None)

    async def Analyze(  # noqa: N802
        self, request: AnalyzeRequest, context: Any
    ) -> AnalyzeResponse:
        async with errors_told_to(context):
            await self._check_secret(context)
            session = self._ready_session()
            analysis = RunningAnalysis(lambda: AnalysisRun(request, session), self._executor)
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

    async def stop(self, why: str) -> None:
        """Fails all runs and waits for their ends: their files are gone then. Takes no more."""
        self._why_stopped = why
        for analysis in self._analyses:
            analysis.cancel()
        runs = list(self._runs.values())
        for run in runs:
            run.cancel(why)
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

    def _start(self, plan: CompactionPlan) -> RunningCompaction:
        session = self._ready_session()
        if plan.run_id in self._runs:
            raise InvalidRequest(f"Run {plan.run_id!r} is on its way already.")
        run = RunningCompaction(
            CompactionRun(plan, session, self._files, self._clock),
            self._executor,
            lambda: self._forget(plan.run_id),
        )
        self._runs[plan.run_id] = run
        for analysis in self._analyses:
            analysis.give_way()
        return run

    def _forget(self, run_id: str) -> None:
        del self._runs[run_id]

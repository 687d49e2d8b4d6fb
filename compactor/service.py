"""The compactor service: runs plans on the one session, one after the other.

A Run call streams progress, at most ten times a second and only when it changed, then the manifest.
A call that its client gave up ends its run as Cancel does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from typing import Any

from ledgerfold.v1.compactor_pb2 import (
    CancelRequest,
    CancelResponse,
    CompactionPlan,
    GetCompactorInfoRequest,
    GetCompactorInfoResponse,
    RunRequest,
    RunResponse,
)
from ledgerfold.v1.compactor_pb2_grpc import CompactorServiceServicer

from compactor.pipeline import Clock
from compactor.rpc_errors import abort_with
from compactor.run import CompactionRun
from compactor.running import RunningCompaction
from compactor.session import Session
from storage.errors import CompactorUnavailable, InvalidRequest, LedgerfoldError
from storage.files import Files

NAME = "ledgerfold.v1.CompactorService"


class CompactorService(CompactorServiceServicer):
    """`executor` has one thread, so that runs queue up. `session` is None until Spark is warm."""

    def __init__(
        self, executor: Executor, files: Files, clock: Clock, info: GetCompactorInfoResponse
    ) -> None:
        self.session: Session | None = None
        self._executor, self._files, self._clock, self._info = executor, files, clock, info
        self._runs: dict[str, RunningCompaction] = {}

    async def Run(  # noqa: N802 - the wire contract's name
        self, request: RunRequest, context: Any
    ) -> AsyncIterator[RunResponse]:
        try:
            run = self._start(request.plan)
            context.add_done_callback(lambda _: run.cancel())
            async for progress in run.progress():
                yield RunResponse(progress=progress)
            yield RunResponse(manifest=await run.result())
        except LedgerfoldError as error:
            await abort_with(context, error)

    async def Cancel(  # noqa: N802
        self, request: CancelRequest, context: Any
    ) -> CancelResponse:
        run = self._runs.get(request.run_id)
        if run is not None:
            run.cancel()
        return CancelResponse(found=run is not None)

    async def GetCompactorInfo(  # noqa: N802
        self, request: GetCompactorInfoRequest, context: Any
    ) -> GetCompactorInfoResponse:
        return self._info

    async def stop(self) -> None:
        """Cancels all runs and waits for their ends: their files are gone then."""
        runs = list(self._runs.values())
        for run in runs:
            run.cancel()
        await asyncio.gather(*(run.ended() for run in runs))

    def _start(self, plan: CompactionPlan) -> RunningCompaction:
        if self.session is None:
            raise CompactorUnavailable("The compactor is starting. Try again when it serves.")
        if plan.run_id in self._runs:
            raise InvalidRequest(f"Run {plan.run_id!r} is on its way already.")
        run = RunningCompaction(
            CompactionRun(plan, self.session, self._files, self._clock),
            self._executor,
            lambda: self._forget(plan.run_id),
        )
        self._runs[plan.run_id] = run
        return run

    def _forget(self, run_id: str) -> None:
        del self._runs[run_id]

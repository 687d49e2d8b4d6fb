"""The channel to a worker, and the calls on it.

If a run does not succeed, the caller gets an error of storage/errors.py:

* the error in the worker's ErrorInfo: Corruption, MissingFile, DiskFailure, CompactionFailed,
  CompactorUnavailable (it is about to end, and has begun nothing), ...
* if the worker dies during the run: CompactionFailed, with the phase and the exit code or signal;
* CANCELLED without details: CompactionCancelled; anything else: CompactionFailed.

A cancelled caller leaves no run behind: the run is cancelled in the worker, and its end awaited, so
that nothing writes into the run's folder afterwards. A worker that does not end it in time is
killed.
"""

from __future__ import annotations

import asyncio
from typing import Any, Generic, TypeVar

import grpc

from ledgerfold.broker.worker.compactor import OnProgress, needs_new_worker
from ledgerfold.broker.worker.process import WorkerProcess
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.errors import (
    CompactionCancelled,
    CompactionError,
    CompactionFailed,
    CompactorUnavailable,
    InvalidRequest,
    LedgerfoldError,
    StorageError,
)
from ledgerfold.v1.admin_pb2 import (
    COMPACTION_PHASE_ONE,
    COMPACTION_PHASE_TWO,
    CompactionProgress,
)
from ledgerfold.v1.compactor_pb2 import (
    AnalyzeRequest,
    CancelRequest,
    CheckStrategyRequest,
    CleanManifest,
    CleanPlan,
    CleanRequest,
    CompactionPlan,
    DescribeDecisionsRequest,
    DescribeDecisionsResponse,
    Manifest,
    RunRequest,
)
from ledgerfold.v1.compactor_pb2_grpc import CompactorServiceStub
from ledgerfold.v1.records_pb2 import CompactionStrategy
from ledgerfold.v1.what_if_pb2 import TopicWhatIf
from ledgerfold.version import __version__

# Defined in compactor.proto.
SECRET_KEY = "ledgerfold-compactor-secret-bin"
MESSAGE_BYTES_MAX = 256 * 1024 * 1024
CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    # The worker is local: proxies in the environment do not apply.
    ("grpc.enable_http_proxy", 0),
)
# The time that a broken call waits for the worker's death, its cause, and the end of all processes
# that the worker started.
_DEATH_SECONDS = 20.0
_STAGES = {COMPACTION_PHASE_ONE: "phase one", COMPACTION_PHASE_TWO: "phase two"}
_RunCall = grpc.aio.UnaryStreamCall[Any, Any]
_M = TypeVar("_M", Manifest, CleanManifest)


class WorkerConnection:
    """The connection to one worker. `process` None: a worker started elsewhere.

    `ended` gets the reason of its end, once none of its processes is left. `secret`: required by
    the worker.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        process: WorkerProcess | None,
        secret: str,
        cancel_seconds: float,
    ) -> None:
        self.process = process
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._stub: Any = CompactorServiceStub(channel)
        self._metadata = ((SECRET_KEY, secret.encode()),)
        self._cancel_seconds = cancel_seconds

    async def run(self, plan: CompactionPlan, on_progress: OnProgress) -> Manifest:
        """Runs a compaction plan. Raises CompactionError, StorageError."""
        request = RunRequest(plan=plan)
        mark_vectors(request)
        responses = self._stub.Run(request, metadata=self._metadata)
        call = _Call[Manifest](responses, on_progress)
        # A plan that kills its worker may do so before the worker's answer has left it.
        call.has_begun = bool(plan.crash_at)
        return await self._outcome(call, plan.run_id)

    async def clean(self, plan: CleanPlan) -> CleanManifest:
        """Runs one cleaning of a Kafka log. Raises like run()."""
        responses = self._stub.Clean(CleanRequest(plan=plan), metadata=self._metadata)
        return await self._outcome(_Call[CleanManifest](responses, _ignore_progress), plan.run_id)

    async def _outcome(self, call: _Call[_M], run_id: str) -> _M:
        reading = asyncio.create_task(call.read())
        try:
            await self._done_or_ended(reading)
            return await self._result(call, reading)
        except asyncio.CancelledError:
            await self._abandon(run_id, reading)
            raise
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def analyze(self, request: AnalyzeRequest) -> TopicWhatIf:
        """Runs a what-if analysis; cancelling the caller's task ends it in the worker.

        Raises CompactionError, StorageError, InvalidRequest.
        """
        mark_vectors(request)
        try:
            response = await self._stub.Analyze(request, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise _mapped(error, "what-if") from None
        except asyncio.CancelledError:
            raise _lost_error() from None
        found: TopicWhatIf = response.found
        return found

    async def cancel(self, run_id: str) -> bool:
        """Cancels a run, whose call ends soon; returns whether the worker knows it.

        Raises grpc.RpcError.
        """
        request = CancelRequest(run_id=run_id)
        return bool((await self._stub.Cancel(request, metadata=self._metadata)).found)

    async def check_strategy(self, strategy: CompactionStrategy) -> None:
        """Checks a user-defined strategy. Raises InvalidStrategy, CompactorUnavailable."""
        request = CheckStrategyRequest(strategy=strategy)
        try:
            # NOTE: its port listens before Spark is up, and a remote worker may start later.
            await self._stub.CheckStrategy(request, metadata=self._metadata, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            named = _named_error(error)
            if isinstance(named, InvalidRequest):
                raise named from None
            raise CompactorUnavailable(named.message) from error
        except asyncio.CancelledError:
            raise _lost_error() from None

    async def describe_decisions(
        self, request: DescribeDecisionsRequest
    ) -> DescribeDecisionsResponse:
        """Returns a user-defined strategy's descriptions. Raises CompactorUnavailable."""
        try:
            answer = await self._stub.DescribeDecisions(request, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise CompactorUnavailable(_named_error(error).message) from error
        except asyncio.CancelledError:
            raise _lost_error() from None
        choices: DescribeDecisionsResponse = answer
        return choices

    async def _done_or_ended(self, reading: asyncio.Task[Any]) -> None:
        either: set[asyncio.Future[Any]] = {reading, self.ended}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)

    async def _result(self, call: _Call[_M], reading: asyncio.Task[_M]) -> _M:
        if reading.done() and not reading.cancelled():
            error = reading.exception()
            if error is None:
                return reading.result()
            if not isinstance(error, grpc.aio.AioRpcError):
                raise error
            named = _mapped(error, call.stage)
            is_broken = _is_broken(error, has_ended=self.ended.done())
            if not is_broken or isinstance(named, CompactorUnavailable):
                raise named
            await asyncio.wait({self.ended}, timeout=_DEATH_SECONDS)
            if not self.ended.done():
                raise named
        why = self.ended.result()
        if not call.has_begun:
            raise CompactorUnavailable(f"The compactor ended before it began the run ({why}).")
        raise CompactionFailed(call.stage, f"the worker died ({why})", worker_died=True)

    async def _abandon(self, run_id: str, reading: asyncio.Task[Any]) -> None:
        ending = asyncio.create_task(self._end_in_worker(run_id, reading))
        # NOTE: in a task that is being cancelled, asyncio.timeout() mistakes the cancellation for
        # its timeout, in the first releases of Python 3.11.
        await asyncio.wait({ending}, timeout=self._cancel_seconds)
        has_ended = ending.done() and ending.exception() is None
        ending.cancel()
        outcome = (await asyncio.gather(ending, return_exceptions=True))[0]
        if not has_ended and self.process is not None:
            await self.process.kill()
        if isinstance(outcome, Exception) and not isinstance(outcome, grpc.RpcError):
            raise outcome

    async def _end_in_worker(self, run_id: str, reading: asyncio.Task[Any]) -> None:
        await self.cancel(run_id)
        await self._done_or_ended(reading)


class _Call(Generic[_M]):
    """A Run or Clean call being read, and its stage."""

    def __init__(self, responses: _RunCall, on_progress: OnProgress) -> None:
        self.stage = "start"
        # The worker answers as soon as it has accepted the run.
        self.has_begun = False
        self._responses, self._on_progress = responses, on_progress

    async def read(self) -> _M:
        async for response in self._responses:
            self.has_begun = True
            if response.WhichOneof("step") == "manifest":
                manifest: _M = response.manifest
                return manifest
            self.stage = _STAGES.get(response.progress.phase, self.stage)
            self._on_progress(response.progress)
        raise CompactionFailed(self.stage, "the worker ended the run without a manifest")


def _ignore_progress(progress: CompactionProgress) -> None:
    """Ignores the progress of a cleaning."""


def _named_error(error: grpc.aio.AioRpcError) -> LedgerfoldError:
    if error.code() == grpc.StatusCode.UNIMPLEMENTED:
        return CompactorUnavailable(
            f"The compactor does not have this call: its version is older than the broker's, "
            f"{__version__}. Restart it with the broker's version."
        )
    return error_from_rpc(error)


def _is_broken(error: grpc.aio.AioRpcError, *, has_ended: bool) -> bool:
    """Returns whether the connection broke: gRPC's codes for that have no name of an error.

    CANCELLED: the channel was closed, because the worker had ended.
    """
    if error.code() == grpc.StatusCode.CANCELLED:
        return has_ended and not isinstance(_named_error(error), CompactionError)
    return error.code() == grpc.StatusCode.UNAVAILABLE


def _mapped(error: grpc.aio.AioRpcError, stage: str) -> LedgerfoldError:
    named = _named_error(error)
    if isinstance(named, CompactionError | StorageError | InvalidRequest):
        return named
    if error.code() == grpc.StatusCode.CANCELLED:
        return CompactionCancelled(named.message)
    return CompactionFailed(stage, named.message)


def mark_vectors(request: RunRequest | AnalyzeRequest) -> None:
    """Moves a feature that not every worker supports to a field of the plan that only workers with
    support read.
    """
    if needs_new_worker(request.plan):
        request.plan_with_vectors.CopyFrom(request.plan)
        request.ClearField("plan")


def _lost_error() -> BaseException:
    """Returns the error of a call that was cancelled: its task's, or that of a closed channel."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        return asyncio.CancelledError()
    return CompactorUnavailable("The connection to the compactor was closed.")

"""The choice of a broker's compactor: the supervised worker, or a user's compaction service in its
place (ledgerfold/compaction_service.py).

A service is untrusted code in the broker's process: it runs in a separate thread and event loop,
its errors are reported, its results checked, and waits for it are bounded. Its output is verified
like a worker's (broker/compaction/commit.py).

  >>> load_service("fractions:Fraction")
  Traceback (most recent call last):
    ...
  ledgerfold.errors.InvalidRequest: --compaction-service fractions:Fraction: ...
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from functools import reduce
from typing import Any

from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.worker.compactor import Compactor, OnProgress, has_vectors
from ledgerfold.broker.worker.supervisor import CompactorSupervisor
from ledgerfold.compaction_service import CompactionService
from ledgerfold.storage.errors import (
    CompactionFailed,
    CompactorUnavailable,
    InvalidRequest,
    InvalidStrategy,
    LedgerfoldError,
    NotAllowed,
)
from ledgerfold.strategies.loading import describe_error
from ledgerfold.v1.admin_pb2 import (
    COMPACTOR_STATE_DISABLED,
    COMPACTOR_STATE_UNAVAILABLE,
    CompactionProgress,
)
from ledgerfold.v1.compactor_pb2 import (
    AnalyzeRequest,
    CleanManifest,
    CleanPlan,
    CompactionPlan,
    DescribeDecisionsRequest,
    DescribeDecisionsResponse,
    Manifest,
)
from ledgerfold.v1.records_pb2 import CompactionStrategy
from ledgerfold.v1.what_if_pb2 import TopicWhatIf

# The time for a cancelled run to end, and for close().
END_SECONDS = 10.0
_log = logging.getLogger(__name__)


def compactor_of(settings: BrokerSettings) -> Compactor:
    """Creates the configured compactor. Raises InvalidRequest if there is no such service."""
    name = settings.compaction_service
    if name is None:
        return CompactorSupervisor(settings)
    return ServiceCompactor(name, load_service(name))


def load_service(name: str) -> CompactionService:
    """Calls the factory "module:Factory". Raises InvalidRequest."""
    module_name, _, attribute = name.partition(":")
    if not (module_name and attribute):
        raise _refused(name, "use module:Factory, or Pulsar's name of a factory")
    try:
        module: Any = importlib.import_module(module_name)
        factory = reduce(getattr, attribute.split("."), module)
        service: CompactionService = factory()
    except Exception as error:  # user code: it may raise anything
        raise _refused(name, f"it cannot be created ({describe_error(error)})") from error
    for method in ("run", "close"):
        if not asyncio.iscoroutinefunction(getattr(service, method, None)):
            kind = type(service).__name__
            raise _refused(name, f"its result, {kind}, has no `async def {method}`")
    return service


def _refused(name: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"--compaction-service {name}: {why}.")


class _Call:
    """A coroutine on the service's loop that can be observed from the broker's."""

    def __init__(self, work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Its task, once that has ended.
        self._ended: Future[asyncio.Task[Any]] = Future()
        # Set on the service's loop.
        self._task: asyncio.Task[Any] | None = None
        loop.call_soon_threadsafe(self._begin, work)

    def _begin(self, work: Coroutine[Any, Any, Any]) -> None:
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(self._ended.set_result)

    async def ended(self, timeout_seconds: float | None = None) -> asyncio.Task[Any] | None:
        """Returns its task once that has ended; None if it has not within the timeout.

        Cancelling the caller has no effect.
        """
        await asyncio.wait({asyncio.wrap_future(self._ended)}, timeout=timeout_seconds)
        return self._ended.result() if self._ended.done() else None

    def cancel(self) -> None:
        """Requests its cancellation."""
        self._loop.call_soon_threadsafe(lambda: self._task is not None and self._task.cancel())


def _error_of(ended: asyncio.Task[Any]) -> BaseException | None:
    return None if ended.cancelled() else ended.exception()


class ServiceCompactor(Compactor):
    """A compactor backed by a service. `name`: the option's value."""

    def __init__(
        self, name: str, service: CompactionService, end_seconds: float = END_SECONDS
    ) -> None:
        self._name, self._service, self._end_seconds = name, service, end_seconds
        self._loop = asyncio.new_event_loop()
        # NOTE: a daemon thread, so that a hanging service does not keep the process.
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)

    def start(self) -> None:
        """Starts its thread; the service was created before the broker."""
        self._thread.start()

    async def describe_decisions(
        self, request: DescribeDecisionsRequest
    ) -> DescribeDecisionsResponse:
        raise CompactorUnavailable(f"{self._name} cannot explain the decisions of a strategy.")

    async def stop(self) -> None:
        """Closes the service, within the time limit: the broker continues to stop."""
        self.state, self.message = COMPACTOR_STATE_DISABLED, "The broker is stopping."
        closed = await _Call(self._service.close(), self._loop).ended(self._end_seconds)
        if closed is None:
            _log.error("%s did not close within %g s", self._name, self._end_seconds)
            return
        if (error := _error_of(closed)) is not None:
            _log.error("%s was not closed: %s", self._name, describe_error(error), exc_info=error)
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join, self._end_seconds)
        if not self._thread.is_alive():
            self._loop.close()

    async def check_strategy(self, strategy: CompactionStrategy) -> None:
        check: Any = getattr(self._service, "check_strategy", None)
        if check is None:
            raise InvalidStrategy(strategy.name, f"{self._name} does not check strategies")
        checking = _Call(check(strategy), self._loop)
        checked = await checking.ended(self._end_seconds)
        if checked is None:
            checking.cancel()
            raise CompactorUnavailable(
                f"{self._name} did not check strategy {strategy.name!r} within "
                f"{self._end_seconds:g} s."
            )
        error = _error_of(checked)
        if isinstance(error, LedgerfoldError):
            raise error
        if error is not None:
            raise InvalidStrategy(
                strategy.name, f"{self._name}: {describe_error(error)}"
            ) from error

    async def clean(self, plan: CleanPlan) -> CleanManifest:
        """Raises CompactorUnavailable: a service executes plans of Pulsar topics only."""
        raise CompactorUnavailable(
            "A compaction service cannot clean Kafka topics: start the broker without "
            "--compaction-service for those."
        )

    async def analyze(self, request: AnalyzeRequest) -> TopicWhatIf:
        raise NotAllowed(f"Only the Spark worker can run a what-if analysis, not {self._name}.")

    async def run(self, plan: CompactionPlan, on_progress: OnProgress) -> Manifest:
        """Runs a plan. Raises CompactionFailed, and Ledgerfold errors that the service raises.

        If cancelled, it ends the service's run first. If a service's run continues anyway, the
        service gets no other: it may write at any time.
        """
        if self.state == COMPACTOR_STATE_UNAVAILABLE:
            raise CompactorUnavailable(self.message)
        if has_vectors(plan) and not getattr(self._service, "reads_deletion_vectors", False):
            raise CompactionFailed(
                self._name,
                "the previous ledger has dead messages, which it does not support. Compact the "
                "topic once with the worker and --compaction-segment-garbage-max 0",
            )
        loop = asyncio.get_running_loop()

        def report(progress: CompactionProgress) -> None:
            loop.call_soon_threadsafe(on_progress, progress)

        running = _Call(self._service.run(plan, report), self._loop)
        try:
            ended = await running.ended()
        except asyncio.CancelledError:
            running.cancel()
            if await running.ended(self._end_seconds) is None:
                self._give_up()
            raise
        assert ended is not None
        return self._manifest(ended)

    def _give_up(self) -> None:
        self.state = COMPACTOR_STATE_UNAVAILABLE
        self.message = (
            f"{self._name} did not end a cancelled run within {self._end_seconds:g} s; restart the "
            "broker."
        )
        _log.error("%s", self.message)

    def _manifest(self, ended: asyncio.Task[Any]) -> Manifest:
        if ended.cancelled():
            raise CompactionFailed(self._name, "it cancelled the run")
        error = ended.exception()
        if isinstance(error, LedgerfoldError):
            raise error
        if error is not None:
            raise CompactionFailed(self._name, describe_error(error)) from error
        manifest = ended.result()
        if not isinstance(manifest, Manifest):
            raise CompactionFailed(
                self._name, f"it returned {type(manifest).__name__}, not a Manifest"
            )
        return manifest

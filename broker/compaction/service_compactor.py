"""A compaction service of the user's own in the worker's place (ledgerfold/compaction_service.py).

It is foreign code in the broker's process, so its errors are told, its answers looked at, and its
ends not waited for without a bound. What it writes is verified as a worker's is (commit.py).

    >>> load_service("fractions:Fraction")
    Traceback (most recent call last):
      ...
    ledgerfold.storage.errors.InvalidRequest: --compaction-service fractions:Fraction: ...
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from functools import reduce
from typing import Any

from ledgerfold.broker.compaction.interfaces import OnProgress
from ledgerfold.compaction_service import CompactionService
from ledgerfold.storage.errors import (
    CompactionFailed,
    CompactorUnavailable,
    InvalidRequest,
    InvalidStrategy,
    LedgerfoldError,
    NotAllowed,
)
from ledgerfold.v1.admin_pb2 import (
    COMPACTOR_STATE_DISABLED,
    COMPACTOR_STATE_READY,
    COMPACTOR_STATE_UNAVAILABLE,
    CompactorState,
)
from ledgerfold.v1.compactor_pb2 import AnalyzeRequest, CompactionPlan, Manifest
from ledgerfold.v1.records_pb2 import CompactionStrategy
from ledgerfold.v1.what_if_pb2 import TopicWhatIf

# For a cancelled run to end, and for close().
END_SECONDS = 10.0
_log = logging.getLogger(__name__)


def load_service(name: str) -> CompactionService:
    """Calls the factory "module:Factory". Raises InvalidRequest."""
    module_name, _, attribute = name.partition(":")
    if not (module_name and attribute):
        raise _refused(name, "write it as module:Factory, or as Pulsar's name of a factory")
    try:
        module: Any = importlib.import_module(module_name)
        factory = reduce(getattr, attribute.split("."), module)
        service: CompactionService = factory()
    except Exception as error:  # a person's code: it may raise anything
        raise _refused(name, f"it cannot be made ({_said(error)})") from error
    for method in ("run", "close"):
        if not asyncio.iscoroutinefunction(getattr(service, method, None)):
            kind = type(service).__name__
            raise _refused(name, f"what it makes, {kind}, has no `async def {method}`")
    return service


def _refused(name: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"--compaction-service {name}: {why}.")


def _said(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]:.300}" if lines else type(error).__name__


class ServiceCompactor:
    """As the supervisor (supervisor.py) to the broker. `name`: as the option has it."""

    restarts = 0
    pid = 0

    def __init__(
        self, name: str, service: CompactionService, end_seconds: float = END_SECONDS
    ) -> None:
        self.state: CompactorState = COMPACTOR_STATE_READY
        self.message = ""
        self._name, self._service, self._end_seconds = name, service, end_seconds

    @property
    def is_disabled(self) -> bool:
        return self.state == COMPACTOR_STATE_DISABLED

    def start(self) -> None:
        """It was made before the broker."""

    def retry_now(self) -> None:
        """It is never away for a while."""

    async def stop(self) -> None:
        """Whatever it does: the broker goes on to stop."""
        self.state, self.message = COMPACTOR_STATE_DISABLED, "The broker is stopping."
        closing: asyncio.Task[None] = asyncio.ensure_future(self._service.close())
        await asyncio.wait({closing}, timeout=self._end_seconds)
        if not closing.done():
            closing.cancel()
            _log.error("%s did not close within %g s", self._name, self._end_seconds)
        elif not closing.cancelled() and (error := closing.exception()) is not None:
            _log.error("%s was not closed: %s", self._name, _said(error), exc_info=error)

    async def check_strategy(self, strategy: CompactionStrategy) -> None:
        """Raises InvalidStrategy."""
        check: Any = getattr(self._service, "check_strategy", None)
        if check is None:
            raise InvalidStrategy(strategy.name, f"{self._name} checks no strategies")
        try:
            await check(strategy)
        except LedgerfoldError:
            raise
        except Exception as error:  # a person's code: it may raise anything
            raise InvalidStrategy(strategy.name, f"{self._name} says {_said(error)}") from error

    async def analyze(self, request: AnalyzeRequest) -> TopicWhatIf:
        """Raises NotAllowed."""
        raise NotAllowed(
            f"What strategies would come to, only Spark's worker tells, not {self._name}."
        )

    async def run(self, plan: CompactionPlan, on_progress: OnProgress) -> Manifest:
        """Raises CompactionFailed, and what of our own errors the service raises.

        Cancelled, it ends the service's run first. One that goes on all the same gets no other:
        it may write at any time.
        """
        if self.state == COMPACTOR_STATE_UNAVAILABLE:
            raise CompactorUnavailable(self.message)
        running: asyncio.Task[Manifest] = asyncio.ensure_future(
            self._service.run(plan, on_progress)
        )
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait({running}, timeout=self._end_seconds)
            if not running.done():
                self._give_up()
            raise
        return self._manifest(running)

    def _give_up(self) -> None:
        self.state = COMPACTOR_STATE_UNAVAILABLE
        self.message = (
            f"{self._name} did not end a cancelled run within {self._end_seconds:g} s; restart the "
            "broker."
        )
        _log.error("%s", self.message)

    def _manifest(self, running: asyncio.Task[Manifest]) -> Manifest:
        if running.cancelled():
            raise CompactionFailed(self._name, "it cancelled the run by itself")
        error = running.exception()
        if isinstance(error, LedgerfoldError):
            raise error
        if error is not None:
            raise CompactionFailed(self._name, _said(error)) from error
        manifest: object = running.result()
        if not isinstance(manifest, Manifest):
            raise CompactionFailed(self._name, f"it gave {type(manifest).__name__}, not a Manifest")
        return manifest

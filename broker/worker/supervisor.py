"""The supervision of a compactor worker: it is restarted whenever it ends.

The worker is a child process (`--compactor auto`, `spark`, `inline`), or one that runs elsewhere
(its address). The broker never waits for it: it serves while Spark starts, and without any Spark.

States (admin.proto, CompactorState) and their transitions:

  STARTING     no worker was ready yet        -> READY | RESTARTING | UNAVAILABLE
  READY        its health is SERVING; for `auto`, `message` tells why it compacts inline
                                              -> RESTARTING (it died, or stopped serving, for
               example because its JVM died; its runs still report how they ended)
  RESTARTING   it died; restarting after 0.5 s, 1 s, ... 30 s, and from 0.5 s again after a
               healthy minute                 -> READY | RESTARTING | UNAVAILABLE
  UNAVAILABLE  it cannot work here (with `spark`: no Java, no PySpark, or Spark does not start;
               `message` says why); retried every 30 s and at the next admin trigger     -> STARTING
  DISABLED     `--compactor off`

Health is grpc.health.v1 (health.py).

A worker accepts plans only with its secret: a generated one for a child process, and
LEDGERFOLD_COMPACTOR_SECRET of the broker's environment for one that runs elsewhere. Each worker has
its own scratch folder, and a run ends only when no process of its worker is left (remains.py): two
workers never overlap.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import grpc

from ledgerfold.broker.common.settings import ENGINES
from ledgerfold.broker.common.shielding import first_of
from ledgerfold.broker.worker.compactor import Compactor, OnProgress
from ledgerfold.broker.worker.connection import CHANNEL_OPTIONS, WorkerConnection
from ledgerfold.broker.worker.health import (
    PAUSE_MAX_MS,
    STOPPED,
    Health,
    SupervisorLimits,
    follow_health,
    pause_after_ms,
)
from ledgerfold.broker.worker.process import WorkerProcess, worker_command
from ledgerfold.broker.worker.remains import end_left_over, new_scratch, remove_scratch
from ledgerfold.storage.errors import CompactorUnavailable
from ledgerfold.storage.names import COMPACTOR
from ledgerfold.v1.admin_pb2 import (
    COMPACTOR_STATE_DISABLED,
    COMPACTOR_STATE_READY,
    COMPACTOR_STATE_RESTARTING,
    COMPACTOR_STATE_STARTING,
    COMPACTOR_STATE_UNAVAILABLE,
    CompactorState,
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

if TYPE_CHECKING:
    from ledgerfold.broker.common.settings import BrokerSettings

SECRET_VARIABLE = "LEDGERFOLD_COMPACTOR_SECRET"
_NO_SECRET = (
    f"Set {SECRET_VARIABLE} to the secret of the compactor at {{}}, and restart the broker."
)
WARMING_UP = "Spark is warming up, which usually takes 2 to 10 s."
_STARTING_UP = "The compactor is starting."
_UNCHECKED = "Strategy {!r} is user-defined: a compactor must check it before it is set. {}"
_log = logging.getLogger(__name__)
Sleep = Callable[[float], Awaitable[object]]
_T = TypeVar("_T")


class Ending(NamedTuple):
    """The reason a worker ended. `is_hopeless`: an early retry would fail again."""

    why: str
    is_hopeless: bool = False


class CompactorSupervisor(Compactor):
    """The supervisor of one broker's worker. `command` replaces the real worker in tests.

    `clock_ms` measures how long a worker was healthy; its zero does not matter.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        clock_ms: Callable[[], int] | None = None,
        *,
        command: Sequence[str] | None = None,
        sleep: Sleep = asyncio.sleep,
        limits: SupervisorLimits | None = None,
    ) -> None:
        self.state = COMPACTOR_STATE_STARTING
        self._settings, self._sleep = settings, sleep
        self._clock_ms = clock_ms or _monotonic_ms
        self._command = command
        self._limits = limits or SupervisorLimits()
        self._connection: WorkerConnection | None = None
        self._process: WorkerProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready_ms: int | None = None
        self._is_warming_up = False
        # The description of a ready worker, if its engine is not the preferred one.
        self._notice = ""
        self._retry = asyncio.Event()
        self._changed = asyncio.Event()
        if settings.compactor == "off":
            self._set(COMPACTOR_STATE_DISABLED, "The compactor is off (--compactor off).")

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    def start(self) -> None:
        if self._task is None and not self.is_disabled:
            self._task = asyncio.create_task(self._supervise())

    async def launch(self) -> None:
        self.start()
        if self._task is not None:
            changed = asyncio.ensure_future(self._changed.wait())
            # A defect ends the task without a change.
            await asyncio.wait({changed, self._task}, return_when=asyncio.FIRST_COMPLETED)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._set(COMPACTOR_STATE_DISABLED, "The broker is stopping.")

    def retry_now(self) -> None:
        if self.state == COMPACTOR_STATE_UNAVAILABLE:
            self._set(COMPACTOR_STATE_STARTING, self.message)
        self._retry.set()

    async def run(self, plan: CompactionPlan, on_progress: OnProgress) -> Manifest:
        """Runs a plan in the worker, after waiting for it to be ready.

        Raises CompactorUnavailable, CompactionFailed (also if the worker dies),
        CompactionCancelled, StorageError. Cancelling the caller's task first ends the run in the
        worker.
        """
        return await self._in_worker(lambda connection: connection.run(plan, on_progress))

    async def clean(self, plan: CleanPlan) -> CleanManifest:
        return await self._in_worker(lambda connection: connection.clean(plan))

    async def _in_worker(self, work: Callable[[WorkerConnection], Awaitable[_T]]) -> _T:
        connection = await self.wait_ready()
        try:
            return await work(connection)
        except CompactorUnavailable:
            # It has ended or is about to, and has begun nothing: the next worker gets the plan.
            if not await self._is_over(connection):
                raise
        return await work(await self.wait_ready())

    async def analyze(self, request: AnalyzeRequest) -> TopicWhatIf:
        return await (await self.wait_ready()).analyze(request)

    async def check_strategy(self, strategy: CompactionStrategy) -> None:
        """Checks the strategy before Spark is ready if need be."""
        try:
            async with asyncio.timeout(self._limits.check):
                await (await self._any_connection()).check_strategy(strategy)
        except (TimeoutError, CompactorUnavailable) as error:
            late = f"No check within {self._limits.check:g} s. {self.message}"
            why = late if isinstance(error, TimeoutError) else str(error)
            raise CompactorUnavailable(_UNCHECKED.format(strategy.name, why)) from error

    async def describe_decisions(
        self, request: DescribeDecisionsRequest
    ) -> DescribeDecisionsResponse:
        """Returns the descriptions before Spark is ready if need be."""
        try:
            async with asyncio.timeout(self._limits.check):
                return await (await self._any_connection()).describe_decisions(request)
        except TimeoutError:
            raise CompactorUnavailable(self.message or "It did not answer in time.") from None

    async def _any_connection(self) -> WorkerConnection:
        """Returns a connection to a worker that may not be ready for runs."""
        while self._connection is None:
            await self._next_state()
        return self._connection

    async def _next_state(self) -> None:
        """Waits for a state change. Raises CompactorUnavailable if no worker will start."""
        if self.state in (COMPACTOR_STATE_UNAVAILABLE, COMPACTOR_STATE_DISABLED):
            raise CompactorUnavailable(self.message)
        await self._changed.wait()

    async def _is_over(self, connection: WorkerConnection) -> bool:
        """Returns whether the connection ends within a worker's time to stop."""
        timeout_seconds = self._limits.cancel + self._limits.stop
        await asyncio.wait({connection.ended}, timeout=timeout_seconds)
        return connection.ended.done()

    async def known(self) -> None:
        starting = (COMPACTOR_STATE_STARTING, COMPACTOR_STATE_RESTARTING)
        while self.state in starting and not self._is_warming_up:
            await self._changed.wait()

    async def wait_ready(self) -> WorkerConnection:
        """Returns the connection to a ready worker.

        Raises CompactorUnavailable if none can run or is ready in time.
        """
        try:
            async with asyncio.timeout(self._limits.ready):
                while self.state != COMPACTOR_STATE_READY or self._connection is None:
                    await self._next_state()
                return self._connection
        except TimeoutError:
            raise CompactorUnavailable(
                f"The compactor was not ready within {self._limits.ready:g} s. {self.message}"
            ) from None

    # The supervision loop

    async def _supervise(self) -> None:
        pause_ms = 0
        while True:
            self._ready_ms, self._is_warming_up = None, False
            ending = await self._life()
            healthy_ms = 0 if self._ready_ms is None else self._clock_ms() - self._ready_ms
            pause_ms = pause_after_ms(pause_ms, healthy_ms)
            if ending.is_hopeless:
                if self.message != ending.why:
                    _log.error("The compactor is unavailable: %s", ending.why)
                self._set(COMPACTOR_STATE_UNAVAILABLE, ending.why)
                await self._pause(PAUSE_MAX_MS)
                self._set(COMPACTOR_STATE_STARTING, self.message)
            else:
                _log.warning("The compactor ended (%s); restart in %d ms", ending.why, pause_ms)
                self._set(COMPACTOR_STATE_RESTARTING, f"The last worker ended: {ending.why}.")
                await self._pause(pause_ms)
                self.restarts += 1

    async def _life(self) -> Ending:
        """Runs one worker, from its start to its end."""
        if self._settings.compactor not in ENGINES:
            secret = os.environ.get(SECRET_VARIABLE, "")
            if not secret:
                return Ending(_NO_SECRET.format(self._settings.compactor), is_hopeless=True)
            return await self._serve(self._settings.compactor, None, secret)
        data_dir = self._settings.data_dir
        try:
            await asyncio.to_thread(end_left_over, data_dir)
            scratch = await asyncio.to_thread(new_scratch, data_dir)
        except OSError as error:
            return Ending(f"it could not be started: {error}")
        try:
            return await self._live_in(scratch, data_dir / COMPACTOR / "worker.log")
        finally:
            await asyncio.to_thread(remove_scratch, scratch)

    async def _live_in(self, scratch: Path, log_path: Path) -> Ending:
        command = self._command or worker_command(self._settings, scratch)
        secret = secrets.token_hex()
        try:
            process = await WorkerProcess.start(
                command, log_path, scratch.name, {SECRET_VARIABLE: secret}
            )
        except OSError as error:
            return Ending(f"it could not be started: {error}")
        self._process = process
        self._wake()
        try:
            address = await process.listening(self._limits.listening)
            ending = Ending("it did not report its port")
            if address is not None:
                process.on_engine = partial(self._report_engine, process)
                self._report_engine(process)
                ending = await self._serve(address, process, secret)
        finally:
            self._process = None
            await process.stop(self._limits.stop)
        if process.is_unavailable:
            return Ending(process.unavailable_message or f"See {log_path}.", is_hopeless=True)
        return ending

    async def _serve(self, address: str, process: WorkerProcess | None, secret: str) -> Ending:
        """Serves runs until the process or its health stream ends; a child process is ended."""
        async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
            connection = WorkerConnection(channel, process, secret, self._limits.cancel)
            self._connection = connection
            self._wake()
            following = follow_health(
                channel, self._limits.warm, self._limits.leave, self._on_health
            )
            watching = asyncio.create_task(following)
            why = "the broker stopped it"
            try:
                exited = set() if process is None else {process.exited}
                await asyncio.wait({watching, *exited}, return_when=asyncio.FIRST_COMPLETED)
                why = await self._why_ended(watching, process)
            finally:
                self._connection = None
                await self._close(connection, watching, why)
        return Ending(why)

    async def _close(
        self, connection: WorkerConnection, watching: asyncio.Task[str], why: str
    ) -> None:
        """Ends the worker first: a run that learns of its end removes the worker's files."""
        if self.state == COMPACTOR_STATE_READY:
            self._set(COMPACTOR_STATE_RESTARTING, f"The last worker ended: {why}.")
        try:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            if connection.process is not None:
                await connection.process.stop(self._limits.stop)
        finally:
            connection.ended.set_result(why)

    async def _why_ended(self, watching: asyncio.Task[str], process: WorkerProcess | None) -> str:
        if process is not None:
            # A dying worker loses its connections a moment before its exit is known.
            await asyncio.wait({process.exited}, timeout=1.0)
            if process.exited.done():
                return process.describe_exit()
        return watching.result()

    def _on_health(self, health: Health) -> None:
        self._is_warming_up = health is Health.WARMING_UP
        if health is Health.WARMING_UP:
            self._set(self.state, self._notice or self._warming_up)
        elif health is Health.READY:
            if self._ready_ms is None:
                self._ready_ms = self._clock_ms()
                _log.info("The compactor is ready")
            self._set(COMPACTOR_STATE_READY, self._notice)
        else:
            self._set(COMPACTOR_STATE_RESTARTING, f"The last worker ended: {STOPPED}.")

    @property
    def _warming_up(self) -> str:
        """Describes a worker that is not ready yet. The engine of one elsewhere is unknown."""
        is_spark = self._process is not None and self._process.engine == "spark"
        return WARMING_UP if is_spark else _STARTING_UP

    def _report_engine(self, process: WorkerProcess) -> None:
        """Logs, once, that the worker is inline though Spark was preferred; `message` says so."""
        notice = process.why_inline and f"Compacting inline: {process.why_inline}"
        if notice and notice != self._notice:
            _log.warning("%s", notice)
        self._notice = notice
        # Its health may have been reported before.
        if self.state == COMPACTOR_STATE_READY or (notice and self._is_warming_up):
            self._set(self.state, notice)

    def _set(self, state: CompactorState, message: str) -> None:
        self.state, self.message = state, message
        self._wake()

    def _wake(self) -> None:
        """Wakes tasks that wait for a state or for a worker."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _pause(self, pause_ms: int) -> None:
        self._retry.clear()
        await first_of(self._sleep(pause_ms / 1000), self._retry.wait())


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000

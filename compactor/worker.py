"""The worker process: a gRPC server and one engine (compactor/job/engine.py).

1. The port listens; one JSON line on standard output names it. Health says NOT_SERVING.
2. The engine starts, on a thread. Health says SERVING. A tiny run then warms Spark up; if a run is
   waiting, that run is executed first. If Spark fails before it is warm, and `--engine auto` was
   asked for, the inline engine takes its place; another JSON line names it, with the reason.
3. On a machine's first start of Spark the JVM's class-data archive is written, for later starts, as
   soon as nothing runs.
4. The end: SIGTERM, SIGINT, or, if standard input is a pipe from the parent, its end of file (the
   parent has ended). Health says NOT_SERVING, runs fail with the reason, the engine stops. A second
   signal exits at once. When Spark's JVM dies, so does the worker: its parent starts another.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import stat
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckResponse

from ledgerfold.compactor.job.engine import Engine
from ledgerfold.compactor.memory import process_tree
from ledgerfold.compactor.service import NAME, CompactorService
from ledgerfold.compactor.starting import EngineStart
from ledgerfold.compactor.strategies.watch import Limits
from ledgerfold.compactor.user_strategies.sandbox import Trials
from ledgerfold.storage.errors import CompactorUnavailable
from ledgerfold.storage.files import REAL
from ledgerfold.strategies.allowed import AllowedStrategies
from ledgerfold.v1.compactor_pb2_grpc import add_CompactorServiceServicer_to_server

EXIT_DONE = 0
EXIT_FAILED = 1
# A plan, or a manifest, names every segment file.
_MESSAGE_BYTES_MAX = 256 * 1024 * 1024
_GRACE_SECONDS = 2.0
# A start that takes longer hangs. It only has a limit if another engine can take its place.
_START_SECONDS = 120.0
# The time for cancelled runs to end. A thread may hang on a dead JVM.
_RUN_END_SECONDS = 15.0
_ENGINE_STOP_SECONDS = 5.0
# A broker with a waiting run sends it at once: the run does not wait for the warm-up.
_FIRST_RUN_SECONDS = 0.3
# The archive takes a processor for seconds: not while runs follow each other.
_IDLE_SECONDS = 1.0
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True)
class WorkerSettings:
    """The settings of a worker. `why`: the reason for its engine, if another one was preferred.

    `fallback`: the engine to use if `engine` fails before it is warm. `announce` prints an event.
    `secret`: required in every call.
    """

    listen: str
    engine: EngineStart
    fallback: EngineStart | None
    why: str
    announce: Callable[[dict[str, object]], None]
    secret: bytes
    # For user-defined strategies: the limits of a run, and the strategies that may be loaded.
    limits: Limits
    allowed: AllowedStrategies
    allows_faults: bool = False


class Worker:
    """The worker. Serves until it is stopped."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._start, self._fallback = settings.engine, settings.fallback
        self._executor = ThreadPoolExecutor(1, "jobs")
        self._stopping = asyncio.Event()
        self._why_stopped = "the worker was asked to stop"
        self._is_engine_dead = self._has_failed = False
        self._is_signalled = False
        self._abandoning: asyncio.Future[None] | None = None
        self._health = cast(Any, health).aio.HealthServicer()
        self._service = CompactorService(
            self._executor,
            REAL,
            time.time,
            settings.engine.info(),
            settings.secret,
            Trials(settings.limits, settings.allowed),
            allows_faults=settings.allows_faults,
        )

    async def run(self) -> int:
        """Serves until the end. Returns the exit code."""
        self._watch_signals()
        self._watch_parent()
        server = await self._listen()
        starting = asyncio.create_task(self._started())
        stopping = asyncio.create_task(self._stopping.wait())
        either: set[asyncio.Future[Any]] = {starting, stopping}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        code = EXIT_DONE
        if not self._stopping.is_set():
            code = await self._serve(starting, stopping)
        starting.cancel()
        # First, because health checks must not report it as ready while its runs end.
        await self._health.set(NAME, HealthCheckResponse.NOT_SERVING)
        try:
            async with asyncio.timeout(_RUN_END_SECONDS):
                await self._service.stop(self._why_stopped)
        except TimeoutError:
            _log.error("A run does not end; the broker removes its files")
        await server.stop(_GRACE_SECONDS)
        await self._stop_engine()
        return code

    async def _started(self) -> Engine:
        """Starts the engine, or else the fallback. Raises what the engine raises."""
        starting = self._in_daemon("start", self._start.start)
        limit_seconds = None if self._fallback is None else _START_SECONDS
        await asyncio.wait({starting}, timeout=limit_seconds)
        if not starting.done():
            _kill_all_started()
            return self._fall_back(f"{self._start.name} did not start within {limit_seconds:g} s")
        error = starting.exception()
        if error is None or self._fallback is None:
            return starting.result()
        return self._fall_back(str(error))

    def _fall_back(self, why: str) -> Engine:
        assert self._fallback is not None
        self._start, self._fallback = self._fallback, None
        self._service.info = self._start.info()
        self._settings.announce({"event": "engine", "engine": self._start.name, "why": why})
        _log.warning("The engine is %s from now on: %s", self._start.name, why)
        return self._start.start()

    async def _serve(self, starting: asyncio.Task[Engine], stopping: asyncio.Task[bool]) -> int:
        try:
            engine = starting.result()
        except CompactorUnavailable as error:
            self._settings.announce({"event": "unavailable", "message": error.message})
            return EXIT_FAILED
        except Exception:
            _log.exception("The engine did not start")
            return EXIT_FAILED
        self._service.engine = engine
        await self._health.set(NAME, HealthCheckResponse.SERVING)
        self._watch_engine(engine)
        preparing = asyncio.create_task(self._prepare(engine))
        await stopping
        preparing.cancel()
        if not self._has_failed:
            return EXIT_DONE
        _log.error("%s", self._why_stopped)
        return EXIT_FAILED

    async def _prepare(self, engine: Engine) -> None:
        """Warms up, and makes later starts faster, while nothing runs."""
        in_thread = partial(asyncio.get_running_loop().run_in_executor, self._executor)
        await self._idle(_FIRST_RUN_SECONDS)
        try:
            await in_thread(self._start.warm_up, engine)
        except Exception:
            if not self._stopping.is_set():
                _log.exception("The warm-up failed")
                self._failed(engine, f"{self._start.name} runs no job")
            return
        self._fallback = None
        await self._idle(_IDLE_SECONDS)
        await asyncio.wait(
            {self._in_daemon("after-start", partial(self._start.after_start, engine))}
        )

    def _failed(self, engine: Engine, why: str) -> None:
        """Ends the worker, unless another engine takes the place of one that has never worked."""
        if engine is not self._service.engine:
            return
        if self._fallback is None:
            self._has_failed, self._why_stopped = True, why
            self._stopping.set()
            return
        abandoned = self._start
        self._service.engine = self._fall_back(why)
        self._abandoning = self._in_daemon("abandon", abandoned.abandon)

    async def _idle(self, seconds: float) -> None:
        """Waits until, for this time, nothing has run and nothing was requested."""
        known = -1
        while self._service.runs_requested != known or not self._service.is_idle:
            known = self._service.runs_requested
            await asyncio.sleep(seconds)

    async def _listen(self) -> grpc.aio.Server:
        server = grpc.aio.server(
            options=[
                ("grpc.max_send_message_length", _MESSAGE_BYTES_MAX),
                ("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX),
                ("grpc.so_reuseport", 0),
            ]
        )
        await self._health.set(NAME, HealthCheckResponse.NOT_SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        add_CompactorServiceServicer_to_server(self._service, server)
        port = server.add_insecure_port(self._settings.listen)
        await server.start()
        engine, why = self._start.name, self._settings.why
        self._settings.announce(
            {"event": "listening", "port": port, "pid": os.getpid(), "engine": engine, "why": why}
        )
        return server

    async def _stop_engine(self) -> None:
        engine = self._service.engine
        if engine is None:
            _kill_all_started()
            return
        ending: set[asyncio.Future[None]] = set()
        if self._abandoning is not None:
            ending.add(self._abandoning)
        if not self._is_engine_dead:
            loop = asyncio.get_running_loop()
            ending.add(loop.run_in_executor(None, engine.stop))
        if ending:
            await asyncio.wait(ending, timeout=_ENGINE_STOP_SECONDS)
        # Last, because a JVM that loses its folder no longer ends by itself.
        await asyncio.to_thread(self._settings.engine.clean_up)

    def _watch_signals(self) -> None:
        def stop(number: int) -> None:
            if self._is_signalled:
                os._exit(128 + number)
            self._is_signalled = True
            self._stopping.set()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop, number)

    def _watch_parent(self) -> None:
        if not _is_pipe(0):
            return

        def end_of_input() -> None:
            while os.read(0, 4096):
                continue

        watching = self._in_daemon("parent", end_of_input)
        watching.add_done_callback(lambda _: self._stopping.set())

    def _watch_engine(self, engine: Engine) -> None:
        def ended(watching: asyncio.Future[str]) -> None:
            why = watching.result()
            if not why or engine is not self._service.engine:
                return
            if not self._stopping.is_set():
                self._is_engine_dead = self._fallback is None
                self._failed(engine, why)

        watching = self._in_daemon("engine", partial(self._start.ended, engine))
        watching.add_done_callback(ended)

    def _in_daemon(self, name: str, work: Callable[[], _T]) -> asyncio.Future[_T]:
        """Runs `work` on a daemon thread, which keeps neither loop nor process from ending."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[_T] = loop.create_future()

        def run() -> None:
            settle: Callable[[], None]
            try:
                settle = partial(outcome.set_result, work())
            except Exception as error:
                settle = partial(outcome.set_exception, error)
            with contextlib.suppress(RuntimeError):  # the loop is closed: the worker is ending
                loop.call_soon_threadsafe(settle)

        threading.Thread(target=run, name=name, daemon=True).start()
        return outcome


def _kill_all_started() -> None:
    """Kills all child processes. A starting JVM ends with its input, unless its temporary folder is
    removed first.
    """
    for pid in process_tree(os.getpid())[1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _is_pipe(descriptor: int) -> bool:
    """Returns whether it is a pipe: shells, service managers and `nohup` give a terminal or
    /dev/null.
    """
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def print_event(descriptor: int) -> Callable[[dict[str, object]], None]:
    """Prints events as JSON lines to a descriptor."""

    def announce(event: dict[str, object]) -> None:
        os.write(descriptor, json.dumps(event).encode() + b"\n")

    return announce

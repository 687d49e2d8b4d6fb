"""The worker process: a gRPC server and one Spark session.

1. The port listens; one JSON line on standard output names it. Health says NOT_SERVING.
2. Spark starts, on a thread. Health says SERVING. A tiny run warms it up, behind one that waits.
3. On a machine's first start the JVM's class-data archive is written, for later starts: as soon as
   nothing runs, at the latest when the worker is stopped.
4. The end: SIGTERM, SIGINT, or, if standard input is a pipe from the parent, its end of file (the
   parent has ended). Health says NOT_SERVING, runs fail with the reason, Spark is stopped. A second
   signal exits at once. When the JVM dies, so does the worker: its parent starts another.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import grpc
import pyspark
from grpc_health.v1 import health, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckResponse

from ledgerfold.compactor.class_archive import ClassArchive, dump_archive
from ledgerfold.compactor.java import Java
from ledgerfold.compactor.job.executors import check_executors
from ledgerfold.compactor.job.session import Session, SessionSettings, start_session
from ledgerfold.compactor.memory import process_tree
from ledgerfold.compactor.service import NAME, CompactorService
from ledgerfold.compactor.strategies.watch import Limits
from ledgerfold.compactor.user_strategies.sandbox import Trials
from ledgerfold.compactor.warm_up import warm_up
from ledgerfold.storage.errors import CompactorUnavailable
from ledgerfold.storage.files import REAL
from ledgerfold.strategies.allowed import AllowedStrategies
from ledgerfold.v1.compactor_pb2 import GetCompactorInfoResponse
from ledgerfold.v1.compactor_pb2_grpc import add_CompactorServiceServicer_to_server

EXIT_DONE = 0
EXIT_FAILED = 1
# A plan, or a manifest, names every segment file.
_MESSAGE_BYTES_MAX = 256 * 1024 * 1024
_GRACE_SECONDS = 2.0
# The time for cancelled runs to end. A thread may hang on a dead JVM.
_RUN_END_SECONDS = 15.0
# With 3 s for a class-data archive.
_SPARK_STOP_SECONDS = 8.0
# A broker that has a run waiting sends it at once: it does not wait for the warm-up.
_FIRST_RUN_SECONDS = 0.3
# The JVM stands still while it writes the archive: not while runs follow each other.
_IDLE_SECONDS = 1.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkerSettings:
    """The settings of a worker. `local_dir` is used by this worker only and is emptied.

    `announce` prints an event. `secret`: required in every call.
    """

    listen: str
    spark_master: str
    local_dir: Path
    java: Java
    archive: ClassArchive
    announce: Callable[[dict[str, object]], None]
    secret: bytes
    # For user-defined strategies: the limits of a run, and the ones that may be loaded.
    limits: Limits
    allowed: AllowedStrategies


class Worker:
    """The worker. Serves until it is stopped."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._executor = ThreadPoolExecutor(1, "spark")
        self._stopping = asyncio.Event()
        self._why_stopped = "the worker was asked to stop"
        self._is_jvm_dead = self._has_failed = False
        self._archiving = threading.Lock()
        self._is_signalled = False
        self._health = cast(Any, health).aio.HealthServicer()
        self._service = CompactorService(
            self._executor,
            REAL,
            time.time,
            _info(settings),
            settings.secret,
            Trials(settings.limits, settings.allowed),
        )

    async def run(self) -> int:
        """Serves until the end. Returns the exit code."""
        self._watch_signals()
        self._watch_parent()
        server = await self._listen()
        starting = asyncio.get_running_loop().run_in_executor(self._executor, self._start_spark)
        stopping = asyncio.create_task(self._stopping.wait())
        either: set[asyncio.Future[Any]] = {starting, stopping}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        code = EXIT_DONE
        if not self._stopping.is_set():
            code = await self._serve(starting, stopping)
        # At once: health checks must not find it ready while its runs end.
        await self._health.set(NAME, HealthCheckResponse.NOT_SERVING)
        try:
            async with asyncio.timeout(_RUN_END_SECONDS):
                await self._service.stop(self._why_stopped)
        except TimeoutError:
            _log.error("A run does not end; the broker removes its files")
        await server.stop(_GRACE_SECONDS)
        await self._stop_spark()
        return code

    async def _serve(self, starting: asyncio.Future[Session], stopping: asyncio.Task[bool]) -> int:
        try:
            session = starting.result()
        except CompactorUnavailable as error:
            self._settings.announce({"event": "unavailable", "message": error.message})
            return EXIT_FAILED
        except Exception:
            _log.exception("Spark did not start")
            return EXIT_FAILED
        self._service.session = session
        await self._health.set(NAME, HealthCheckResponse.SERVING)
        self._watch_jvm(session)
        preparing = asyncio.create_task(self._prepare(session))
        await stopping
        preparing.cancel()
        if not self._has_failed:
            return EXIT_DONE
        _log.error("%s", self._why_stopped)
        return EXIT_FAILED

    async def _prepare(self, session: Session) -> None:
        """Warms up and writes the class-data archive, while nothing runs."""
        in_thread = partial(asyncio.get_running_loop().run_in_executor, self._executor)
        folder = self._settings.local_dir / "warm-up"
        await self._idle(_FIRST_RUN_SECONDS)
        try:
            await in_thread(warm_up, session, folder, REAL, time.time)
        except Exception:
            if not self._stopping.is_set():
                _log.exception("The warm-up failed")
                self._has_failed, self._why_stopped = True, "Spark runs no job"
                self._stopping.set()
            return
        await self._idle(_IDLE_SECONDS)
        await in_thread(self._write_archive, session)

    async def _idle(self, seconds: float) -> None:
        """Waits until nothing has run, and nothing was asked for, for so long."""
        asked = -1
        while self._service.asked != asked or not self._service.is_idle:
            asked = self._service.asked
            await asyncio.sleep(seconds)

    def _write_archive(self, session: Session) -> None:
        with self._archiving:
            if not self._is_jvm_dead and not self._settings.archive.exists:
                dump_archive(session.context, self._settings.archive, REAL)

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
        self._settings.announce({"event": "listening", "port": port, "pid": os.getpid()})
        return server

    def _start_spark(self) -> Session:
        settings = self._settings
        # Remove the files of a killed worker.
        REAL.remove_dir(settings.local_dir)
        REAL.make_dir(settings.local_dir)
        # Temporary files of this process and its children are removed with the folder.
        os.environ["TMPDIR"] = tempfile.tempdir = str(settings.local_dir)
        session = start_session(
            SessionSettings(
                settings.spark_master, settings.local_dir, settings.archive.java_options
            )
        )
        if not session.is_local:
            check_executors(session.context)
        return session

    async def _stop_spark(self) -> None:
        session = self._service.session
        if session is None:
            _kill_all_started()
            return
        if not self._is_jvm_dead:
            stopped = asyncio.get_running_loop().run_in_executor(None, self._end, session)
            await asyncio.wait({stopped}, timeout=_SPARK_STOP_SECONDS)
        await asyncio.to_thread(REAL.remove_dir, self._settings.local_dir)

    def _end(self, session: Session) -> None:
        # Or workers that are always stopped before they are idle would never leave one. If the
        # broker was killed, its successor may be waiting.
        if self._is_signalled:
            self._write_archive(session)
        session.stop()

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

        self._watch("parent", end_of_input, self._stopping.set)

    def _watch_jvm(self, session: Session) -> None:
        def ended() -> None:
            if not self._stopping.is_set():
                self._is_jvm_dead = self._has_failed = True
                self._why_stopped = f"Spark's JVM ended ({session.jvm_end()})"
            self._stopping.set()

        self._watch("jvm", session.jvm_end, ended)

    def _watch(self, name: str, wait: Callable[[], object], then: Callable[[], None]) -> None:
        """Starts a daemon thread, which keeps neither the loop nor the process from ending."""
        loop = asyncio.get_running_loop()

        def watch() -> None:
            wait()
            with contextlib.suppress(RuntimeError):  # the loop is closed: the worker is ending
                loop.call_soon_threadsafe(then)

        threading.Thread(target=watch, name=name, daemon=True).start()


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


def _info(settings: WorkerSettings) -> GetCompactorInfoResponse:
    return GetCompactorInfoResponse(
        version=version("ledgerfold"),
        spark_version=pyspark.__version__,
        java_version=settings.java.version,
        spark_master=settings.spark_master,
        pid=os.getpid(),
    )


def print_event(descriptor: int) -> Callable[[dict[str, object]], None]:
    """Prints events as JSON lines to a descriptor."""

    def announce(event: dict[str, object]) -> None:
        os.write(descriptor, json.dumps(event).encode() + b"\n")

    return announce

"""The compactor as a child process: start, output, end.

* Its standard input is a pipe that stays open and carries no data: the worker ends when it closes,
  so it does not outlive a killed broker.
* Its standard output has JSON lines: {"event":"listening","port":N,"pid":P,"engine":E,"why":W}
  (W: why it is not Spark), {"event":"engine","engine":E,"why":W} if another engine takes the place
  of that one, or {"event":"unavailable","message":"..."} before it ends. Other lines are ignored.
* Its standard error goes to a new file at each start: an older worker keeps the old one.
* It leads its own process group: Ctrl-C at the terminal reaches only the broker, which decides when
  the worker ends.
* Its token is in its environment, and in that of all processes it starts, so that they can be ended
  with it (remains.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ledgerfold.broker.common.settings import ENGINES
from ledgerfold.broker.worker.remains import WORKER_VARIABLE, end_processes

if TYPE_CHECKING:
    from ledgerfold.broker.common.settings import BrokerSettings

EXIT_UNAVAILABLE = 3
_LINE_BYTES_MAX = 1024 * 1024
# How long the rest of the output of a worker that has ended is read.
_REST_S = 1.0
_log = logging.getLogger(__name__)


def worker_command(settings: BrokerSettings, local_dir: Path) -> list[str]:
    return [
        sys.executable,
        "-m",
        "ledgerfold.compactor",
        "--listen",
        "127.0.0.1:0",
        "--engine",
        ENGINES[settings.compactor],
        "--spark-master",
        settings.spark_master,
        "--local-dir",
        str(local_dir),
        "--strategy-timeout",
        f"{settings.strategy_timeout_ms / 1000:g}",
        "--strategy-memory",
        str(settings.strategy_memory_bytes),
        "--nice",
        str(settings.compactor_nice),
        *(("--cores", str(cores)) if (cores := settings.compactor_cores) is not None else ()),
        *(("--allow-faults",) if settings.allow_faults else ()),
        *(f"--allow-strategy={name}" for name in settings.allowed_strategies.named),
    ]


class WorkerProcess:
    """A started worker. `exited` is done when it has ended."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        token: str,
        stdin: int,
        output: asyncio.StreamReader,
        pipe: asyncio.ReadTransport,
    ) -> None:
        self.pid = process.pid
        self.exited = asyncio.create_task(process.wait())
        self.unavailable_message = ""
        # Its engine, once known, and why it compacts inline, if Spark was preferred.
        self.engine = self.why_inline = ""
        # Called when they change.
        self.on_engine: Callable[[], None] = lambda: None
        self._process, self._token, self._stdin, self._pipe = process, token, stdin, pipe
        self._is_stopped = False
        self._port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read_output(output))

    @classmethod
    async def start(
        cls, command: Sequence[str], log_path: Path, token: str, environment: Mapping[str, str]
    ) -> WorkerProcess:
        """Starts a worker. `environment` is added to this process's. Raises OSError."""
        # NOTE: explicit pipes, because asyncio's Process.wait() also waits until every holder of
        # its pipes has ended (before CPython 3.12.4), and the worker's JVM inherits them.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(log_path)
        log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        stdin_read, stdin_write = os.pipe()
        stdout_read, stdout_write = os.pipe()
        output, pipe = await _reader(stdout_read)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=stdin_read,
                stdout=stdout_write,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **environment, WORKER_VARIABLE: token},
            )
        except BaseException:
            os.close(stdin_write)
            pipe.close()
            raise
        finally:
            for descriptor in (log, stdin_read, stdout_write):
                os.close(descriptor)
        return cls(process, token, stdin_write, output, pipe)

    async def listening(self, timeout_seconds: float) -> str | None:
        """Returns its address once it listens; None if it ended, or did not report it in time."""
        waiting = {self._port, self.exited}
        await asyncio.wait(waiting, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        return f"127.0.0.1:{self._port.result()}" if self._port.done() else None

    @property
    def is_unavailable(self) -> bool:
        """Returns whether it ended with the report that it cannot work on this machine."""
        return bool(self.unavailable_message) or self._process.returncode == EXIT_UNAVAILABLE

    def describe_exit(self) -> str:
        """Returns "exit code 1", "signal SIGKILL", or "still running"."""
        code = self._process.returncode
        if code is None:
            return "still running"
        if code >= 0:
            return f"exit code {code}"
        try:
            return f"signal {signal.Signals(-code).name}"
        except ValueError:
            return f"signal {-code}"

    async def stop(self, grace_seconds: float) -> None:
        """Asks it to end (closes its input, SIGTERM), then kills it and its child processes."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1
        try:
            if not self.exited.done():
                with contextlib.suppress(ProcessLookupError):
                    self._process.terminate()
                await asyncio.wait({self.exited}, timeout=grace_seconds)
        finally:
            # Also if the caller is cancelled during the wait.
            await self.kill()
        # Its last line says why it ended. A process that does not end may hold the pipe.
        await asyncio.wait({self._reading}, timeout=_REST_S)
        self._reading.cancel()
        self._pipe.close()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def kill(self) -> None:
        """Kills it and all processes it started, and waits until they have ended.

        None of them writes afterwards (see remains.py for the limits of that).
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        await asyncio.wait({self.exited})
        if not await asyncio.to_thread(end_processes, self._token):
            _log.error("Processes started by compactor %d do not end", self.pid)

    async def _read_output(self, output: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await output.readline()
            except ValueError:
                # Longer than _LINE_BYTES_MAX: not an event.
                continue
            if not line:
                return
            self._take_line(line)

    def _take_line(self, line: bytes) -> None:
        try:
            event = json.loads(line)
            kind = event["event"]
            if kind == "unavailable":
                self.unavailable_message = str(event["message"])
            elif kind in ("listening", "engine"):
                if kind == "listening" and not self._port.done():
                    self._port.set_result(int(event["port"]))
                self.engine = str(event.get("engine", ""))
                self.why_inline = str(event.get("why", ""))
                self.on_engine()
        except (ValueError, KeyError, TypeError):
            _log.debug("The worker printed: %r", line)


async def _reader(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    loop = asyncio.get_running_loop()
    output = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
    pipe = os.fdopen(descriptor, "rb", buffering=0)
    protocol = asyncio.StreamReaderProtocol(output)
    transport, _ = await loop.connect_read_pipe(lambda: protocol, pipe)
    return output, transport

"""Runs the real broker in a separate process.

The process is `python -m ledgerfold serve --data DIR --listen 127.0.0.1:0`. It is ready when it has
printed its JSON line. The standard error of all its lives goes to one file, which a failure shows.
All processes that it starts (worker, JVM, Python workers) carry a mark in their environment, so
that `close` ends
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import ServiceError
from ledgerfold.v1 import admin_pb2
from tests.support import processes
from tests.support.waiting import SPARK_START_S, WAIT_S, wait_until

_LOG_TAIL_BYTES = 8_000


class BrokerFailed(AssertionError):
    """The process ended, or did not become ready. The message ends with the process's standard
    error.
    """


class BrokerProcess:
    """One data directory and the broker that serves it, across restarts.

    `arguments` go to `serve`. `environment` is added to this process's; `crash_at` is a point of
    storage/crash_points.py, for the first life only.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        crash_at: str | None = None,
        log: Path | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.log = log or data_dir.with_name(data_dir.name + ".log")
        self.ready: dict[str, Any] = {}
        self._arguments = list(arguments)
        self._mark = processes.new_mark()
        self._environment = dict(environment or {}) | {processes.MARK: self._mark}
        self._process: subprocess.Popen[str] | None = None
        self.start(crash_at=crash_at)

    # State

    @property
    def url(self) -> str:
        """host:port, also after the process has ended."""
        return str(self.ready["listen"])

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; negative for a signal."""
        return None if self._process is None else self._process.poll()

    @property
    def stderr(self) -> str:
        """Returns the last lines of the standard error of all its lives."""
        if not self.log.exists():
            return ""
        return self.log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")

    # Lifecycle

    def start(self, *, crash_at: str | None = None, wait: bool = True) -> None:
        """Starts the process and waits for its ready line. Raises BrokerFailed.

        `wait` False returns at once, for starts that should fail or crash.
        """
        assert self.returncode is not None or self._process is None, "The broker is running."
        environment = os.environ | self._environment
        environment.pop("LEDGERFOLD_CRASH_AT", None)
        # The tests' setting (tests/support/__init__.py).
        environment.pop("GRPC_ENABLE_FORK_SUPPORT", None)
        if crash_at is not None:
            environment["LEDGERFOLD_CRASH_AT"] = crash_at
        with self.log.open("ab") as stderr:
            self._process = subprocess.Popen(
                self._command(),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        lines: queue.Queue[str] = queue.Queue()
        reader = threading.Thread(target=_drain, args=(self._process.stdout, lines), daemon=True)
        reader.start()
        if wait:
            self._wait_ready(lines)

    def kill(self) -> None:
        """Sends SIGKILL to the broker alone; its worker notices by itself."""
        self._running().kill()
        self.wait()

    def stop(self, timeout_s: float = WAIT_S) -> int:
        """Sends SIGTERM and waits for the clean end. Returns the exit code."""
        self._running().terminate()
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = WAIT_S) -> int:
        """Waits for the process to end. Returns the exit code, negative for a signal."""
        assert self._process is not None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise BrokerFailed(f"Still running after {timeout_s:g} s.\n{self.stderr}") from None

    def restart(self, *, crash_at: str | None = None) -> None:
        """Stops the process if it runs, and starts it on the same data."""
        if self.returncode is None:
            self.stop()
        self.start(crash_at=crash_at)

    def close(self) -> None:
        """Ends every process of every life, in any state."""
        try:
            if self._process is not None and self.returncode is None:
                self.stop()
        finally:
            processes.end(self._mark)
            if self._process is not None:
                self._process.wait(WAIT_S)

    def __enter__(self) -> BrokerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and hasattr(error, "add_note"):
            error.add_note(f"Standard error of the broker ({self.log}):\n{self.stderr}")
        self.close()

    def processes(self) -> list[int]:
        """Returns the pid and those of all started processes that still run, also from former
        lives.
        """
        return processes.marked(self._mark)

    def started(self) -> list[int]:
        """Returns the pids of what the broker has started, without its own."""
        return [pid for pid in self.processes() if pid != self.pid]

    # The compactor

    def wait_for_compactor(
        self, timeout_s: float = SPARK_START_S
    ) -> admin_pb2.GetBrokerInfoResponse:
        """Waits until the worker is warm. Raises BrokerFailed if it does not start."""
        with Admin(self.url) as admin:

            def is_settled() -> admin_pb2.GetBrokerInfoResponse | None:
                try:
                    info = admin.broker_info()
                except ServiceError:
                    return None
                over = (
                    admin_pb2.COMPACTOR_STATE_UNAVAILABLE,
                    admin_pb2.COMPACTOR_STATE_DISABLED,
                )
                if self.returncode is not None or info.compactor_state in over:
                    raise BrokerFailed(f"No compactor: {info.compactor_message}\n{self.stderr}")
                is_ready = info.compactor_state == admin_pb2.COMPACTOR_STATE_READY
                return info if is_ready else None

            info = wait_until(is_settled, "the compactor", timeout_s)
            assert info is not None
            return info

    # Details

    def _command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "ledgerfold", "serve"),
            *("--data", str(self.data_dir), "--listen", "127.0.0.1:0"),
            *self._arguments,
        ]

    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None
        if self._process.poll() is not None:
            raise BrokerFailed(f"Ended with {self._process.returncode}.\n{self.stderr}")
        return self._process

    def _wait_ready(self, lines: queue.Queue[str]) -> None:
        try:
            line = lines.get(timeout=WAIT_S)
        except queue.Empty:
            line = ""
        if not line:
            self._end_at_once()
            raise BrokerFailed(f"Not ready, exit code {self.returncode}.\n{self.stderr}")
        self.ready = json.loads(line)
        assert self.ready["event"] == "ready", line

    def _end_at_once(self) -> None:
        assert self._process is not None
        try:
            # A process that died explains itself by its exit code.
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(WAIT_S)


def _drain(stdout: IO[str], lines: queue.Queue[str]) -> None:
    # Read to the end, so that the process never blocks on a full pipe. "" marks the end.
    with stdout:
        for line in stdout:
            lines.put(line)
    lines.put("")

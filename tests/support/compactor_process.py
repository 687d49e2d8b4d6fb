"""Runs `python -m ledgerfold.compactor` as a child process and calls it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from ledgerfold.broker.worker.connection import SECRET_KEY
from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest, RunRequest, RunResponse
from ledgerfold.v1.compactor_pb2_grpc import CompactorServiceStub
from tests.support.processes import MARK, command, end, marked, new_mark
from tests.support.waiting import RUN_S, SPARK_START_S, WAIT_S

SERVICE = "ledgerfold.v1.CompactorService"
# In the environment, for brokers that a test starts with this process's address.
SECRET = os.environ.setdefault("LEDGERFOLD_COMPACTOR_SECRET", secrets.token_hex())


class CompactorProcess:
    """The process; it ends with the `with` block, children included.

    `cache_dir` can be shared by several; None is the machine's own.
    """

    def __init__(
        self,
        folder: Path,
        cache_dir: Path | None = None,
        environment: dict[str, str] | None = None,
        arguments: Sequence[str] = (),
        stdin: int = subprocess.PIPE,
    ) -> None:
        self.local_dir = folder / "local"
        self.mark = new_mark()
        self.stderr_path = folder / "stderr.txt"
        with open(self.stderr_path, "wb") as stderr:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "ledgerfold.compactor"),
                    *("--local-dir", str(self.local_dir)),
                    *(("--cache-dir", str(cache_dir)) if cache_dir else ()),
                    *arguments,
                ],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
                env={**os.environ, **(environment or {}), MARK: self.mark},
            )
        assert self.process.stdout is not None
        event = json.loads(self.process.stdout.readline())
        self.address = f"127.0.0.1:{event['port']}"
        self.channel = grpc.insecure_channel(self.address, options=[("grpc.enable_http_proxy", 0)])
        self.stub = _KnownStub(self.channel)
        self.health: Any = health_pb2_grpc.HealthStub(self.channel)

    def __enter__(self) -> CompactorProcess:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
        print(f"Standard error of the worker:\n{self.stderr_path.read_text()}")

    def close(self) -> None:
        self.channel.close()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.terminate()
        self.process.wait(WAIT_S)
        end(self.mark)

    def wait_until_serving(self) -> None:
        watching = self.health.Watch(
            health_pb2.HealthCheckRequest(service=SERVICE), timeout=SPARK_START_S
        )
        for response in watching:
            if response.status == health_pb2.HealthCheckResponse.SERVING:
                watching.cancel()
                return

    @property
    def is_serving(self) -> bool:
        answer = self.health.Check(health_pb2.HealthCheckRequest(service=SERVICE))
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def stop(self) -> None:
        """Sends SIGSTOP; the process's children keep running."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def children(self) -> list[int]:
        """Returns all started processes that still run."""
        return [pid for pid in marked(self.mark) if pid != self.process.pid]

    def jvms(self) -> list[int]:
        return [pid for pid in self.children() if "java" in command(pid).split(" ")[0]]

    def run(self, plan: CompactionPlan) -> tuple[list[RunResponse], Manifest]:
        """Returns all responses, and the manifest. Raises grpc.RpcError."""
        responses = list(self.stub.Run(RunRequest(plan=plan), timeout=RUN_S))
        return responses, responses[-1].manifest

    @contextmanager
    def running(self, plan: CompactionPlan) -> Iterator[Any]:
        """Reads a Run call in the background; yields the call once the run has begun."""
        call = self.stub.Run(RunRequest(plan=plan), timeout=RUN_S)
        next(call)
        reader = threading.Thread(target=_read_to_end, args=(call,))
        reader.start()
        try:
            yield call
        finally:
            call.cancel()
            reader.join()


class _KnownStub:
    """The service's calls, each with the worker's secret."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._stub: Any = CompactorServiceStub(channel)

    def __getattr__(self, name: str) -> Any:
        return partial(getattr(self._stub, name), metadata=[(SECRET_KEY, SECRET.encode())])


def _read_to_end(call: Any) -> None:
    try:
        for _ in call:
            continue
    except grpc.RpcError:
        return


def reason_of(error: Any) -> str:
    """The ErrorInfo's reason in a failed call."""
    status = rpc_status.from_call(error)
    assert status is not None
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert info.domain == "ledgerfold"
    return str(info.reason)

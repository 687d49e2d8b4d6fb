"""The output of a worker's process, and its end."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from ledgerfold.broker.worker import process as process_module
from ledgerfold.broker.worker.process import EXIT_UNAVAILABLE, WorkerProcess
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.process
EVENT = json.dumps({"event": "unavailable", "message": "There is no Java."})
COMMAND = (sys.executable, "-c", f"print({EVENT!r}); raise SystemExit({EXIT_UNAVAILABLE})")


async def ended(tmp_path: Path) -> WorkerProcess:
    """Returns a worker that has ended, of whose output nothing was read."""
    process = await WorkerProcess.start(COMMAND, tmp_path / "worker.log", "token", {})
    process._pipe.pause_reading()
    await asyncio.wait({process.exited}, timeout=WAIT_S)
    return process


def test_the_last_line_is_read_after_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says why the worker ended; the end of the process may be noticed earlier.

    Tests had only seen the line before the end, as it is on a machine that is not busy.
    """

    async def run() -> str:
        loop, process = asyncio.get_running_loop(), await ended(tmp_path)

        def end_processes(token: str) -> bool:
            loop.call_soon_threadsafe(process._pipe.resume_reading)
            return True

        monkeypatch.setattr(process_module, "end_processes", end_processes)
        await process.stop(0)
        return process.unavailable_message

    assert asyncio.run(run()) == "There is no Java."


def test_the_pipe_is_closed_although_another_process_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test had stopped a worker before the end of its output was read."""
    monkeypatch.setattr(process_module, "_REST_S", 0.01)

    async def run() -> bool:
        process = await ended(tmp_path)
        await process.stop(0)
        return process._pipe.is_closing()

    assert asyncio.run(run())


def test_a_worker_that_cannot_be_started_leaves_no_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test had looked for the pipe of its output."""
    pipes = list[asyncio.ReadTransport]()
    reader = process_module._reader

    async def noted(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
        output, pipe = await reader(descriptor)
        pipes.append(pipe)
        return output, pipe

    monkeypatch.setattr(process_module, "_reader", noted)

    async def run() -> list[bool]:
        with pytest.raises(FileNotFoundError):
            await WorkerProcess.start(["/does/not/exist"], tmp_path / "worker.log", "token", {})
        return [each.is_closing() for each in pipes]

    assert asyncio.run(run()) == [True]

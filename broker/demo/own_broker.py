"""A broker of the demonstration's own: a process on a temporary data directory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ledgerfold.storage.errors import LedgerfoldError

_ANY_PORT = ("--listen", "127.0.0.1:0")
_STOP_S = 30


@contextmanager
def own_broker() -> Iterator[str]:
    """Starts it, gives "host:port", and stops it. Raises LedgerfoldError when it does not start."""
    with tempfile.TemporaryDirectory(prefix="ledgerfold-demo-") as folder:
        log = Path(folder) / "demo.log"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "ledgerfold", "serve", "--data", folder, *_ANY_PORT],
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        try:
            yield _listen(process, log)
        finally:
            _stop(process)


def _listen(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where it serves, once it does."""
    assert process.stdout is not None
    with process.stdout as stdout:
        ready = stdout.readline()
    if not ready:
        raise LedgerfoldError(f"The broker did not start: {log.read_text()[-500:]}")
    return str(json.loads(ready)["listen"])


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    """Whether a broker is there."""
    from ledgerfold.broker.client.admin import Admin

    try:
        with Admin(url, timeout_seconds=2) as admin:
            admin.broker_info()
    except LedgerfoldError:
        return False
    return True

"""A temporary broker: a process on a free port that runs for the duration of a block."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from ledgerfold.storage.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    InvalidRequest,
    LedgerfoldError,
)

_ANY_PORT = ("--listen", "127.0.0.1:0")
_STOP_S = 30
_LOG_SHOWN = 1000


class Started(NamedTuple):
    """A running broker: its addresses and its files. None: it does not serve that protocol."""

    listen: str
    pulsar: str | None
    admin: str | None
    data_dir: Path
    log: Path
    process: subprocess.Popen[bytes]


@contextmanager
def own_broker() -> Iterator[str]:
    """Starts a broker, yields "host:port", and stops it. See started()."""
    with started() as broker:
        yield broker.listen


@contextmanager
def started(data_dir: Path | None = None, arguments: Sequence[str] = ()) -> Iterator[Started]:
    """Starts a broker, and stops it after the block. Raises LedgerfoldError if it does not start.

    Its data are in `data_dir`, or in a temporary directory that is deleted with it; its log is
    deleted, too. `arguments`: additional arguments of `serve`.
    """
    with tempfile.TemporaryDirectory(prefix="ledgerfold-") as folder:
        data = data_dir or Path(folder) / "data"
        log = Path(folder) / "broker.log"
        command = ["serve", "--data", str(data), *_ANY_PORT, *arguments]
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "ledgerfold.broker.cli.tied", *command],
                # The variables of the user's brokers are not for this one.
                env=os.environ | {"LEDGERFOLD_SERVE_VARIABLES": "off"},
                # Its end stops the broker, too, if this process is killed (broker/cli/tied.py).
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # Ctrl-C at the terminal must reach only this process, which then stops the broker.
                start_new_session=True,
            )
        try:
            yield _started(process, data, log)
        finally:
            _stop(process)


def _started(process: subprocess.Popen[bytes], data_dir: Path, log: Path) -> Started:
    """Waits until the broker is ready."""
    assert process.stdout is not None
    with process.stdout as stdout:
        ready = stdout.readline()
    if not ready:
        raise LedgerfoldError(f"The broker did not start: {log.read_text()[-_LOG_SHOWN:]}")
    event = json.loads(ready)
    pulsar, admin = event.get("pulsar"), event.get("admin")
    return Started(event["listen"], pulsar, admin, data_dir, log, process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
    finally:
        # No effect on an ended process.
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def answers(url: str, **credentials: Any) -> bool:
    """Returns whether a broker answers. Raises InvalidRequest; AuthenticationFailed,
    AuthorizationFailed: it refuses them.
    """
    from ledgerfold.broker.client.administration.admin import Admin

    try:
        with Admin(url, timeout_seconds=2, **credentials) as admin:
            admin.broker_info()
    except (AuthenticationFailed, AuthorizationFailed, InvalidRequest):
        raise
    except LedgerfoldError:
        return False
    return True

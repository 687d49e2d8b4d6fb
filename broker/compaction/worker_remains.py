"""What a worker leaves behind: processes, and a scratch folder. Both are found by a token.

A worker starts a JVM, which starts Spark's Python daemon (in a process group of its own), which
forks what runs the tasks. When the worker or its broker is killed, those end a moment later, one
after the other, and write until then. So that they meet neither a later worker nor the removal of
their own files, whoever comes next ends them first:

* Each worker gets a folder DATA/compactor/work/<token>, made before it starts, and the token in its
  environment, which all that it starts inherits.
* A folder that is still there at the next start names the worker to look for. No pid is kept, so
  none can come to mean another process.

Where there is no /proc (macOS), and before Linux 5.3, nobody is found, and the chain above is
relied upon: the worker ends with its standard input, the JVM with the worker, the rest with it.

    >>> scratch = new_scratch(folder)  # its name is the token
    >>> end_left_over(folder)
    >>> scratch.exists()
    False
"""

from __future__ import annotations

import logging
import os
import select
import shutil
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from ledgerfold.storage.names import COMPACTOR

WORKER_VARIABLE = "LEDGERFOLD_WORKER"
# For processes that were killed to be gone; one that hangs in the kernel takes longer.
END_SECONDS = 10.0
_PROC = Path("/proc")
_log = logging.getLogger(__name__)


def new_scratch(data_dir: Path) -> Path:
    """A new worker's folder; its name is the worker's token. Raises OSError."""
    folder = _work_dir(data_dir) / uuid.uuid4().hex
    folder.mkdir(parents=True)
    return folder


def end_left_over(data_dir: Path) -> None:
    """Ends every worker that was started on this directory, and removes their folders.

    While the caller owns the directory and has no worker of its own. What cannot be ended within
    END_SECONDS keeps its folder, for the next time. Raises OSError.
    """
    if not _work_dir(data_dir).is_dir():
        return
    for folder in _work_dir(data_dir).iterdir():
        remove_scratch(folder)


def remove_scratch(folder: Path) -> None:
    """Ends who lives there, and removes it."""
    if not end_processes(folder.name):
        _log.error("Processes of an old compactor do not end; %s stays for now", folder)
    elif folder.is_dir():
        shutil.rmtree(folder, ignore_errors=True)
    else:
        folder.unlink(missing_ok=True)


def end_processes(token: str, seconds: float = END_SECONDS) -> bool:
    """SIGKILL to all that carry the token, until none is left; False: some were, after the time."""
    deadline = time.monotonic() + seconds
    try:
        while alive := list(processes(token)):
            for pid in alive:
                _end(pid, token, deadline - time.monotonic())
            if time.monotonic() > deadline:
                return False
    except OSError as error:
        _log.error("Processes of a compactor cannot be ended: %s", error)
        return False
    return True


def processes(token: str) -> Iterator[int]:
    """The pids of a worker and all that it started; zombies are not among them."""
    if _PROC.is_dir() and hasattr(os, "pidfd_open"):
        for name in os.listdir(_PROC):
            if name.isdecimal() and _carries(int(name), token):
                yield int(name)


def _carries(pid: int, token: str) -> bool:
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        # Gone, or somebody else's.
        return False
    return f"{WORKER_VARIABLE}={token}".encode() in environment.split(b"\0")


def _end(pid: int, token: str, seconds: float) -> None:
    """Kills it and waits for its end, no longer than that."""
    # By a handle, and looked at once more: the pid may be another process's by now.
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if _carries(pid, token):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            # Readable when it has ended.
            ended = select.poll()
            ended.register(handle, select.POLLIN)
            ended.poll(max(seconds, 0.0) * 1000)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


def _work_dir(data_dir: Path) -> Path:
    return data_dir / COMPACTOR / "work"

"""Processes and scratch folders left by earlier workers, both found by a token.

A worker starts a JVM, which starts Spark's Python daemon (in its own process group), which forks
the task processes. When the worker or its broker is killed, those end a moment later, one after the
other, and write until then. So that they affect neither a later worker nor the removal of their
files, the next start ends them first:

* Each worker gets a folder DATA/compactor/work/<token>, created before it starts, and the token in
  its environment, which all its child processes inherit.
* A folder that still exists at the next start names the worker to look for. No pid is stored, so a
  reused pid cannot be mistaken for the worker.

Where no process is found (ledgerfold/marked_processes.py), nothing is ended here: the worker ends
when its standard input closes, the JVM with the worker, and the other processes with the JVM.

  >>> scratch = new_scratch(folder)  # its name is the token
  >>> end_left_over(folder)
  >>> scratch.exists()
  False
"""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from ledgerfold.marked_processes import end_marked, marked
from ledgerfold.storage.names import COMPACTOR

WORKER_VARIABLE = "LEDGERFOLD_WORKER"
# The wait for killed processes to end; a process that hangs in the kernel takes longer.
END_SECONDS = 10.0
_log = logging.getLogger(__name__)


def new_scratch(data_dir: Path) -> Path:
    """Creates a new worker's folder; its name is the worker's token. Raises OSError."""
    folder = work_dir(data_dir) / uuid.uuid4().hex
    folder.mkdir(parents=True)
    return folder


def end_left_over(data_dir: Path) -> None:
    """Ends every worker that was started on this directory, and removes their folders.

    The caller owns the directory and has no worker. A worker that cannot be ended within
    END_SECONDS keeps its folder until the next attempt. Raises OSError.
    """
    if not work_dir(data_dir).is_dir():
        return
    for folder in work_dir(data_dir).iterdir():
        remove_scratch(folder)


def remove_scratch(folder: Path) -> None:
    """Ends the worker of the folder, and removes the folder."""
    if not end_processes(folder.name):
        _log.error("Processes of an old compactor do not end; %s remains for now", folder)
    elif folder.is_dir():
        shutil.rmtree(folder, ignore_errors=True)
    else:
        folder.unlink(missing_ok=True)


def end_processes(token: str, seconds: float = END_SECONDS) -> bool:
    """Kills all processes with the token until none is left; returns False if some remain."""
    return end_marked(f"{WORKER_VARIABLE}={token}", seconds)


def processes(token: str) -> Iterator[int]:
    """Yields the pids of a worker and all processes it started, except zombies."""
    return marked(f"{WORKER_VARIABLE}={token}")


def work_dir(data_dir: Path) -> Path:
    return data_dir / COMPACTOR / "work"

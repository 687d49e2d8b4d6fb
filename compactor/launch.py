"""The launch of Spark on a disk that may be full.

The JVM writes its port to a file `connection*.info`, renames that, and waits for the end of its
input. PySpark waits for the new name, or for the JVM's end. On a full disk neither comes: the write
ends the JVM's main thread, but not the thread of its server. Source: Spark's `PythonGatewayServer`
and `pyspark.java_gateway`.

    >>> import tempfile
    >>> folder = Path(tempfile.gettempdir())
    >>> with ends_if_mute(folder), reports_full_disk(folder):
    ...     print("launches the JVM, whose temporary files are in the folder")
    launches the JVM, whose temporary files are in the folder
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ledgerfold.compactor.memory import process_tree
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.files import REAL

# A JVM writes its port in less than a millisecond.
_MUTE_SECONDS = 5.0
# Spark needs more for its folders.
_ROOM_BYTES = 1024 * 1024


@contextmanager
def ends_if_mute(folder: Path, seconds: float = _MUTE_SECONDS) -> Iterator[None]:
    """Ends a JVM, launched by the block, that has been writing its port for this time.

    Then raises DiskFailure. Without /proc (macOS) the JVM is not found, and does not end.
    """
    launched, is_mute = threading.Event(), threading.Event()

    def watch() -> None:
        before: set[Path] = set()
        while not launched.wait(seconds):
            now = set(folder.glob("*/connection*.info"))
            if now & before:
                is_mute.set()
                end_children()
            before = now

    watching = threading.Thread(target=watch, name="launch", daemon=True)
    watching.start()
    try:
        yield
    except Exception as error:
        if is_mute.is_set():
            raise _full(folder) from error
        raise
    finally:
        launched.set()
        watching.join()


@contextmanager
def reports_full_disk(folder: Path) -> Iterator[None]:
    """Raises DiskFailure for any error of the block if the disk of `folder` is full."""
    try:
        yield
    except Exception as error:
        if REAL.free_bytes(folder) < _ROOM_BYTES:
            raise _full(folder) from error
        raise


def _full(folder: Path) -> DiskFailure:
    cause = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return DiskFailure(str(folder), "Starting Spark", cause)


def end_children() -> None:
    """Kills all processes that this one has started."""
    for pid in process_tree(os.getpid())[1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

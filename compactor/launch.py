"""The launch of Spark's JVM, and its end if it cannot say at which port it listens.

The JVM writes its port to a file `connection*.info`, renames that, and waits for the end of its
input. PySpark waits for the new name, or for the JVM's end. On a full disk neither comes: the write
ends the JVM's main thread, but not the thread of its server. Source: Spark's `PythonGatewayServer`
and `pyspark.java_gateway`.

A JVM that cannot even create the file is ended with the start's own limit (worker.py,
broker/worker/health.py).

    >>> import tempfile
    >>> with ends_if_mute(Path(tempfile.gettempdir())):
    ...     print("launches the JVM, whose temporary files are in the folder")
    launches the JVM, whose temporary files are in the folder
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ledgerfold.compactor.memory import process_tree
from ledgerfold.storage.errors import CompactorUnavailable

# A JVM writes its port in less than a millisecond.
_MUTE_SECONDS = 5.0
_VARIABLE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_log = logging.getLogger(__name__)


@contextmanager
def ends_if_mute(folder: Path, seconds: float = _MUTE_SECONDS) -> Iterator[None]:
    """Ends a JVM, launched by the block, that has been writing its port for this time.

    Then raises CompactorUnavailable. Without /proc (macOS) the JVM is not found, and does not end.
    """
    launched, is_mute = threading.Event(), threading.Event()
    port_files = PortFiles(folder)

    def watch() -> None:
        while not launched.wait(seconds):
            for path in port_files.unchanged():
                _log.error("The JVM does not write its port to %s", path)
                is_mute.set()
                _end_jvm_of(path)

    watching = threading.Thread(target=watch, name="launch", daemon=True)
    watching.start()
    try:
        yield
    except Exception as error:
        if is_mute.is_set():
            raise CompactorUnavailable(
                f"Spark did not start: its JVM could not write to {folder}. Free space on that "
                "file system."
            ) from error
        raise
    finally:
        launched.set()
        watching.join()


class PortFiles:
    """The files into which JVMs write their ports, until they rename them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before: set[Path] = set()

    def unchanged(self) -> set[Path]:
        """Returns the files that were there at the last call, too."""
        now: set[Path] = set()
        # The folder of a JVM that has just been launched vanishes.
        with contextlib.suppress(OSError):
            now = set(self._folder.glob("*/connection*.info"))
        unchanged, self._before = now & self._before, now
        return unchanged


def _end_jvm_of(port_file: Path) -> None:
    """Kills the child process that PySpark has told to write its port beside this file."""
    mark = f"{_VARIABLE}={port_file.parent}/".encode()
    for pid in process_tree(os.getpid())[1:]:
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes():
                os.kill(pid, signal.SIGKILL)

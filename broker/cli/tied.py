"""Runs the command line as a process that ends with the one that started it.

For brokers of tests and demonstrations: if a test run is killed, no broker must remain. The starter
holds the other end of the standard input, a pipe, and writes nothing: the pipe ends with it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from ledgerfold.garbage import garbage_kept


def _stop_with_starter() -> None:
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_stop_with_starter, daemon=True).start()
    with garbage_kept():
        from ledgerfold.broker.cli.main import main
    sys.exit(main())

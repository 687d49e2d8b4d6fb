"""Runs the command line as a process that ends when the process that started it ends.

Tests and demonstrations start their brokers with it: if a test run is killed, no broker remains.
The starting process holds the other end of the standard input, a pipe, and writes nothing: the pipe
closes when that process ends.
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

"""The broker on a slow disk: `python -m tests.torture.slow_broker serve ...`.

Memory answers a sync at once, and a flush ends before anything else can happen. On a disk it takes
milliseconds, in which a flush, a roll and a compaction can meet. So each sync of a segment waits up
to LEDGERFOLD_SYNC_DELAY_MS, after it is done. All else is the real broker.
"""

from __future__ import annotations

import os
import random
import sys
import threading

from ledgerfold.broker.cli.main import main

DELAY = "LEDGERFOLD_SYNC_DELAY_MS"


def make_syncs_slow(longest_ms: float) -> None:
    """For all of this process."""
    sync, never = os.fdatasync, threading.Event()

    def slow(descriptor: int) -> None:
        sync(descriptor)
        never.wait(random.uniform(0, longest_ms) / 1000)

    os.fdatasync = slow  # type: ignore[assignment]


if __name__ == "__main__":
    make_syncs_slow(float(os.environ.get(DELAY, "0")))
    sys.exit(main())

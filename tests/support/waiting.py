"""Waiting for a condition, the only way a test waits.

>>> wait_until(lambda: True, "something that holds already")
True
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")
# For everything that a test expects: a machine that runs several suites at once needs seconds for
# what takes milliseconds alone. Below pytest's limit, so that the test says what it waited for.
WAIT_S = 60.0
WAIT_MS = 60_000
# For a compaction, to which a start of Spark may belong.
RUN_S = 100.0
# For the first start of Spark on a busy machine of two cores.
SPARK_START_S = 180.0
_PAUSE_S = 0.02


def wait_until(condition: Callable[[], Answer], what: str, timeout_s: float = WAIT_S) -> Answer:
    """Asks again and again until the answer is true, and returns it. Raises AssertionError."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"Waited {timeout_s:g} s in vain for {what}.")
        pause.wait(_PAUSE_S)

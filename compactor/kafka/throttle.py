"""Throttles a task of a cleaning to its share of the cleaning's I/O limit.

A task spends the bytes that it reads and writes. When it has spent the allowance of an interval, or
the interval is over, it waits until its rate is within the limit; then the next interval begins.
Unused allowance does not carry over. At its end, the task waits for the remaining time, so that
even a small cleaning does not exceed the limit.

    >>> waits: list[float] = []
    >>> throttle = TaskThrottle(1_000, clock=lambda: 0.0, sleep=waits.append)
    >>> throttle.spend(200), waits
    (None, [])
    >>> throttle.spend(300), waits
    (None, [0.5])

A waiting task ends when its run is cancelled: Spark kills its Python process, and the inline engine
ends the pause.

Source: Throttler of Kafka 4.1, which all of its threads share and which outlives cleanings.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf

from ledgerfold.compactor.job.pauses import pause

INTERVAL_S = 0.3
# A rate of 0 means waiting forever, but the system's sleep has a maximum.
_WAIT_MAX_S = 365 * 24 * 3600.0


class TaskThrottle:
    """The throttle of one task. Without a rate it never waits. Times are in seconds."""

    def __init__(
        self,
        bytes_per_second: float = inf,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = pause,
    ) -> None:
        self._rate, self._clock, self._sleep = bytes_per_second, clock, sleep
        self._began, self._spent_bytes = clock(), 0

    def chunk_bytes(self, bytes_max: int) -> int:
        """Returns how much to read before the next spend(): at most an interval's allowance."""
        return int(min(bytes_max, max(self._rate * INTERVAL_S, 1)))

    def spend(self, size_bytes: int) -> None:
        self._spent_bytes += size_bytes
        self._wait(INTERVAL_S)

    def settle(self) -> None:
        """Waits for the remainder when the task is done."""
        self._wait(0)

    def _wait(self, interval_s: float) -> None:
        """Waits once the interval's bytes or its time have been used."""
        elapsed_s = self._clock() - self._began
        due_s = self._spent_bytes / self._rate if self._rate else inf
        if max(elapsed_s, due_s) < interval_s:
            return
        if due_s > elapsed_s:
            self._sleep(min(due_s - elapsed_s, _WAIT_MAX_S))
        self._began, self._spent_bytes = self._clock(), 0

"""How fast a task of a round may read and write: its share of what the round may.

What a task reads or writes it spends. As soon as it has spent what an interval of its rate allows,
or an interval is over, it waits for as long as it was too fast, and the next interval begins: a
lull saves nothing for a burst. At its end it waits for what is missing, so that no round, however
small, is faster than it may be.

    >>> waits: list[float] = []
    >>> pace = Pace(1_000, clock=lambda: 0.0, sleep=waits.append)
    >>> pace.spend(200), waits
    (None, [])
    >>> pace.spend(300), waits
    (None, [0.5])

A task that waits is ended as any other: Spark kills the Python process of a task that it was told
to stop.

Source: Throttler of Kafka 4.1, which all of its threads share and which outlives their rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf

INTERVAL_S = 0.3
# A rate of 0 is a wait without an end, and the system's own has one.
_WAIT_MAX_S = 365 * 24 * 3600.0


class Pace:
    """Of one task. Without a rate it never waits. Times are seconds."""

    def __init__(
        self,
        bytes_per_second: float = inf,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = bytes_per_second, clock, sleep
        self._began, self._spent_bytes = clock(), 0

    def at_once(self, bytes_max: int) -> int:
        """How much to read before it is spent: what an interval allows, and no more than that."""
        return int(min(bytes_max, max(self._rate * INTERVAL_S, 1)))

    def spend(self, size_bytes: int) -> None:
        self._spent_bytes += size_bytes
        self._wait(INTERVAL_S)

    def settle(self) -> None:
        """The task is done."""
        self._wait(0)

    def _wait(self, interval_s: float) -> None:
        """Once the interval is full, of bytes or of time."""
        elapsed_s = self._clock() - self._began
        due_s = self._spent_bytes / self._rate if self._rate else inf
        if max(elapsed_s, due_s) < interval_s:
            return
        if due_s > elapsed_s:
            self._sleep(min(due_s - elapsed_s, _WAIT_MAX_S))
        self._began, self._spent_bytes = self._clock(), 0

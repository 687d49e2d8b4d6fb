"""The broker's clock: the current time and timers.

All broker code that needs the time gets a Clock: publish and append times, ages of ledgers,
retention, message TTL, delays of cursor writes, the monitors. (Time limits of network calls and of
the compactor's process always use the machine's clock.)

* `WallClock` is the machine's clock.
* `ManualClock` moves only on request (`serve --test-clock`), and only forwards. A move runs all
  timers that have become due, in the order of their times but at the new time: periodic work that
  would have been done several times is done once. The move returns when every task that it woke
  sleeps again or has ended, so that its effects are visible at once.

  >>> async def example() -> None:
  ...     clock = ManualClock(1_000)
  ...     clock.call_later(0.5, lambda: print("due"))
  ...     await clock.move_to(1_499)
  ...     print(clock.now_ms())
  ...     await clock.move_to(1_500)
  >>> asyncio.run(example())
  1499
  due
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import count
from operator import attrgetter
from typing import Any, Protocol

from ledgerfold.storage.errors import InvalidRequest

# The last time that can be formatted as a date.
LAST_MS = 253_402_300_799_999


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """A clock. Times are ms since the epoch; delays are seconds, as in asyncio."""

    def now_ms(self) -> int:
        """Returns the time. Thread-safe."""
        ...

    async def sleep(self, delay_s: float) -> None: ...
    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer: ...


class WallClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(delay_s, callback)


class _Due:
    """A pending callback and its time."""

    def __init__(
        self, at_ms: float, number: int, callback: Callable[[], object], waiting: set[_Due]
    ) -> None:
        self.order = (at_ms, number)
        self.callback = callback
        self._waiting = waiting
        waiting.add(self)

    def cancel(self) -> None:
        self._waiting.discard(self)


class ManualClock:
    """A clock that moves only by move_to(). Used on one event loop, except for now_ms()."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._numbers = count()
        self._waiting: set[_Due] = set()
        # Tasks that a move woke and that do not sleep again yet.
        self._awake: set[asyncio.Task[Any]] = set()
        self._all_asleep = asyncio.Event()

    def now_ms(self) -> int:
        return self._now_ms

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        if delay_s <= 0:
            return asyncio.get_running_loop().call_soon(callback)
        return _Due(self._now_ms + delay_s * 1000, next(self._numbers), callback, self._waiting)

    async def sleep(self, delay_s: float) -> None:
        task, woken = asyncio.current_task(), asyncio.get_running_loop().create_future()
        assert task is not None

        def wake() -> None:
            if not woken.done():
                self._awake.add(task)
                task.add_done_callback(self._falls_asleep)
                woken.set_result(None)

        timer = self.call_later(delay_s, wake)
        self._falls_asleep(task)
        try:
            await woken
        finally:
            timer.cancel()

    def _falls_asleep(self, task: asyncio.Task[Any]) -> None:
        task.remove_done_callback(self._falls_asleep)
        self._awake.discard(task)
        if not self._awake:
            self._all_asleep.set()

    async def move_to(self, now_ms: int) -> None:
        """Moves the clock.

        Raises InvalidRequest for an earlier time, or one beyond the year 9999.
        """
        if now_ms < self._now_ms:
            raise InvalidRequest(
                f"The clock is at {self._now_ms} ms and only moves forwards, not to {now_ms}."
            )
        if now_ms > LAST_MS:
            raise InvalidRequest(f"{now_ms} ms is after the year 9999, the last that is supported.")
        self._now_ms = now_ms
        due = [each for each in self._waiting if each.order[0] <= now_ms]
        for each in sorted(due, key=attrgetter("order")):
            if each in self._waiting:
                each.cancel()
                each.callback()
        while self._awake:
            self._all_asleep.clear()
            await self._all_asleep.wait()

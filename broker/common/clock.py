"""The broker's clock: what time it is, and waiting for a time to come.

Whatever in the broker asks for the time or waits for it is given a Clock: publish and append times,
ages of ledgers, retention, message TTL, delays of cursor writes, the monitors. (Limits on network
calls and on the compactor's process are not emulated time: they stay the machine's.)

* `WallClock` is the machine's.
* `ManualClock` stands until it is moved (`serve --test-clock`), and moves forwards only. A move
  wakes all that has become due, in the order of its time but at the new time: what would have been
  done several times on the way is done once. It is over when everybody whom it woke sleeps again or
  has ended, so that its effects can be seen at once.

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

# The last that can be written as a date.
LAST_MS = 253_402_300_799_999


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Times are ms since the epoch; delays are seconds, as asyncio's."""

    def now_ms(self) -> int:
        """May be asked by any thread."""
        ...

    async def sleep(self, delay_s: float) -> None: ...
    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer: ...


class WallClock:
    """The machine's."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(delay_s, callback)


class _Due:
    """A callback and its time, in the set of those that wait."""

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
    """Stands at `now_ms` until move_to(). Used on one event loop, but for now_ms()."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._numbers = count()
        self._waiting: set[_Due] = set()
        # Tasks that a move woke and that have not gone back to sleep.
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
                task.add_done_callback(self._rests)
                woken.set_result(None)

        timer = self.call_later(delay_s, wake)
        self._rests(task)
        try:
            await woken
        finally:
            timer.cancel()

    def _rests(self, task: asyncio.Task[Any]) -> None:
        task.remove_done_callback(self._rests)
        self._awake.discard(task)
        if not self._awake:
            self._all_asleep.set()

    async def move_to(self, now_ms: int) -> None:
        """Raises InvalidRequest for a time that is past, or beyond the year 9999."""
        if now_ms < self._now_ms:
            raise InvalidRequest(
                f"The clock stands at {self._now_ms} ms and moves forwards only, not to {now_ms}."
            )
        if now_ms > LAST_MS:
            raise InvalidRequest(f"{now_ms} ms lie beyond the year 9999, where calendars end here.")
        self._now_ms = now_ms
        due = [each for each in self._waiting if each.order[0] <= now_ms]
        for each in sorted(due, key=attrgetter("order")):
            if each in self._waiting:
                each.cancel()
                each.callback()
        while self._awake:
            self._all_asleep.clear()
            await self._all_asleep.wait()

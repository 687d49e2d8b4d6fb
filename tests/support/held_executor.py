"""An executor whose work runs when the test says so.

held = HeldExecutor()
lab.broker.executor = held
held.holds = True
... something hands work over ...
held.let_go(1)                 # the first piece of work is done now
held.free()                    # all of it, and whatever comes, at once
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class HeldExecutor(ThreadPoolExecutor):
    """Runs work on the caller's thread: at once, or in order when it is released."""

    def __init__(self) -> None:
        super().__init__(1)
        self.holds = False
        # Work runs now, besides the loop.
        self.is_working = False
        self._held: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._came = asyncio.Event()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._held.append((future, lambda: fn(*args, **kwargs)))
        self._came.set()
        if not self.holds:
            self.let_go(len(self._held))
        return future

    @property
    def waiting(self) -> int:
        """Pieces of work that were handed over and are not done."""
        return len(self._held)

    async def has_work(self) -> None:
        """Returns when something waits."""
        while not self._held:
            self._came.clear()
            await self._came.wait()

    def let_go(self, count: int) -> None:
        for _ in range(min(count, len(self._held))):
            future, work = self._held.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            self.is_working = True
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)
            finally:
                self.is_working = False

    def free(self) -> None:
        self.holds = False
        self.let_go(len(self._held))

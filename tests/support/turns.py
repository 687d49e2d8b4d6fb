"""Measures how long work occupies the loop: in loop steps, not in time.

>>> async def example() -> int:
...     done: list[int] = []
...     async with Turns(lambda: len(done)) as turns:
...         for number in range(100):
...             done.append(number)
...             if number % 10 == 9:
...                 await asyncio.sleep(0)
...     return turns.most  # steps between two turns of other tasks
>>> asyncio.run(example())
10
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress


class Turns:
    """`steps` tells how many steps of the work have been done."""

    def __init__(self, steps: Callable[[], int]) -> None:
        self._steps = steps
        self._seen = steps()
        self.most = 0

    async def __aenter__(self) -> Turns:
        self._task = asyncio.create_task(self._watch())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._look()
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _watch(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(0)

    def _look(self) -> None:
        steps = self._steps()
        self.most = max(self.most, steps - self._seen)
        self._seen = steps

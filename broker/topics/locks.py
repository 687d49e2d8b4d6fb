"""The locks of topic names, and one of all of them together.

Loads, unloads and deletions hold the lock of each name that they change. An operation on the whole
broker, such as a reset, holds all names: it waits until no lock is held, and others wait for it.

  >>> async def example() -> None:
  ...     locks = TopicLocks()
  ...     async with locks.one("t-partition-0"), locks.one("t"):
  ...         every = asyncio.create_task(reset(locks))
  ...         await asyncio.sleep(0)
  ...         print("changed")
  ...     await every
  >>> async def reset(locks: TopicLocks) -> None:
  ...     async with locks.every():
  ...         print("reset")
  >>> asyncio.run(example())
  changed
  reset

While a task waits for the lock of all names, only tasks that hold the lock of a name get another
one, which they may need to finish. So the task waits for work in progress, never for later work.
Tasks that were created by a holder count as holders.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from weakref import WeakValueDictionary

_holds: ContextVar[bool] = ContextVar("holds the lock of a name", default=False)


class TopicLocks:
    """The locks of one broker, on its event loop."""

    def __init__(self) -> None:
        # Each lock exists while a task holds it or waits for it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._inside = 0
        # Set if no name is locked; if all names are not locked; if no task waits for all names,
        # either.
        self._is_idle, self._is_open, self._is_free = (asyncio.Event() for _ in range(3))
        for event in (self._is_idle, self._is_open, self._is_free):
            event.set()
        self._turn = asyncio.Lock()

    def __len__(self) -> int:
        """Returns how many names have a lock now."""
        return len(self._locks)

    @asynccontextmanager
    async def one(self, name: str) -> AsyncIterator[None]:
        """Holds the lock of a name."""
        holds_lock = _holds.get()
        gate = self._is_open if holds_lock else self._is_free
        while not gate.is_set():
            await gate.wait()
        self._inside += 1
        self._is_idle.clear()
        _holds.set(True)
        try:
            async with self._locks.setdefault(name, asyncio.Lock()):
                yield
        finally:
            _holds.set(holds_lock)
            self._inside -= 1
            if not self._inside:
                self._is_idle.set()

    @asynccontextmanager
    async def every(self) -> AsyncIterator[None]:
        """Holds the locks of all names, including names that do not exist yet."""
        async with self._turn:
            self._is_free.clear()
            try:
                while self._inside:
                    await self._is_idle.wait()
                self._is_open.clear()
                yield
            finally:
                self._is_open.set()
                self._is_free.set()

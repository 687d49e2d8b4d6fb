"""A thread for a person's code: calls one after the other, each awaited on the event loop.

The event loop of the synchronous API (io_thread.py) carries every stream of the process, so a
listener must not run there: it may block, and it may wait for the client.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

_Call = tuple[Callable[[], None], "Future[None]"]


class CallThread:
    """A daemon thread. What it is at when the process ends is broken off."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    async def run(self, call: Callable[[], None]) -> None:
        """Returns when the call did, and raises what it raised."""
        done: Future[None] = Future()
        self._calls.put((call, done))
        await asyncio.wrap_future(done)

    def stop(self) -> None:
        """Does not wait: it may be called from within."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (item := self._calls.get()) is not None:
            call, done = item
            if not done.set_running_or_notify_cancel():
                continue
            try:
                call()
            except Exception as error:  # whoever waits gets it
                done.set_exception(error)
            else:
                done.set_result(None)

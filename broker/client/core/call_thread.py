"""A thread for user code: runs calls one after the other, each awaited on the event loop.

The event loop of the synchronous API (broker/client/sync/io_thread.py) runs every stream of the
process, so a listener must not run there: it may block, or wait for the client.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

_Call = tuple[Callable[[], None], "Future[None]"]


class CallThread:
    """A daemon thread. A call that runs when the process exits is aborted."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    async def run(self, call: Callable[[], None]) -> None:
        """Waits until `call` returns. Raises its error."""
        done: Future[None] = Future()
        self._calls.put((call, done))
        await asyncio.wrap_future(done)

    def stop(self) -> None:
        """Stops the thread after the queued calls. Does not wait, so a call may call it."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (item := self._calls.get()) is not None:
            call, done = item
            if not done.set_running_or_notify_cancel():
                continue
            try:
                call()
            except Exception as error:  # raised in `run`
                done.set_exception(error)
            else:
                done.set_result(None)

"""The I/O thread of the synchronous API.

gRPC's asyncio API needs a single event loop per process, so all synchronous clients of a process
share one daemon thread that runs it. It starts with the first client and ends with the process.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, ClassVar, TypeVar

from ledgerfold.broker.client.streams import forks
from ledgerfold.storage.errors import NotAllowed

Answer = TypeVar("Answer")
_STOP_TIMEOUT_S = 2.0
_log = logging.getLogger(__name__)


class IoThread:
    """A thread that runs an event loop."""

    _shared: ClassVar[IoThread | None] = None
    _shared_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self.loop, self._is_over = asyncio.new_event_loop(), False
        self._thread = threading.Thread(target=self._run, name="ledgerfold-client", daemon=True)
        self._thread.start()

    @classmethod
    def shared(cls) -> IoThread:
        """Returns the process's I/O thread, started on first use."""
        with cls._shared_lock:
            if cls._shared is None:
                cls._shared = cls()
                atexit.register(cls._shared.stop)
            return cls._shared

    @classmethod
    def _forked(cls) -> None:
        """Resets the state in a forked child: the thread runs only in the parent, and may hold the
        lock.
        """
        if cls._shared is not None:
            forks.keep_until_exit(cls._shared)
        cls._shared, cls._shared_lock = None, threading.Lock()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._is_over:
            try:
                self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                # User code: not even sys.exit() may end the thread, which all clients share.
                _log.exception(
                    "A function of the program raised an exit or an interrupt, which is ignored."
                )
        self.loop.close()

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def start(self, work: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Runs `work` on the event loop and waits. Raises NotAllowed in a callback, which runs
        there.
        """
        if self.is_current:
            work.close()
            raise NotAllowed(
                "A callback runs in the client's I/O thread and must not wait for the client."
            )
        future = self.start(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def stop(self) -> None:
        """Cancels all tasks of the event loop and ends the thread."""
        if self._thread.is_alive() and not self.is_current:
            self.loop.call_soon_threadsafe(lambda: self.loop.create_task(self._shut_down()))
            self._thread.join(_STOP_TIMEOUT_S)

    async def _shut_down(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._is_over = True
        self.loop.stop()


os.register_at_fork(after_in_child=IoThread._forked)

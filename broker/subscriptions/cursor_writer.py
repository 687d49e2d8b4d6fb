"""Group commit for cursors.

One write is in flight at a time, and each writes the cursor's current state; acknowledgements that
arrive meanwhile share the next write. A caller that requested an answer gets it after the write
that contains its change. Changes without a waiting caller are written after CHANGES_MAX of them or
after DELAY_MS, whichever is first, and at close: a crash before that means redelivery, not loss.
After stop() nothing is written: another topic of the same name may exist by then.

A write that the disk refuses is retried after DELAY_MS until it succeeds: reads are not affected,
and callers that asked for an answer wait.

  >>> async def persist(record: CursorRecord) -> None:
  ...     print("written:", record.subscription)
  >>> async def example() -> bool:
  ...     writer = CursorWriter(lambda: CursorRecord(subscription="s"), persist, print)
  ...     writer.changed()  # soon
  ...     writer.when_durable(lambda: print("durable"))  # now
  ...     return await writer.flush()
  >>> asyncio.run(example())
  written: s
  durable
  True
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from ledgerfold.broker.common.clock import Clock, Timer, WallClock
from ledgerfold.storage.errors import StorageError
from ledgerfold.v1.records_pb2 import CursorRecord

_log = logging.getLogger(__name__)
CHANGES_MAX = 1_000
DELAY_MS = 1_000

Persist = Callable[[CursorRecord], Awaitable[None]]


class CursorWriter:
    """The writer of one subscription's cursor, on one event loop."""

    def __init__(
        self,
        snapshot: Callable[[], CursorRecord],
        persist: Persist,
        on_error: Callable[[Exception], None],
        *,
        delay_ms: int = DELAY_MS,
        clock: Clock | None = None,
    ) -> None:
        self._snapshot, self._persist, self._on_error = snapshot, persist, on_error
        self._delay_ms = delay_ms
        # Counts of changes: made, and durable.
        self._change_count = 0
        self._durable_count = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._clock = clock or WallClock()
        self._timer: Timer | None = None
        self._failure: Exception | None = None
        # The disk refused the last write: only the timer starts the next one.
        self._is_paused = False
        self._is_stopped = False

    @property
    def is_durable(self) -> bool:
        return self._durable_count >= self._change_count

    def changed(self, count: int = 1) -> None:
        """Notes that the cursor changed; it will be written soon."""
        if not self._is_stopped:
            self._change_count += count
            self._schedule()

    def when_durable(self, answer: Callable[[], None]) -> None:
        """Calls `answer` once all changes so far are durable.

        Immediately, or after a write that starts now. Never after stop(). A write that fails with
        an error other than StorageError is a defect: `on_error` is called then, and `answer` never.
        """
        if self._is_stopped:
            return
        if self.is_durable:
            answer()
        else:
            self._waiting.append((self._change_count, answer))
            self._schedule()

    async def flush(self) -> bool:
        """Returns when every change made so far is durable: True. Raises the error of persisting
        them. Returns False if stop() was called before they were.

        Does not wait for later changes of others: their write may fail.
        """
        changes = self._change_count
        self._cancel_timer()
        while self._durable_count < changes and not self.is_durable:
            if self._writing is None:
                self._writing = asyncio.create_task(self._write())
            await asyncio.wait((self._writing,))
            if self._failure is not None and self._durable_count < changes:
                raise self._failure
        return self._durable_count >= changes

    async def stop(self) -> None:
        """Stops all writing; nothing is written after it returns."""
        self._is_stopped = True
        self._forget()
        if self._writing is not None:
            await asyncio.wait((self._writing,))
            self._forget()

    def _forget(self) -> None:
        self._cancel_timer()
        self._waiting.clear()
        self._change_count = self._durable_count

    def _schedule(self) -> None:
        if self._writing is not None or self._is_paused:
            return
        if self._waiting or self._change_count - self._durable_count >= CHANGES_MAX:
            self._cancel_timer()
            self._writing = asyncio.create_task(self._write())
        elif not self.is_durable:
            self._set_timer(self._clock)

    def _set_timer(self, clock: Clock) -> None:
        if self._timer is None:
            self._timer = clock.call_later(self._delay_ms / 1000, self._start)

    def _start(self) -> None:
        self._timer = None
        if self._writing is None and not self.is_durable:
            self._writing = asyncio.create_task(self._write())

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _write(self) -> None:
        was_paused, self._is_paused, self._failure = self._is_paused, False, None
        try:
            await self._write_once()
        except Exception as error:
            self._failure = error
        finally:
            self._writing = None
        if self._failure is None:
            self._schedule()
        elif isinstance(self._failure, StorageError):
            if not was_paused:
                _log.error("A cursor is not durable; the write will be retried: %s", self._failure)
            self._is_paused = True
            # The disk does not run on emulated time.
            self._set_timer(WallClock())
        else:
            self._waiting.clear()
            self._on_error(self._failure)

    async def _write_once(self) -> None:
        changes = self._change_count
        await self._persist(self._snapshot())
        self._durable_count = max(self._durable_count, changes)
        while self._waiting and self._waiting[0][0] <= self._durable_count:
            self._waiting.popleft()[1]()

"""A cursor and its record on disk.

Acknowledgements change the cursor at once, and are written soon (cursor_writer.py). Seeks and
passing over are written first: until the record is durable, the cursor stays where it is. If the
write fails, they have no effect, and the next write stores the unchanged cursor. If the broker dies
before that, the failed write may be on disk, and the next start applies it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ledgerfold.broker.common.clock import Clock, WallClock
from ledgerfold.broker.subscriptions.cursor import Cursor
from ledgerfold.broker.subscriptions.cursor_writer import DELAY_MS, CursorWriter, Persist
from ledgerfold.storage.entry import Position, position_of
from ledgerfold.v1.records_pb2 import CursorRecord


class RecordedCursor:
    """The cursor of one subscription. `persist` None: not durable, so it has no record.

    `on_error`: as of CursorWriter.
    """

    def __init__(
        self,
        cursor: Cursor,
        to_record: Callable[[Cursor], CursorRecord],
        persist: Persist | None,
        on_error: Callable[[Exception], None],
        *,
        delay_ms: int = DELAY_MS,
        clock: Clock | None = None,
    ) -> None:
        self._cursor, self._to_record = cursor, to_record
        # The properties of the subscription, stored with each write. Replaced, never modified.
        self.properties: Mapping[str, str] = {}
        # Whether its record is on disk: False while it is being created.
        self.is_recorded = False
        # At or below the mark-delete on disk, whether or not a write in flight succeeds.
        self._recorded_mark_delete = cursor.mark_delete
        # While they are being written: the cursor after a seek; up to where it passes over.
        self._target: Cursor | None = None
        self._through: Position | None = None
        # The mark-delete after the last change, and when it last advanced; 0: not since the load.
        self._last_mark_delete, self.advanced_ms = cursor.mark_delete, 0
        self._clock = clock or WallClock()
        self._persist = persist
        self._writer: CursorWriter | None = None
        if persist is not None:
            self._writer = CursorWriter(
                self._record, self._write, on_error, delay_ms=delay_ms, clock=clock
            )

    @property
    def is_durable(self) -> bool:
        return self._writer is not None

    @property
    def durable_mark_delete(self) -> Position:
        """The position through which everything is durably acknowledged.

        This is the last record written, or a lower one that is being written or waits for that;
        never above the cursor's mark-delete.
        """
        if not self.is_durable:
            return self._cursor.mark_delete
        target = self._target or self._cursor
        return min(self._recorded_mark_delete, self._cursor.mark_delete, target.mark_delete)

    def changed(self, count: int = 1) -> None:
        """Schedules a write."""
        before, self._last_mark_delete = self._last_mark_delete, self._cursor.mark_delete
        if self._last_mark_delete > before:
            self.advanced_ms = self._clock.now_ms()
        if self._writer is not None:
            self._writer.changed(count)

    def when_durable(self, answer: Callable[[], None]) -> None:
        """Calls `answer` once all changes so far are durable."""
        if self._writer is None:
            answer()
        else:
            self._writer.when_durable(answer)

    async def persist(self) -> bool:
        """Writes the cursor. Raises StorageError. Returns False if stop() was called before."""
        self.changed()
        return await self.flush()

    async def flush(self) -> bool:
        """Writes the cursor if it has changed; otherwise as persist()."""
        return self._writer is None or await self._writer.flush()

    async def reset(self, mark_delete: Position) -> bool:
        """Moves the cursor durably; otherwise as persist(). One call at a time."""
        self._target = Cursor(mark_delete, incarnation=self._cursor.incarnation + 1)
        try:
            is_written = await self.persist()
        finally:
            self._target = None
        if is_written:
            self._cursor.reset(mark_delete)
            # It was found for the cursor before the seek.
            self._through = None
        return is_written

    async def pass_over(self, through: Position) -> bool:
        """Writes the cursor as if it had acknowledged `through` and all before it, which the caller
        does then; otherwise as persist(). One call at a time.
        """
        self._through = through
        try:
            return await self.persist()
        finally:
            self._through = None

    async def stop(self) -> None:
        """Stops all writing."""
        if self._writer is not None:
            await self._writer.stop()

    def _record(self) -> CursorRecord:
        cursor = self._target or self._cursor
        if self._target is None and self._through is not None:
            cursor = cursor.passed_over(self._through)
        record = self._to_record(cursor)
        record.subscription_properties.update(self.properties)
        return record

    async def _write(self, record: CursorRecord) -> None:
        assert self._persist is not None
        written = position_of(record.mark_delete)
        self._recorded_mark_delete = min(self._recorded_mark_delete, written)
        await self._persist(record)
        self._recorded_mark_delete, self.is_recorded = written, True

"""A topic's record, and the only code that changes it.

The record is the topic's durable state: its ledgers, its compacted view, its policies, its end. All
changes are made here:

1. Changes run one after the other, in request order.
2. `edit` runs when the change starts, sees the current state, and changes a copy of the record;
   related writes go into the same batch. It may raise: then nothing changes.
3. The batch is written and synced in a thread, with those of other topics
   (broker/log/record_writes.py); the loop continues meanwhile.
4. When it is durable, the copy becomes the record, and `applied` is called in the same step: no
   other task sees one without the other.

A change runs to completion even if its caller is cancelled. After close() no change is accepted:
the topic's record belongs to another owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.log.record_writes import RecordWrites
from ledgerfold.storage.errors import Moved
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.records_pb2 import TopicRecord

Edit = Callable[[TopicRecord, MetadataBatch], object]


class StoredTopic:
    """The record of one loaded topic, used on the event loop."""

    def __init__(self, record: TopicRecord, writes: RecordWrites) -> None:
        self._record, self._writes = record, writes
        self._lock = asyncio.Lock()
        self._is_closed = False

    @property
    def record(self) -> TopicRecord:
        """The record as stored on disk.

        Each change replaces the object; it must not be modified.
        """
        return self._record

    @property
    def name(self) -> str:
        return self._record.name

    @runs_to_completion
    async def change(self, edit: Edit, applied: Callable[[], object] | None = None) -> None:
        """Applies an edit in one synced write; an edit without changes writes nothing.

        Raises what `edit` raises, Moved (the topic was unloaded), DiskFailure.
        """
        async with self._lock:
            if self._is_closed:
                raise Moved(f"{self.name} was unloaded; try again.")
            changed, batch = self._edited(edit)
            await self._writes.write(batch)
            self._record = changed
            if applied is not None:
                applied()

    def change_now(self, edit: Edit) -> None:
        """Applies an edit in the caller's thread, before the topic is shared."""
        changed, batch = self._edited(edit)
        self._writes.write_now(batch)
        self._record = changed

    def _edited(self, edit: Edit) -> tuple[TopicRecord, MetadataBatch]:
        changed, batch = TopicRecord(), self._writes.begin()
        changed.CopyFrom(self._record)
        edit(changed, batch)
        if changed != self._record:
            batch.put(changed)
        return changed, batch

    async def close(self) -> None:
        """Returns when no change is in progress; later changes raise Moved."""
        self._is_closed = True
        async with self._lock:
            pass

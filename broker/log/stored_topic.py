"""A topic's record, and the only one who changes it.

The record is the topic's durable state: its ledgers, its compacted view, its policies, where it
ends. A change is asked for here, and nowhere else:

1. Changes come one after the other, in the order in which they were asked for.
2. When its turn comes, `edit` looks at what is true then, and changes a copy of the record; what
   belongs to the change goes into the same batch. It may raise: then nothing changes.
3. The batch is written, and synced, in a thread: the loop goes on meanwhile.
4. When it is durable, the copy becomes the record, and `applied` is called in the same step: nobody
   sees the one without the other.

A change goes on to its end though its caller is cancelled. After close() there is none any more:
the record of the name is another's to change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from ledgerfold.broker.common.shielding import run_to_completion
from ledgerfold.storage.errors import Moved
from ledgerfold.storage.metadata import MetadataBatch, MetadataStore
from ledgerfold.v1.records_pb2 import TopicRecord

Edit = Callable[[TopicRecord, MetadataBatch], object]


class StoredTopic:
    """One per loaded topic, used on the event loop; `executor` does the writing."""

    def __init__(self, record: TopicRecord, metadata: MetadataStore, executor: Executor) -> None:
        self._record, self._metadata, self._executor = record, metadata, executor
        self._turn = asyncio.Lock()
        self._is_closed = False

    @property
    def record(self) -> TopicRecord:
        """As it is on the disk. Another object after each change; not to be changed."""
        return self._record

    @property
    def name(self) -> str:
        return self._record.name

    async def change(self, edit: Edit, applied: Callable[[], object] | None = None) -> None:
        """One synced write. What changes nothing writes nothing.

        Raises what `edit` raises, Moved (the topic was unloaded), DiskFailure.
        """
        await run_to_completion(self._change(edit, applied))

    async def _change(self, edit: Edit, applied: Callable[[], object] | None) -> None:
        async with self._turn:
            if self._is_closed:
                raise Moved(f"{self.name} was unloaded; try again.")
            changed, batch = self._edited(edit)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._executor, self._metadata.write, batch)
            self._record = changed
            if applied is not None:
                applied()

    def change_now(self, edit: Edit) -> None:
        """As change(), in the caller's thread: of a topic that nobody else knows yet."""
        changed, batch = self._edited(edit)
        self._metadata.write(batch)
        self._record = changed

    def _edited(self, edit: Edit) -> tuple[TopicRecord, MetadataBatch]:
        changed, batch = TopicRecord(), self._metadata.begin()
        changed.CopyFrom(self._record)
        edit(changed, batch)
        if changed != self._record:
            batch.put_topic(changed)
        return changed, batch

    async def close(self) -> None:
        """Returns when no change is on its way; none comes any more."""
        self._is_closed = True
        async with self._turn:
            pass

"""The metadata writes of all topics, grouped: while one is on the disk, the next ones are
collected.

A thread and a sync cost more than the data, so changes of many topics share them: creating 10,000
topics takes far fewer syncs. A group succeeds or fails as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from ledgerfold.storage.metadata import MetadataBatch, MetadataStore


class RecordWrites:
    """The writes of one broker. Used on the event loop, except write_now()."""

    def __init__(self, metadata: MetadataStore, executor: Callable[[], Executor]) -> None:
        self._metadata, self._executor = metadata, executor
        # Oldest first.
        self._waiting: list[tuple[MetadataBatch, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> MetadataBatch:
        """Returns an empty batch."""
        return self._metadata.begin()

    def write_now(self, batch: MetadataBatch) -> None:
        """Writes a batch in the caller's thread. Raises DiskFailure."""
        self._metadata.write(batch)

    async def write(self, batch: MetadataBatch) -> None:
        """Returns when the batch is durable; at once if it is empty. Raises DiskFailure."""
        if batch.is_empty:
            return
        loop = asyncio.get_running_loop()
        written: asyncio.Future[None] = loop.create_future()
        self._waiting.append((batch, written))
        if self._task is None:
            self._task = loop.create_task(self._write_all())
        await written

    async def _write_all(self) -> None:
        """Writes group after group until nothing waits."""
        try:
            while self._waiting:
                group, self._waiting = self._waiting, []
                await self._write_group(group)
        finally:
            self._task = None

    async def _write_group(
        self, group: Sequence[tuple[MetadataBatch, asyncio.Future[None]]]
    ) -> None:
        together = group[0][0]
        for batch, _ in group[1:]:
            together.follow_with(batch)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._executor(), self._metadata.write, together)
        except asyncio.CancelledError:
            # The event loop is being closed.
            for _, written in group:
                written.cancel()
            raise
        except Exception as error:
            for _, written in group:
                if not written.done():
                    written.set_exception(error)
        else:
            for _, written in group:
                if not written.done():
                    written.set_result(None)

"""Changes of many topics share a write of the metadata, and its fate."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from ledgerfold.broker.log.record_writes import RecordWrites
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.metadata import MetadataBatch, MetadataStore
from ledgerfold.v1.records_pb2 import TopicRecord
from tests.support.held_executor import HeldExecutor


class FailingKeyValue(MemoryKeyValue):
    """Its writes fail from `failing_from` on."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.failing_from = 100

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        self.writes += 1
        if self.writes >= self.failing_from:
            raise DiskFailure("/disk", "A write", OSError(5, "broken"))
        super().write(puts, deletes)


class Lab:
    def __init__(self) -> None:
        self.pairs, self.held = FailingKeyValue(), HeldExecutor()
        self.metadata = MetadataStore(self.pairs)
        self.writes = RecordWrites(self.metadata, lambda: self.held)
        self.held.holds = True

    def batch(self, name: str) -> MetadataBatch:
        batch = self.writes.begin()
        batch.put(TopicRecord(name=name))
        return batch

    async def begin(self, *names: str) -> list[asyncio.Task[None]]:
        """One after the other; each has been handed over."""
        tasks = []
        for name in names:
            tasks.append(asyncio.create_task(self.writes.write(self.batch(name))))
            await asyncio.sleep(0)
        await self.held.has_work()
        return tasks

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.metadata.topics()]


def test_waiting_changes_share_the_next_write() -> None:
    async def write() -> None:
        lab = Lab()
        tasks = await lab.begin("a", "b", "c")
        assert lab.held.waiting == 1
        lab.held.let_go(1)
        await tasks[0]
        assert lab.names == ["a"]
        assert not tasks[1].done()
        lab.held.free()
        await asyncio.gather(*tasks)
        assert (lab.names, lab.pairs.writes) == (["a", "b", "c"], 2)

    asyncio.run(write())


def test_changes_that_share_a_failed_write_all_fail() -> None:
    async def write() -> None:
        lab = Lab()
        lab.pairs.failing_from = 2
        tasks = await lab.begin("a", "b", "c")
        lab.held.free()
        first, *others = await asyncio.gather(*tasks, return_exceptions=True)
        assert first is None
        assert [type(each) for each in others] == [DiskFailure, DiskFailure]
        assert lab.names == ["a"]

    asyncio.run(write())


def test_a_cancelled_change_is_still_written() -> None:
    """Its caller was cancelled; the others get their answers."""

    async def write() -> None:
        lab = Lab()
        tasks = await lab.begin("a", "b", "c")
        tasks[1].cancel()
        lab.held.free()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [each.cancelled() for each in tasks] == [False, True, False]
        assert lab.names == ["a", "b", "c"]

    asyncio.run(write())


def test_an_empty_change_is_not_written() -> None:
    async def write() -> None:
        lab = Lab()
        await lab.writes.write(lab.writes.begin())
        assert (lab.held.waiting, lab.pairs.writes) == (0, 0)

    asyncio.run(write())

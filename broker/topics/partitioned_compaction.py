"""Compaction by topic name: of a topic, or of all partitions of a partitioned one.

Each partition has its own horizon, compacted ledger, runs and status; a request for a partitioned
topic applies to each partition. Rules (docs/PROFILES.md, rule 10.5; Pulsar's PersistentTopicsBase):

* A trigger starts, or queues, a run on every partition that accepts one. If a partition refuses
  (for example, because one is running), the other runs continue, and the first refusal is the
  answer.
* A cancellation cancels every running run.
* The status, if the profile has one (`partitioned_status`), is RUNNING while a partition is
  compacted or queued; otherwise ERROR if one failed, with the first error; NOT_RUN if none was
  ever compacted; SUCCESS otherwise. (Pulsar 4 answers that there is no such topic.)

  >>> statuses = [GetCompactionStatusResponse(status=each) for each in (SUCCESS, RUNNING)]
  >>> combined_status(statuses).status == RUNNING
  True
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from ledgerfold.broker.compaction.own_strategies import check_before_run
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.partitions import on_each
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.v1.admin_pb2 import COMPACTION_STATUS_ERROR as ERROR
from ledgerfold.v1.admin_pb2 import COMPACTION_STATUS_NOT_RUN as NOT_RUN
from ledgerfold.v1.admin_pb2 import COMPACTION_STATUS_RUNNING as RUNNING
from ledgerfold.v1.admin_pb2 import COMPACTION_STATUS_SUCCESS as SUCCESS
from ledgerfold.v1.admin_pb2 import GetCompactionStatusResponse
from ledgerfold.v1.records_pb2 import RUN_TRIGGER_ADMIN, CompactionStrategy


class PartitionedCompaction:
    """Compaction calls by full, already checked topic name. Every method raises TopicNotFound."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def _topics(self, name: str, *, to_write: bool = False) -> list[Topic]:
        names = self._broker.partitions.names(name)
        return [await self._broker.topic(each, create=False, to_write=to_write) for each in names]

    async def trigger(self, name: str, strategy: CompactionStrategy | None = None) -> int:
        """Returns the highest run number; 0 if nothing was new.

        `strategy`: used by these runs only. Raises InvalidStrategy, and like the scheduler.
        """
        if strategy is not None:
            await check_before_run(self._broker, self._broker.compactor, strategy)
        topics = {topic.name: topic for topic in await self._topics(name, to_write=True)}
        scheduler = self._broker.compaction
        numbers = await on_each(
            topics, lambda each: scheduler.trigger(topics[each], RUN_TRIGGER_ADMIN, strategy)
        )
        return max(numbers)

    async def cancel(self, names: Sequence[str]) -> int:
        """Cancels the runs of topics.

        Returns the highest cancelled run number, 0 if there were none.
        """
        # Concurrently: one by one, a queued run would start when the previous one ends.
        return max(await asyncio.gather(*map(self._broker.compaction.cancel, names)))

    async def status(self, name: str) -> GetCompactionStatusResponse:
        statuses = [self._broker.compaction.status(each) for each in await self._topics(name)]
        return combined_status(statuses) if self._broker.partitions.count(name) else statuses[0]

    async def watch(self, name: str) -> AsyncGenerator[GetCompactionStatusResponse, None]:
        """Yields the status now, then at each change until no run is running."""
        topics = await self._topics(name)
        if not self._broker.partitions.count(name):
            async for status in self._broker.compaction.watch(topics[0]):
                yield status
            return
        statuses = [self._broker.compaction.status(each) for each in topics]
        changed = asyncio.Event()

        async def follow(at: int) -> None:
            try:
                async for status in self._broker.compaction.watch(topics[at]):
                    statuses[at] = status
                    changed.set()
            finally:
                changed.set()

        following = [asyncio.ensure_future(follow(at)) for at in range(len(topics))]
        try:
            is_over = False
            while not is_over:
                await changed.wait()
                changed.clear()
                is_over = all(each.done() for each in following)
                yield combined_status(statuses)
            await asyncio.gather(*following)
        finally:
            for each in following:
                each.cancel()


def combined_status(statuses: Sequence[GetCompactionStatusResponse]) -> GetCompactionStatusResponse:
    """Combines the statuses of all partitions into that of the partitioned topic."""
    states = {each.status for each in statuses}
    status = next((each for each in (RUNNING, ERROR, SUCCESS) if each in states), NOT_RUN)
    combined = GetCompactionStatusResponse(status=status, partitions=statuses)
    if statuses[0].HasField("strategy"):
        combined.strategy.CopyFrom(statuses[0].strategy)
    if status == RUNNING:
        # One is in the worker, the others are queued.
        furthest = max(statuses, key=lambda each: int(each.progress.phase))
        combined.progress.CopyFrom(furthest.progress)
        # That of one partition says nothing about the others.
        combined.progress.ClearField("left_ms")
    elif status == ERROR:
        failed = next(each for each in statuses if each.status == ERROR)
        combined.last_error = f"{failed.run.topic}: {failed.last_error}"
    return combined

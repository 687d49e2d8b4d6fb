"""Deletes old segments by retention (ledgerfold/kafka/retention.py), one synced write for each log.

    Deletion.of_compacted each pass of the cleaner, over compacted logs that have no state
    Deletion.of_uncompacted the retention thread's pass, over logs that are not compacted

A log that is unloaded or deleted meanwhile, or has failed before, is left for the next pass; the
other logs are still handled. A disk failure ends the pass, because it affects all logs.

Source: LogCleaner.CleanerThread.cleanFilthiestLog, LogManager.cleanupLogs of Kafka 4.1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from ledgerfold.broker.kafka.cleaner.states import States
from ledgerfold.broker.kafka.partition import Partition
from ledgerfold.kafka.retention import deletable
from ledgerfold.storage.errors import Moved
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.records_pb2 import TopicRecord

_log = logging.getLogger(__name__)


class Deletion:
    """Segment deletion of one broker. `changed` is called when a log leaves its state.

    `partitions`: returns the loaded partitions by topic name.
    """

    def __init__(
        self,
        partitions: Callable[[], Mapping[str, Partition]],
        clock_ms: Callable[[], int],
        states: States,
        changed: Callable[[], object],
    ) -> None:
        self._partitions, self._clock_ms = partitions, clock_ms
        self._states, self._changed = states, changed

    async def of_compacted(self) -> int:
        """Deletes old segments of compacted logs. Returns their number. Raises DiskFailure."""
        deleted = 0
        for name in self._names(is_compacted=True):
            if self._states.is_uncleanable(name) or not self._states.begin(name):
                continue
            try:
                deleted += await self._delete_old(name)
            finally:
                self._states.end(name)
                self._changed()
        return deleted

    async def of_uncompacted(self) -> int:
        """Deletes old segments of logs that are not compacted. Returns their number. Raises
        DiskFailure.
        """
        free, deleted = self._states.pause_free(self._names(is_compacted=False)), 0
        try:
            for name in free:
                deleted += await self._delete_old(name)
        finally:
            for name in free:
                self._states.end_pause(name)
            self._changed()
        return deleted

    def _names(self, *, is_compacted: bool) -> list[str]:
        return [
            name
            for name, each in self._partitions().items()
            if each.config.is_compacted == is_compacted
        ]

    async def _delete_old(self, name: str) -> int:
        partition = self._partitions().get(name)
        if partition is None or partition.log.state.failure is not None:
            return 0
        try:
            return await delete_old_segments(partition, self._clock_ms)
        except Moved as error:
            _log.info("%s: old segments stay for now: %s", name, error)
            return 0


async def delete_old_segments(partition: Partition, clock_ms: Callable[[], int]) -> int:
    """Deletes the segments that retention permits. Returns how many. Raises Moved, DiskFailure."""
    log = partition.log

    def count_deletable() -> tuple[int, int, bool]:
        segments = [each.facts for each in log.segments]
        going = deletable(
            segments,
            partition.config,
            log_start=partition.log_start_offset,
            high_watermark=partition.high_watermark,
            now_ms=clock_ms(),
        )
        return going.count, going.log_start, going.must_roll

    count, _, must_roll = count_deletable()
    if not count:
        return 0
    if must_roll:
        log.roll()

    def start(record: TopicRecord, batch: MetadataBatch) -> None:
        first_offset = record.kafka.segments[0].base_offset
        record.kafka.log_start_offset = max(record.kafka.log_start_offset, first_offset)

    deleted = await log.drop_first(lambda: count_deletable()[0], start)
    await partition.begins_later()
    return deleted

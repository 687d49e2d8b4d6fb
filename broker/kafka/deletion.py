"""Deleting what retention lets go (ledgerfold/kafka/retention.py) of a log, in one synced write."""

from __future__ import annotations

from collections.abc import Callable

from ledgerfold.broker.kafka.partition import Partition
from ledgerfold.kafka.retention import doomed
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.records_pb2 import TopicRecord


async def delete_old_segments(partition: Partition, clock_ms: Callable[[], int]) -> int:
    """What the policy lets go; how many. Raises Moved, DiskFailure."""
    log = partition.log

    def found() -> tuple[int, int, bool]:
        segments = [each.facts for each in log.segments]
        going = doomed(
            segments,
            partition.config,
            log_start=partition.log_start_offset,
            high_watermark=partition.high_watermark,
            now_ms=clock_ms(),
        )
        return going.count, going.log_start, going.must_roll

    count, _, must_roll = found()
    if not count:
        return 0
    if must_roll:
        log.roll()

    def start(record: TopicRecord, batch: MetadataBatch) -> None:
        left = record.kafka.segments[0].base_offset
        record.kafka.log_start_offset = max(record.kafka.log_start_offset, left)

    deleted = await log.drop_first(lambda: found()[0], start)
    await partition.begins_later()
    return deleted

"""Truncates a loaded Kafka topic's log: unloads it, truncates the closed log, and loads it again.

Readers and producers reconnect, as after any unload. A reader past the new end is refused
(OFFSET_OUT_OF_RANGE) until the log has grown to its offset. A cleaning in progress is aborted if
the active segment is deleted or replaced. Otherwise the truncation waits until the cleaning has
ended, because it does not change the segments of the cleaning (broker/kafka/log/truncation.py).
"""

from __future__ import annotations

import functools
import logging
from typing import NamedTuple

from ledgerfold.broker.kafka.log.truncation import truncate
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.kafka_topic import KafkaTopic
from ledgerfold.storage.crash_points import reach
from ledgerfold.storage.errors import DiskFailure, InvalidRequest, Moved, TopicNotFound

_log = logging.getLogger(__name__)


class Truncated(NamedTuple):
    """The log after a truncation. `checkpoint`: None if none is stored."""

    log_end_offset: int
    log_start_offset: int
    checkpoint: int | None


async def truncate_log(broker: Broker, name: str, offset: int) -> Truncated:
    """Deletes everything at or after an offset. An offset at or after the log's end changes
    nothing.

    Raises InvalidRequest, TopicNotFound, NotAllowed, Moved, StorageError.
    """
    if offset < 0:
        raise InvalidRequest(f"{name} cannot be truncated to {offset}: an offset is 0 or more.")
    topic = await broker.kafka_topic(name, to_write=True)
    topic.log.tail.check_open()
    if offset >= topic.log.end_offset:
        return _as_it_is(topic)
    aborts = offset < topic.log.segments.active.base_offset
    async with broker.cleaner.paused(name, aborts=aborts), broker.kept_unloaded(name) as stored:
        if not isinstance(stored, KafkaTopic):
            raise Moved(f"{name} was unloaded; try again.")
        topic = stored
        reach("truncate.unloaded")
        if offset < topic.log.end_offset:
            await _truncate(broker, topic, offset)
    loaded = await broker.kafka_topic(name, to_write=True)
    loaded.take_over(topic)
    return _as_it_is(loaded)._replace(log_end_offset=offset)


async def _truncate(broker: Broker, topic: KafkaTopic, offset: int) -> None:
    """Truncates the log of an unloaded topic."""
    record = broker.metadata.topic(topic.name)
    if record is None:
        raise TopicNotFound(topic.name)
    if not record.kafka.HasField("closed"):
        assert topic.failure is not None
        raise topic.failure

    def work() -> list[int]:
        return truncate(
            record,
            offset,
            broker.store,
            broker.metadata,
            topic.log.grow,
            broker.clock.now_ms(),
            is_compacted=topic.config.is_compacted,
            knows_producers=not topic.partition.producers.is_empty,
        )

    gone = await broker.in_thread(work)
    try:
        await broker.in_thread(functools.partial(broker.store.delete_all_files, gone))
    except DiskFailure as error:
        _log.warning("Files of ledgers of %s stay for now: %s", topic.name, error)
    reach("truncate.after-delete")


def _as_it_is(topic: KafkaTopic) -> Truncated:
    partition = topic.partition
    return Truncated(topic.log.end_offset, partition.log_start_offset, partition.checkpoint)

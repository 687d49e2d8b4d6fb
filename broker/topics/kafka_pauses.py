"""Pauses of a Kafka topic's cleanings by administrators. They are stored, and survive restarts.

Imports and exports depend on that: an incomplete log must not be cleaned, and the parts that an
export has written must match those that it still reads.
"""

from __future__ import annotations

import logging

from ledgerfold.broker.kafka.cleaner.cleaner import Cleaner
from ledgerfold.broker.kafka.cleaner.states import Paused
from ledgerfold.broker.topics.kafka_topic import KafkaTopic
from ledgerfold.storage.errors import DiskFailure, InvalidRequest, LedgerfoldError
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.records_pb2 import TopicRecord

_log = logging.getLogger(__name__)


async def pause_cleaning(cleaner: Cleaner, topic: KafkaTopic) -> None:
    """Aborts a cleaning in progress and prevents others until resume_cleaning().

    Raises Moved, DiskFailure: nothing is prevented then. On a full disk, where a log must still be
    exported, the pause ends with the process.
    """

    def count(record: TopicRecord, batch: MetadataBatch) -> None:
        record.kafka.pauses += 1

    await cleaner.abort_and_pause(topic.name)
    try:
        await topic.stored.change(count)
    except LedgerfoldError as error:
        if not (isinstance(error, DiskFailure) and error.is_full):
            cleaner.end_pause(topic.name)
            raise
        cleaner.unstored[topic.name] += 1
        _log.warning("%s: the pause of its cleaning is not stored: %s", topic.name, error)


async def resume_cleaning(cleaner: Cleaner, topic: KafkaTopic) -> None:
    """Ends one pause, if possible one that is not stored: a full disk does not prevent that.

    Raises InvalidRequest if there is none, Moved, DiskFailure.
    """
    name, unstored = topic.name, cleaner.unstored
    ends_unstored = False

    def count(record: TopicRecord, batch: MetadataBatch) -> None:
        nonlocal ends_unstored
        if not isinstance(cleaner.states.of(name), Paused):
            raise InvalidRequest(f"{name} is not paused.")
        ends_unstored = unstored[name] > 0
        if not ends_unstored:
            record.kafka.pauses = max(0, record.kafka.pauses - 1)

    def end() -> None:
        if ends_unstored:
            unstored[name] -= 1
        cleaner.end_pause(name)

    await topic.stored.change(count, end)

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
        _log.warning("%s: the pause of its cleaning is not stored: %s", topic.name, error)


async def resume_cleaning(cleaner: Cleaner, topic: KafkaTopic) -> None:
    """Ends one pause. Raises InvalidRequest if there is none, Moved, DiskFailure."""

    def count(record: TopicRecord, batch: MetadataBatch) -> None:
        if not isinstance(cleaner.states.of(topic.name), Paused):
            raise InvalidRequest(f"{topic.name} is not paused.")
        record.kafka.pauses = max(0, record.kafka.pauses - 1)

    await topic.stored.change(count, lambda: cleaner.end_pause(topic.name))

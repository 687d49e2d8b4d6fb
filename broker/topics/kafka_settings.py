"""Settings of Kafka topics and of their broker, the effects of their changes, and pauses.

Administrators pause a topic's cleanings. Pauses are stored, and survive restarts. Imports and
exports depend on that: an incomplete log must not be cleaned, and the parts that an export has
written must match those that it still reads.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Protocol

from ledgerfold.broker.common.names import TopicName
from ledgerfold.broker.compaction.interfaces import BrokerContext
from ledgerfold.broker.kafka.cleaner.cleaner import Cleaner
from ledgerfold.broker.kafka.cleaner.states import Paused
from ledgerfold.broker.kafka.config.config import BrokerConfig, Defects, LogConfig
from ledgerfold.broker.kafka.log.checkpoint_file import topic_partition
from ledgerfold.broker.policies.profiles import emulation
from ledgerfold.broker.topics.kafka_topic import KafkaTopic
from ledgerfold.broker.topics.partitions import Partitions
from ledgerfold.storage.errors import (
    DiskFailure,
    InvalidRequest,
    KafkaError,
    KafkaErrorKind,
    LedgerfoldError,
    TopicNotFound,
)
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.storage.records import KAFKA_TOPICS
from ledgerfold.v1.records_pb2 import Policies, TopicRecord

_log = logging.getLogger(__name__)


class KafkaBroker(BrokerContext, Protocol):
    """The part of the broker that settings need (broker/topics/broker.py)."""

    kafka_config: BrokerConfig

    @property
    def partitions(self) -> Partitions: ...
    @property
    def cleaner(self) -> Cleaner: ...
    @property
    def kafka_topics(self) -> Mapping[str, KafkaTopic]: ...
    async def kafka_topic(self, name: str) -> KafkaTopic: ...


def defects_of(broker: KafkaBroker, topic: str = "") -> Defects:
    """Returns the enabled defects of a topic, by its namespace's and the broker's profile.

    "": the broker's. A topic's own policies are Pulsar's.
    """
    levels = broker.policy_levels
    namespace = levels.of_namespace(TopicName.parse(topic).namespace) if topic else Policies()
    values = emulation(levels.broker.emulation, namespace.emulation)
    return Defects(**{name: getattr(values, name) for name in Defects._fields})


async def start_cleaning(broker: KafkaBroker) -> None:
    """Starts the cleaner after loading all logs, because unopened topics also age and become
    overdue.
    """
    for name, error in (await load_all(broker)).items():
        _log.error("%s cannot be loaded: %s", name, error)
    broker.cleaner.start()


async def load_all(broker: KafkaBroker) -> dict[str, LedgerfoldError]:
    """Loads every Kafka topic. Returns the failures by name."""
    failures = {}
    for record in broker.metadata.topics():
        if record.HasField("kafka"):
            try:
                await broker.kafka_topic(record.name)
            except TopicNotFound:
                # Deleted meanwhile.
                continue
            except LedgerfoldError as error:
                failures[record.name] = error
    return failures


async def prepare_kafka_topic(broker: KafkaBroker, name: str, config: Mapping[str, str]) -> None:
    """Prepares the creation of a topic with these settings.

    Raises KafkaError (INVALID_TOPIC_EXCEPTION, INVALID_CONFIG).
    """
    check_topic_name(topic_partition(name).topic)
    LogConfig.of(config, broker.kafka_config)
    await broker.in_thread(lambda: broker.metadata.need_feature(KAFKA_TOPICS))


async def change_config(broker: KafkaBroker, name: str, changes: Mapping[str, str | None]) -> None:
    """Changes a topic's settings, as change_topic_config(), by name.

    For a partitioned topic it changes all partitions, including future ones, or none if one
    refuses. Raises TopicNotFound, NotAllowed, too.
    """
    if not broker.partitions.count(name):
        await change_topic_config(broker, await broker.kafka_topic(name), changes)
        return
    # Of two changes at once, all partitions get the later one's.
    async with broker.partitions.kafka_changes:
        topics = [await broker.kafka_topic(each) for each in broker.partitions.names(name)]
        for config in (
            broker.partitions.record(name).kafka.config,
            *(each.record.kafka.config for each in topics),
        ):
            LogConfig.changed(config, changes, broker.kafka_config)
        # First, so that a partition that is added meanwhile has the new settings.
        await broker.partitions.update_kafka(name, changes)
        for each in broker.partitions.names(name):
            await change_topic_config(broker, await broker.kafka_topic(each), changes)


async def change_topic_config(
    broker: KafkaBroker, topic: KafkaTopic, changes: Mapping[str, str | None]
) -> None:
    """Changes a Kafka topic's own settings; None unsets one. All or none. Raises KafkaError.

    If the topic is no longer compacted, its cleaning is aborted and changes nothing.
    """
    was_compacted = topic.config.is_compacted
    await topic.partition.change_config(changes)
    if was_compacted and not topic.config.is_compacted:
        await broker.cleaner.abort_and_pause(topic.name)
        broker.cleaner.resume(topic.name)


async def change_broker_config(broker: KafkaBroker, changes: Mapping[str, str | None]) -> None:
    """Changes the broker's dynamic settings until it stops. Raises KafkaError.

    A change of cleaner settings restarts the cleaner's threads.
    """
    broker.kafka_config = broker.kafka_config.changed(changes)
    for topic in broker.kafka_topics.values():
        topic.partition.renew_config()
    if any(name.startswith("log.cleaner.") for name in changes):
        await broker.cleaner.restart()


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


_LENGTH_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raises KafkaError (INVALID_TOPIC_EXCEPTION) if a name is not valid by Kafka's rules: names
    are words in its files, and names of folders. Source:
    `org.apache.kafka.common.internals.Topic` of Kafka 4.1.

    >>> check_topic_name("orders.eu_2")
    >>> check_topic_name("orders eu")
    Traceback (most recent call last):
        ...
    ledgerfold.errors.KafkaError: Topic name is invalid: 'orders eu' contains one or more \
characters other than ASCII alphanumerics, '.', '_' and '-'
    """
    if name in (".", ".."):
        why = f"'{name}' is not allowed"
    elif len(name) > _LENGTH_MAX:
        why = f"the length of '{name}' is longer than the max allowed length {_LENGTH_MAX}"
    elif not _LEGAL.fullmatch(name):
        why = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'"
        )
    else:
        return
    raise KafkaError(KafkaErrorKind.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}")

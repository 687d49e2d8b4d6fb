"""Settings of Kafka topics and of their broker, as they change, and what follows from it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Protocol

from ledgerfold.broker.ground.names import TopicName
from ledgerfold.broker.ground.settings import BrokerSettings
from ledgerfold.broker.kafka.checkpoint_file import topic_partition
from ledgerfold.broker.kafka.cleaner import Cleaner
from ledgerfold.broker.kafka.config import BrokerConfig, LogConfig
from ledgerfold.broker.kafka.defects import Defects
from ledgerfold.broker.kafka.topic_names import check_topic_name
from ledgerfold.broker.policies.profiles import emulation
from ledgerfold.broker.topics.kafka_topic import KafkaTopic
from ledgerfold.broker.topics.partitions import Partitions
from ledgerfold.storage.errors import LedgerfoldError, TopicNotFound
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.records import KAFKA_TOPICS
from ledgerfold.v1.records_pb2 import Emulation

_log = logging.getLogger(__name__)


class KafkaBroker(Protocol):
    """What is needed of the broker (broker/topics/broker.py)."""

    kafka_config: BrokerConfig

    @property
    def settings(self) -> BrokerSettings: ...
    @property
    def metadata(self) -> MetadataStore: ...
    @property
    def executor(self) -> Executor: ...
    @property
    def partitions(self) -> Partitions: ...
    @property
    def cleaner(self) -> Cleaner: ...
    @property
    def kafka_topics(self) -> Mapping[str, KafkaTopic]: ...
    async def kafka_topic(self, name: str) -> KafkaTopic: ...


def defects_of(broker: KafkaBroker, topic: str = "") -> Defects:
    """Those that are wanted of a topic, by its namespace's profile and the broker's; "": of none.

    A topic's own policies are Pulsar's.
    """
    namespace = broker.metadata.namespace(TopicName.parse(topic).namespace) if topic else None
    own = Emulation() if namespace is None else namespace.policies.emulation
    values = emulation(broker.settings.emulation, own)
    return Defects(**{name: getattr(values, name) for name in Defects._fields})


async def start_cleaning(broker: KafkaBroker) -> None:
    """Logs age, and get overdue, also where nobody opens their topics: so all are loaded first."""
    for name, error in (await load_all(broker)).items():
        _log.error("%s cannot be loaded: %s", name, error)
    broker.cleaner.start()


async def load_all(broker: KafkaBroker) -> dict[str, LedgerfoldError]:
    """Returns when every Kafka topic is loaded; by name why one cannot be."""
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
    """Before one with these settings is made.

    Raises KafkaError (INVALID_TOPIC_EXCEPTION, INVALID_CONFIG).
    """
    check_topic_name(topic_partition(name).topic)
    LogConfig.of(config, broker.kafka_config)
    need_feature = broker.metadata.need_feature
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(broker.executor, need_feature, KAFKA_TOPICS)


async def change_config(broker: KafkaBroker, name: str, changes: Mapping[str, str | None]) -> None:
    """As change_topic_config(), by name; of a partitioned topic: of all partitions, also new ones,
    or of none, if one refuses.

    Raises TopicNotFound, NotAllowed, too.
    """
    topics = [await broker.kafka_topic(each) for each in broker.partitions.names(name)]
    for topic in topics:
        LogConfig.changed(topic.record.kafka.config, changes, broker.kafka_config)
    for topic in topics:
        await change_topic_config(broker, topic, changes)
    if broker.partitions.count(name):
        await broker.partitions.update_kafka(name, changes)


async def change_topic_config(
    broker: KafkaBroker, topic: KafkaTopic, changes: Mapping[str, str | None]
) -> None:
    """A Kafka topic's own settings; None takes one back. All or none. Raises KafkaError.

    The round of a topic that is not compacted any more ends, and changes nothing.
    """
    was_compacted = topic.config.is_compacted
    await topic.partition.change_config(changes)
    if was_compacted and not topic.config.is_compacted:
        await broker.cleaner.abort_and_pause(topic.name)
        broker.cleaner.resume(topic.name)


async def change_broker_config(broker: KafkaBroker, changes: Mapping[str, str | None]) -> None:
    """The broker's, where Kafka lets a running one change them: until it stops. Raises KafkaError.

    The cleaner's threads begin anew with settings of theirs.
    """
    broker.kafka_config = broker.kafka_config.changed(changes)
    for topic in broker.kafka_topics.values():
        topic.partition.renew_config()
    if any(name.startswith("log.cleaner.") for name in changes):
        await broker.cleaner.restart()

"""The non-persistent topics of a broker: which exist, and how they begin and end.

A topic begins when it is created, or when a client uses it, as other topics do; it ends when it is
deleted or unloaded, when nobody has used it for UNUSED_MS, and with the broker. A topic that is
deleted, or unused, loses its schema, too. A partitioned one has a record (partitions.py); its
partitions exist from then on, and begin like other topics.

Source: Pulsar's BrokerService and NonPersistentTopic.checkGC
(brokerDeleteInactiveTopicsMaxInactiveDurationSeconds).
"""

from __future__ import annotations

from collections.abc import Iterator

from ledgerfold.broker.common.names import is_non_persistent, namespace_of
from ledgerfold.broker.topics.loaded_topic import TopicContext
from ledgerfold.broker.topics.non_persistent_topic import NonPersistentTopic
from ledgerfold.broker.topics.partitions import Partitions
from ledgerfold.broker.topics.schemas import Schemas
from ledgerfold.storage.errors import NotAllowed, TopicExists, Unavailable
from ledgerfold.storage.partition_names import base_topic

# Pulsar's default.
UNUSED_MS = 60_000


class NonPersistentTopics:
    """The topics by full, already checked name. Used on the event loop, except where stated."""

    def __init__(self, broker: TopicContext, partitions: Partitions, schemas: Schemas) -> None:
        self._broker, self._partitions, self._schemas = broker, partitions, schemas
        self._topics: dict[str, NonPersistentTopic] = {}
        self._is_stopped = False

    def get(self, name: str) -> NonPersistentTopic | None:
        """Returns the topic if it exists. Thread-safe."""
        return self._topics.get(name)

    def exists(self, name: str) -> bool:
        """Returns whether a topic has the name, also a partition not used yet. Thread-safe."""
        is_partition = is_non_persistent(name) and self._partitions.has_partition(name)
        return is_partition or name in self._topics

    def __iter__(self) -> Iterator[NonPersistentTopic]:
        return iter(tuple(self._topics.values()))

    def listed(self, namespace: str = "") -> list[str]:
        """Returns the sorted names of a namespace, or all. Thread-safe."""
        names = sorted(self._topics)
        return [each for each in names if namespace in ("", namespace_of(each))]

    def topic(self, name: str, create: bool = True) -> NonPersistentTopic:
        """Returns the topic, creating it if `create` and the broker allow.

        Raises TopicNotFound, TopicIsPartitioned, InvalidRequest, Unavailable (the broker stops).
        """
        topic = self._topics.get(name)
        if topic is not None:
            return topic
        partitions, parent = self._partitions, base_topic(name)
        create = create and self._broker.settings.creates_topics
        if not create and not partitions.count(parent):
            raise partitions.not_found(name, self._broker.settings.creates_topics)
        return self._begin(name)

    def create(self, name: str, kafka: object = None) -> None:
        """Raises TopicExists, NotAllowed (a partition's name; with `kafka`), InvalidRequest."""
        _check_no_kafka(name, kafka)
        if name in self._topics:
            raise TopicExists(name)
        self._partitions.check_creatable(name)
        self._begin(name)

    def _begin(self, name: str) -> NonPersistentTopic:
        if self._is_stopped:
            raise Unavailable("The broker is stopping.")
        self._partitions.check_usable(name)
        topic = self._topics[name] = NonPersistentTopic(self._broker, name)
        return topic

    def check_partitionable(self, name: str, kafka: object = None) -> None:
        """Raises TopicExists if a topic, or a partition, has the name; NotAllowed with `kafka`."""
        _check_no_kafka(name, kafka)
        for each in self._topics:
            if name in (each, base_topic(each)):
                raise TopicExists(name)

    def end(self, name: str) -> None:
        """Ends a topic: its clients reconnect."""
        topic = self._topics.pop(name, None)
        if topic is not None:
            topic.close()

    async def end_unused(self) -> None:
        """Ends topics that no client has used for some time, and deletes their schemas.

        Raises DiskFailure; then the topics have ended.
        """
        now_ms = self._broker.clock.now_ms()
        unused = [
            topic.name for topic in self if not topic.is_used and now_ms - topic.used_ms > UNUSED_MS
        ]
        for name in unused:
            self.end(name)
        await self._schemas.forget(unused, self._has_owner)

    def _has_owner(self, owner: str) -> bool:
        """Returns whether a topic, partitioned or not, or a partition of it exists. Thread-safe."""
        if self._partitions.count(owner):
            return True
        return any(base_topic(each) == owner for each in tuple(self._topics))

    def stop(self) -> None:
        """Ends all topics; no new one may begin."""
        self._is_stopped = True
        for topic in self:
            self.end(topic.name)


def _check_no_kafka(name: str, kafka: object) -> None:
    """Raises NotAllowed for a topic with Kafka's settings: its log would be stored."""
    if kafka is not None:
        raise NotAllowed(f"{name} is non-persistent: a Kafka topic is stored. Use persistent://.")

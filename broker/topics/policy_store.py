"""Where policies are kept: in the topic's and the namespace's record.

A partitioned topic's are in its own, and are those of its partitions (broker/topics/partitions.py).

A threshold that is set to more than 0 takes effect at once on what raw data may go: the topics it
applies to get their compaction cursor, so that nothing is trimmed that no compaction has seen
(apache/pulsar#11003). Topics that are not loaded get it when they are: nothing is trimmed before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ledgerfold.broker.ground.names import TopicName
from ledgerfold.broker.policies.effective import (
    broker_policies,
    effective_policies,
    updated_policies,
)
from ledgerfold.storage.errors import Moved, TopicNotFound
from ledgerfold.v1.records_pb2 import NamespaceRecord, Policies, TopicRecord

if TYPE_CHECKING:
    from ledgerfold.broker.compaction.interfaces import CompactableTopic, CompactionBroker


class PolicyStore:
    """Names are full names, already checked."""

    def __init__(self, broker: CompactionBroker) -> None:
        self._broker = broker
        self._broker_policies = broker_policies(broker.settings)

    def of_topic(self, topic: str, *, applied: bool) -> Policies:
        """What is set on it, or what applies to it. It may be partitioned.

        Raises TopicNotFound; InvalidRequest for a partition.
        """
        own = self._of_topic(topic)
        if not applied:
            return own
        namespace = self.of_namespace(TopicName.parse(topic).namespace, applied=False)
        return effective_policies(own, namespace, self._broker_policies)

    def _of_topic(self, name: str) -> Policies:
        partitioned = self._broker.metadata.partitioned_topic(name)
        if partitioned is not None:
            return partitioned.policies
        topic = self._broker.metadata.topic(name)
        if topic is None:
            raise TopicNotFound(name)
        self._broker.partitions.check_policies(name)
        return topic.policies

    def of_namespace(self, namespace: str, *, applied: bool) -> Policies:
        """As of_topic. A namespace without a record is one that nothing was set on."""
        record = self._broker.metadata.namespace(namespace)
        own = Policies() if record is None else record.policies
        return effective_policies(Policies(), own, self._broker_policies) if applied else own

    async def update_topic(
        self, topic: CompactableTopic, changes: Policies, remove: Iterable[str]
    ) -> None:
        """One synced write.

        Raises InvalidRequest, NotAllowed, Moved (it was unloaded); then nothing has changed.
        """
        self._broker.partitions.check_policies(topic.name)
        if self._broker.topics.get(topic.name) is not topic:
            # NOTE: its record is out of date: written, it would take ledgers from the topic.
            raise Moved(f"{topic.name} was unloaded; try again.")
        record = TopicRecord()
        record.CopyFrom(topic.record)
        record.policies.CopyFrom(updated_policies(record.policies, changes, remove))
        with self._broker.metadata.batch() as batch:
            batch.put_topic(record)
        topic.record.policies.CopyFrom(record.policies)
        await _hold_raw_data(topic)

    async def update_partitioned_topic(
        self, name: str, changes: Policies, remove: Iterable[str]
    ) -> None:
        """As update_topic: of all its partitions."""
        current = self._broker.partitions.record(name).policies
        policies = updated_policies(current, changes, remove)
        self._broker.partitions.update_policies(name, policies)
        for partition in self._broker.partitions.names(name):
            topic = self._broker.topics.get(partition)
            if topic is not None:
                await _hold_raw_data(topic)

    async def update_namespace(
        self, namespace: str, changes: Policies, remove: Iterable[str]
    ) -> None:
        """One synced write. Raises InvalidRequest; then nothing has changed."""
        policies = updated_policies(self.of_namespace(namespace, applied=False), changes, remove)
        with self._broker.metadata.batch() as batch:
            batch.put_namespace(NamespaceRecord(name=namespace, policies=policies))
        for topic in list(self._broker.topics.values()):
            if TopicName.parse(topic.name).namespace == namespace:
                await _hold_raw_data(topic)


async def _hold_raw_data(topic: CompactableTopic) -> None:
    if topic.policies().compaction_threshold_bytes > 0:
        await topic.enable_compaction_cursor()

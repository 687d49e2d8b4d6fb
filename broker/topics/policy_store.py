"""Policies, stored in the topic's and the namespace's record.

Those of a partitioned topic are in its own record and apply to its partitions
(broker/topics/partitions.py).

Setting a threshold above 0 takes effect on trimming at once: the topics it applies to get their
compaction cursor, so that nothing is trimmed before compaction has read it (apache/pulsar#11003).
Topics that are not loaded get it when loaded; they are not trimmed before.

A user-defined strategy must be allowed, and the compactor checks it before it is stored. No lock is
held during that check, so other policy changes do not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol

from ledgerfold.broker.common.names import TopicName
from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.compaction.interfaces import BrokerContext
from ledgerfold.broker.compaction.own_strategies import check_allowed
from ledgerfold.broker.policies.effective import (
    check_policies,
    effective_policies,
    updated_policies,
)
from ledgerfold.broker.topics.namespaces import Namespaces
from ledgerfold.broker.topics.partitions import Partitions, RecordChange
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.broker.worker.compactor import Compactor
from ledgerfold.storage.errors import NamespaceNotFound, TopicNotFound
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.strategies.catalogue import listed
from ledgerfold.v1.records_pb2 import (
    NamespaceRecord,
    PartitionedTopicRecord,
    Policies,
    TopicRecord,
)


class PolicyBroker(BrokerContext, Protocol):
    """The part of the broker that the store uses (broker/topics/broker.py)."""

    @property
    def namespaces(self) -> Namespaces: ...
    @property
    def partitions(self) -> Partitions: ...
    @property
    def topics(self) -> Mapping[str, Topic]: ...
    @property
    def compactor(self) -> Compactor: ...
    async def change_partitioned(self, name: str, change: RecordChange) -> None: ...


class PolicyStore:
    """The policies by full, already checked name.

    `turn` is held by each writer of namespace records (broker/topics/namespaces.py).
    """

    def __init__(self, broker: PolicyBroker) -> None:
        self._broker = broker
        self.turn = asyncio.Lock()

    def of_topic(self, topic: str, *, applied: bool) -> Policies:
        """Returns the policies set on the topic, or with `applied` the effective ones.

        The topic may be partitioned. Raises TopicNotFound; InvalidRequest for a partition.
        """
        own = self._of_topic(topic)
        if not applied:
            return own
        # A partitioned topic has no topic record.
        return self._broker.policy_levels.in_force(TopicRecord(name=topic, policies=own))

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
        """Returns the policies of a namespace; see of_topic(). Raises NamespaceNotFound."""
        self._check_exists(namespace)
        levels = self._broker.policy_levels
        own = levels.of_namespace(namespace)
        return effective_policies(Policies(), own, levels.broker) if applied else own

    async def update_topic(self, topic: Topic, changes: Policies, remove: Iterable[str]) -> None:
        """Changes the policies of a topic in one synced write.

        Raises InvalidRequest (including StrategyNotAllowed), NotAllowed, Moved (it was unloaded),
        CompactorUnavailable; then nothing has changed.
        """
        self._broker.partitions.check_policies(topic.name)
        await self._check(changes)

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            above = self._broker.policy_levels.quotas_above(topic.name)
            record.policies.CopyFrom(updated_policies(record.policies, changes, remove, above))

        await topic.stored.change(edit)
        await _apply(topic)

    async def update_partitioned_topic(
        self, name: str, changes: Policies, remove: Iterable[str]
    ) -> None:
        """Changes the policies of all partitions. Raises like update_topic()."""
        await self._check(changes)
        above = self._broker.policy_levels.quotas_above(name)

        def change(record: PartitionedTopicRecord) -> None:
            record.policies.CopyFrom(updated_policies(record.policies, changes, remove, above))

        await self._broker.change_partitioned(name, change)
        for partition in self._broker.partitions.names(name):
            topic = self._broker.topics.get(partition)
            if topic is not None:
                await _apply(topic)

    async def update_namespace(
        self, namespace: str, changes: Policies, remove: Iterable[str]
    ) -> None:
        """Changes the policies of a namespace in one synced write.

        Raises NamespaceNotFound, InvalidRequest, CompactorUnavailable; then nothing has changed.
        """
        await self._check(changes)
        await self._update_namespace(namespace, changes, remove)
        await self.apply(namespace)

    async def apply(self, namespace: str) -> None:
        """Applies the policies of a namespace, which may be new, to its loaded topics."""
        for topic in list(self._broker.topics.values()):
            if TopicName.parse(topic.name).namespace == namespace:
                await _apply(topic)

    async def _check(self, changes: Policies) -> None:
        check_policies(changes)
        strategy = changes.compaction_strategy
        if changes.HasField("compaction_strategy") and listed(strategy.name) is None:
            await check_allowed(self._broker, strategy)
            await self._broker.compactor.check_strategy(strategy)

    def _check_exists(self, namespace: str) -> None:
        if not self._broker.namespaces.exists(namespace):
            raise NamespaceNotFound(namespace)

    @runs_to_completion
    async def _update_namespace(
        self, namespace: str, changes: Policies, remove: Iterable[str]
    ) -> None:
        async with self.turn:
            metadata = self._broker.metadata

            def edit(batch: MetadataBatch) -> None:
                # In the write: a change of policies must not restore a deleted namespace.
                self._check_exists(namespace)
                record = metadata.namespace(namespace) or NamespaceRecord(name=namespace)
                policies = updated_policies(record.policies, changes, remove)
                record.policies.CopyFrom(policies)
                batch.put(record)

            await self._broker.in_thread(lambda: metadata.change(edit))


async def _apply(topic: Topic) -> None:
    """Applies what takes effect at once: limits and delays of deliveries, and a threshold."""
    for subscription in topic.subscriptions.values():
        subscription.wake()
    if topic.policies().compaction_threshold_bytes > 0:
        await topic.enable_compaction_cursor()

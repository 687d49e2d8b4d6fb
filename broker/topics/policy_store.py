"""Where policies are kept: in the topic's and the namespace's record.

A partitioned topic's are in its own, and are those of its partitions (broker/topics/partitions.py).

A threshold that is set to more than 0 takes effect at once on what raw data may go: the topics it
applies to get their compaction cursor, so that nothing is trimmed that no compaction has seen
(apache/pulsar#11003). Topics that are not loaded get it when they are: nothing is trimmed before.

A strategy of one's own must be allowed, and is tried by the compactor before it is stored; nothing
is held meanwhile: who sets another policy does not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from typing import Protocol

from ledgerfold.broker.compaction.interfaces import OwnCompactor
from ledgerfold.broker.compaction.own_strategies import check_allowed
from ledgerfold.broker.ground.names import TopicName
from ledgerfold.broker.ground.settings import BrokerSettings
from ledgerfold.broker.ground.uncancelled import to_its_end
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.broker.policies.effective import (
    broker_policies,
    check_policies,
    effective_policies,
    updated_policies,
)
from ledgerfold.broker.topics.partitions import Partitions
from ledgerfold.storage.errors import TopicNotFound
from ledgerfold.storage.metadata import MetadataBatch, MetadataStore
from ledgerfold.strategies.catalogue import listed
from ledgerfold.v1.records_pb2 import NamespaceRecord, Policies, TopicRecord


class PolicyTopic(Protocol):
    """What is needed of a topic (broker/topics/topic.py)."""

    @property
    def name(self) -> str: ...
    @property
    def stored(self) -> StoredTopic: ...
    def policies(self) -> Policies: ...
    async def enable_compaction_cursor(self) -> None: ...


class PolicyBroker(Protocol):
    """What is needed of the broker (broker/topics/broker.py)."""

    @property
    def settings(self) -> BrokerSettings: ...
    @property
    def metadata(self) -> MetadataStore: ...
    @property
    def executor(self) -> Executor: ...
    @property
    def partitions(self) -> Partitions: ...
    @property
    def topics(self) -> Mapping[str, PolicyTopic]: ...
    @property
    def compactor(self) -> OwnCompactor: ...
    async def update_partitioned_policies(
        self, name: str, update: Callable[[Policies], Policies]
    ) -> None: ...


class PolicyStore:
    """Names are full names, already checked. The one owner of the namespaces' records."""

    def __init__(self, broker: PolicyBroker) -> None:
        self._broker = broker
        self._namespaces = asyncio.Lock()
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
        self, topic: PolicyTopic, changes: Policies, remove: Iterable[str]
    ) -> None:
        """One synced write.

        Raises InvalidRequest (StrategyNotAllowed is one), NotAllowed, Moved (it was unloaded),
        CompactorUnavailable; then nothing has changed.
        """
        self._broker.partitions.check_policies(topic.name)
        await self._check(changes)

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            record.policies.CopyFrom(updated_policies(record.policies, changes, remove))

        await topic.stored.change(edit)
        await _hold_raw_data(topic)

    async def update_partitioned_topic(
        self, name: str, changes: Policies, remove: Iterable[str]
    ) -> None:
        """As update_topic: of all its partitions."""
        await self._check(changes)
        await self._broker.update_partitioned_policies(
            name, lambda current: updated_policies(current, changes, remove)
        )
        for partition in self._broker.partitions.names(name):
            topic = self._broker.topics.get(partition)
            if topic is not None:
                await _hold_raw_data(topic)

    async def update_namespace(
        self, namespace: str, changes: Policies, remove: Iterable[str]
    ) -> None:
        """One synced write.

        Raises InvalidRequest, CompactorUnavailable; then nothing has changed.
        """
        await self._check(changes)
        await to_its_end(self._update_namespace(namespace, changes, remove))
        for topic in list(self._broker.topics.values()):
            if TopicName.parse(topic.name).namespace == namespace:
                await _hold_raw_data(topic)

    async def _check(self, changes: Policies) -> None:
        check_policies(changes)
        strategy = changes.compaction_strategy
        if changes.HasField("compaction_strategy") and listed(strategy.name) is None:
            await check_allowed(self._broker, strategy)
            await self._broker.compactor.check_strategy(strategy)

    async def _update_namespace(
        self, namespace: str, changes: Policies, remove: Iterable[str]
    ) -> None:
        async with self._namespaces:
            current = self.of_namespace(namespace, applied=False)
            policies = updated_policies(current, changes, remove)
            batch = self._broker.metadata.begin()
            batch.put_namespace(NamespaceRecord(name=namespace, policies=policies))
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._broker.executor, self._broker.metadata.write, batch)


async def _hold_raw_data(topic: PolicyTopic) -> None:
    if topic.policies().compaction_threshold_bytes > 0:
        await topic.enable_compaction_cursor()

"""Partitioned topics: which there are, and what may come into being beside them.

A partitioned topic is a record with a number. Its partitions are topics like any others, named
`<name>-partition-<index>`, and made with it; there is no topic of the very name itself. Rules and
their source (Pulsar's PersistentTopicsBase and BrokerService, as seen on Pulsar 4.0.7):

* A partitioned topic is refused where a topic, or a partition, of that name exists, and the other
  way round; so is a name that has "-partition-" in it.
* The number of partitions only grows. New partitions get the durable subscriptions of the first
  one, from the beginning, so that no consumer misses what is published before it hears of them.
  Partitions that someone deleted come back, empty.
* A partition's name beyond that number is refused. Where no partitioned topic stands behind such a
  name, using it makes a plain topic; creating it is refused.
* Policies are the partitioned topic's, and refused for a partition.
* Partitions of a Kafka topic are Kafka topics; new ones begin with the settings of the whole.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from ledgerfold.storage.key_value import MemoryKeyValue
    >>> metadata = MetadataStore(MemoryKeyValue())
    >>> with metadata.batch() as batch:
    ...     batch.put_partitioned_topic(PartitionedTopicRecord(name="orders", partitions=2))
    >>> Partitions(metadata, ThreadPoolExecutor, clock_ms=lambda: 1_000).names("orders")
    ['orders-partition-0', 'orders-partition-1']
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Executor
from typing import TypeVar

from ledgerfold.broker.ground.given_names import check_topic, shown_topic
from ledgerfold.broker.ground.names import TopicName
from ledgerfold.broker.ground.uncancelled import to_its_end
from ledgerfold.storage.entry import EARLIEST
from ledgerfold.storage.errors import (
    InvalidRequest,
    LedgerfoldError,
    NotAllowed,
    TopicExists,
    TopicIsPartitioned,
    TopicNotFound,
)
from ledgerfold.storage.metadata import MetadataBatch, MetadataStore
from ledgerfold.storage.partition_names import PARTITION_SUFFIX, parse_partition, partition_name
from ledgerfold.storage.words import counted
from ledgerfold.v1.records_pb2 import (
    CursorRecord,
    KafkaLog,
    KafkaPartitions,
    PartitionedTopicRecord,
    Policies,
    Position,
    TopicRecord,
)

Answer = TypeVar("Answer")
# All of them may be loaded at once. Pulsar leaves the bound to its settings.
PARTITIONS_MAX = 1000


class Partitions:
    """Of one broker. Names are full names, already checked; every change is one synced write.

    While topics come into being, or more of them, the broker holds their names (broker.py): nobody
    else makes, loads or deletes one of them meanwhile.
    """

    def __init__(
        self, metadata: MetadataStore, executor: Callable[[], Executor], clock_ms: Callable[[], int]
    ) -> None:
        self._metadata, self._executor, self._clock_ms = metadata, executor, clock_ms
        self._turn = asyncio.Lock()

    # What there is.

    def count(self, name: str) -> int:
        """0: not partitioned."""
        record = self._metadata.partitioned_topic(name)
        return 0 if record is None else record.partitions

    def names(self, name: str) -> list[str]:
        """Of its partitions, in order; its own, when it is not partitioned."""
        return [partition_name(name, index) for index in range(self.count(name))] or [name]

    def record(self, name: str) -> PartitionedTopicRecord:
        """Raises NotAllowed for a topic that is not partitioned, TopicNotFound."""
        record = self._metadata.partitioned_topic(name)
        if record is not None:
            return record
        if self._metadata.topic(name) is not None:
            raise NotAllowed(f"{name} is not partitioned.")
        raise TopicNotFound(name)

    def list_names(self, namespace: str) -> list[str]:
        """Of partitioned topics, as they are listed; all of them when `namespace` is empty."""
        names = sorted(shown_topic(record.name) for record in self._metadata.partitioned_topics())
        return [name for name in names if namespace in ("", TopicName.parse(name).namespace)]

    def policies_of(self, topic: TopicRecord) -> Policies:
        """Those set on it, or on the partitioned topic that it belongs to."""
        parent = self._parent(topic.name)
        return topic.policies if parent is None else parent.policies

    def _parent(self, name: str) -> PartitionedTopicRecord | None:
        partition = parse_partition(name)
        return None if partition is None else self._metadata.partitioned_topic(partition.topic)

    # What may be.

    def check_creatable(self, name: str) -> None:
        """Whether a topic may be created under that name.

        Raises InvalidRequest, TopicExists, NotAllowed, TopicNotFound.
        """
        if self._metadata.topic(name) is not None or self.count(name):
            raise TopicExists(name)
        partition = parse_partition(name)
        if partition is not None and not self.count(partition.topic):
            raise NotAllowed(
                f"{name} is the name of a partition, and {partition.topic} is not partitioned. "
                "Create the partitioned topic."
            )
        self.check_usable(name)

    def check_usable(self, name: str) -> None:
        """Whether a topic that is not there may come into being by being used.

        Raises InvalidRequest (its name), TopicIsPartitioned, TopicNotFound.
        """
        check_topic(name)
        if count := self.count(name):
            raise TopicIsPartitioned(name, count)
        partition, parent = parse_partition(name), self._parent(name)
        if partition and parent and partition.index >= parent.partitions:
            why = f"{parent.name} has fewer partitions, {parent.partitions}."
            raise TopicNotFound(name, why)

    def check_policies(self, name: str) -> None:
        """Whether policies may be set on, and asked of, that very topic. Raises InvalidRequest."""
        parent = self._parent(name)
        if parent is not None:
            raise InvalidRequest(f"{name} has the policies of {parent.name}: name that one.")

    # Changes.

    async def create(
        self, name: str, partitions: int, kafka: Mapping[str, str] | None = None
    ) -> None:
        """With its partitions. `kafka`: their settings, if they are Kafka topics.

        Raises InvalidRequest, TopicExists.
        """
        _check_count(partitions)
        check_topic(name)
        if PARTITION_SUFFIX in TopicName.parse(name).local:
            raise InvalidRequest(f"The name of a partitioned topic has no {PARTITION_SUFFIX!r}.")
        TopicName.parse(partition_name(name, partitions - 1))

        def edit(batch: MetadataBatch) -> None:
            topics = self._metadata.topics()
            if self.count(name) or any(_is_in_the_way(each.name, name) for each in topics):
                raise TopicExists(name)
            made = PartitionedTopicRecord(
                name=name, partitions=partitions, created_ms=self._clock_ms()
            )
            if kafka is not None:
                made.kafka.CopyFrom(KafkaPartitions(config=kafka))
            self._put(made, batch)

        await self._change(edit)

    async def grow(self, name: str, partitions: int) -> None:
        """Raises InvalidRequest (fewer than now), NotAllowed, TopicNotFound."""

        def edit(batch: MetadataBatch) -> None:
            record = self.record(name)
            _check_count(partitions)
            if partitions < record.partitions:
                has = counted(record.partitions, "partition")
                raise InvalidRequest(f"{name} has {has}; it cannot have {partitions}.")
            record.partitions = partitions
            self._put(record, batch)

        await self._change(edit)

    async def update_policies(self, name: str, update: Callable[[Policies], Policies]) -> None:
        """Raises NotAllowed, TopicNotFound, and what `update` raises."""

        def edit(batch: MetadataBatch) -> None:
            record = self.record(name)
            record.policies.CopyFrom(update(record.policies))
            batch.put_partitioned_topic(record)

        await self._change(edit)

    async def update_kafka(self, name: str, changes: Mapping[str, str | None]) -> None:
        """What new partitions begin with; None takes a setting back.

        Raises NotAllowed, TopicNotFound.
        """

        def edit(batch: MetadataBatch) -> None:
            record = self.record(name)
            for setting, text in changes.items():
                record.kafka.config.pop(setting, None)
                if text is not None:
                    record.kafka.config[setting] = text
            batch.put_partitioned_topic(record)

        await self._change(edit)

    async def _change(self, edit: Callable[[MetadataBatch], None]) -> None:
        """Makes changes one after the other, each to its end: one synced write in a thread.

        What an edit reads is so when it is written: a subscription that comes into being meanwhile
        is on new partitions, too.
        """
        await to_its_end(self._change_in_turn(edit))

    async def _change_in_turn(self, edit: Callable[[MetadataBatch], None]) -> None:
        async with self._turn:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._executor(), self._metadata.change, edit)

    def _put(self, record: PartitionedTopicRecord, batch: MetadataBatch) -> None:
        """The record, and the partitions that are not there yet."""
        batch.put_partitioned_topic(record)
        cursors = self._metadata.cursors(partition_name(record.name, 0))
        now_ms = self._clock_ms()
        for index in range(record.partitions):
            name = partition_name(record.name, index)
            if self._metadata.topic(name) is None:
                made = TopicRecord(name=name, created_ms=now_ms)
                if record.HasField("kafka"):
                    made.kafka.CopyFrom(KafkaLog(config=record.kafka.config))
                batch.put_topic(made)
                for cursor in cursors:
                    batch.put_cursor(_cursor_from_earliest(cursor, name, now_ms))


async def on_each(names: Iterable[str], call: Callable[[str], Awaitable[Answer]]) -> list[Answer]:
    """The answers of all partitions; one that refuses does not keep the others, as in Pulsar.

    Raises the first refusal, once all were asked.
    """
    answers, refusals = list[Answer](), list[LedgerfoldError]()
    for name in names:
        try:
            answers.append(await call(name))
        except LedgerfoldError as error:
            refusals.append(error)
    if refusals:
        raise refusals[0]
    return answers


def _is_in_the_way(topic: str, name: str) -> bool:
    partition = parse_partition(topic)
    return topic == name or (partition is not None and partition.topic == name)


def _cursor_from_earliest(cursor: CursorRecord, topic: str, created_ms: int) -> CursorRecord:
    return CursorRecord(
        topic=topic,
        subscription=cursor.subscription,
        mark_delete=Position(ledger_id=EARLIEST.ledger_id, entry_id=EARLIEST.entry_id),
        created_ms=created_ms,
        incarnation=created_ms,
    )


def _check_count(partitions: int) -> None:
    if not 1 <= partitions <= PARTITIONS_MAX:
        asked = counted(partitions, "partition")
        raise InvalidRequest(f"{asked}; there may be 1 to {PARTITIONS_MAX}.")

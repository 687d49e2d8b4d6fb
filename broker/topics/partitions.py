"""Partitioned topics: their records, partitions and naming rules.

A partitioned topic is a record with a number. Its partitions are ordinary topics named
`<name>-partition-<index>` and created with it; no topic has the name itself. Rules and their source
(Pulsar's PersistentTopicsBase and BrokerService, as observed on Pulsar 4.0.7):

* A partitioned topic is refused if a topic, or a partition, of that name exists, and vice versa. A
  name that contains "-partition-" is refused, too.
* The number of partitions only grows. New partitions get the durable subscriptions of the first
  one, from the beginning, so that no consumer misses what is published before it learns of them.
  Deleted partitions are created again, empty.
* A partition name beyond that number is refused. If no partitioned topic exists for the name, using
  it creates a plain topic; creating it explicitly is refused.
* Policies belong to the partitioned topic, and are refused for a partition.
* Partitions of a non-persistent topic begin when they are used (non_persistent_topics.py).
* Partitions of a Kafka topic are Kafka topics; new ones start with the topic's settings.

  >>> from concurrent.futures import ThreadPoolExecutor
  >>> from ledgerfold.storage.key_value import MemoryKeyValue
  >>> metadata = MetadataStore(MemoryKeyValue())
  >>> with metadata.batch() as batch:
  ...     batch.put(PartitionedTopicRecord(name="orders", partitions=2))
  >>> Partitions(metadata, ThreadPoolExecutor, clock_ms=lambda: 1_000).names("orders")
  ['orders-partition-0', 'orders-partition-1']
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Executor
from typing import TypeVar

from ledgerfold.broker.common.given_names import check_topic, shown_topic
from ledgerfold.broker.common.names import TopicName, is_non_persistent
from ledgerfold.broker.common.shielding import runs_to_completion
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
from ledgerfold.storage.partition_names import (
    PARTITION_SUFFIX,
    base_topic,
    is_beyond_all_partitions,
    parse_partition,
    partition_name,
    reserved_parent,
)
from ledgerfold.storage.text import counted
from ledgerfold.v1.records_pb2 import (
    CursorRecord,
    KafkaLog,
    KafkaPartitions,
    PartitionedTopicRecord,
    Position,
    TopicRecord,
)

Answer = TypeVar("Answer")
Named = TypeVar("Named")
RecordChange = Callable[[PartitionedTopicRecord], object]
# All of them may be loaded at the same time. In Pulsar this bound is a setting.
PARTITIONS_MAX = 1000
_EARLIEST = Position(ledger_id=EARLIEST.ledger_id, entry_id=EARLIEST.entry_id)


class Partitions:
    """The partitioned topics of one broker. Names are full and already checked.

    Every change is one synced write. While partitions are created the broker holds the locks of
    their names (broker.py): no other task creates, loads or deletes one of them.
    """

    def __init__(
        self, metadata: MetadataStore, executor: Callable[[], Executor], clock_ms: Callable[[], int]
    ) -> None:
        self._metadata, self._executor, self._clock_ms = metadata, executor, clock_ms
        self._turn = asyncio.Lock()
        # Held while the settings of a Kafka topic and of its partitions change.
        self.kafka_changes = asyncio.Lock()

    # Queries.

    def count(self, name: str) -> int:
        """Returns the number of partitions; 0 if `name` is not partitioned."""
        record = self._metadata.partitioned_topic(name)
        return 0 if record is None else record.partitions

    def has_partition(self, name: str) -> bool:
        """Returns whether the name is that of a partition of a partitioned topic. Thread-safe."""
        partition, parent = parse_partition(name), self._parent(name)
        return partition is not None and parent is not None and partition.index < parent.partitions

    def names(self, name: str) -> list[str]:
        """Returns the names of the partitions in order, or `[name]` if it is not partitioned."""
        return [partition_name(name, index) for index in range(self.count(name))] or [name]

    def record(self, name: str) -> PartitionedTopicRecord:
        """Returns the stored record.

        Raises NotAllowed if the topic is not partitioned, TopicNotFound.
        """
        record = self._metadata.partitioned_topic(name)
        if record is not None:
            return record
        if self._metadata.topic(name) is not None:
            raise NotAllowed(f"{name} is not partitioned.")
        raise TopicNotFound(name)

    def list_names(self, namespace: str) -> list[str]:
        """Returns the sorted display names of partitioned topics, those of all namespaces if
        `namespace` is empty. Thread-safe.
        """
        names = sorted(map(shown_topic, self._metadata.topic_names(kind="partitioned")))
        return [name for name in names if namespace in ("", TopicName.parse(name).namespace)]

    def _parent(self, name: str) -> PartitionedTopicRecord | None:
        partition = parse_partition(name)
        return None if partition is None else self._metadata.partitioned_topic(partition.topic)

    def not_found(self, name: str, creates_topics: bool) -> TopicNotFound:
        """Returns the error of using a topic that does not exist, and is not created."""
        partition = parse_partition(name)
        if partition is not None and self._metadata.topic(partition.topic) is not None:
            why = f"{partition.topic} is not partitioned: its message ids have no partition."
            return TopicNotFound(name, why)
        if creates_topics:
            return TopicNotFound(name)
        create = f"`ledgerfold topics create {shown_topic(name)}`"
        return TopicNotFound(name, f"The broker creates no topics automatically: {create}.")

    # Checks.

    def check_creatable(self, name: str) -> None:
        """Checks that a topic may be created under that name.

        Raises InvalidRequest, TopicExists, NotAllowed, TopicNotFound.
        """
        if self._metadata.topic(name) is not None or self.count(name):
            raise TopicExists(name)
        partition = parse_partition(name)
        parent = reserved_parent(name) if partition is None else partition.topic
        if parent is not None and not self.count(parent):
            raise NotAllowed(
                f"{name} is the name of a partition, and {parent} is not partitioned: choose "
                "another name, or create partitions with `topics create-partitioned-topic`."
            )
        if parent is not None and is_beyond_all_partitions(name):
            raise self._without_partition(name, parent)
        self.check_usable(name)

    def _without_partition(self, name: str, parent: str) -> TopicNotFound:
        return TopicNotFound(name, f"{parent} has only {counted(self.count(parent), 'partition')}.")

    def check_usable(self, name: str) -> None:
        """Checks that using a topic that does not exist may create it.

        Raises InvalidRequest (its name), TopicIsPartitioned, TopicNotFound.
        """
        check_topic(name)
        if count := self.count(name):
            raise TopicIsPartitioned(name, count)
        parent = self._parent(name)
        if parent is not None and not self.has_partition(name):
            raise self._without_partition(name, parent.name)

    def check_policies(self, name: str) -> None:
        """Checks that the topic has its own policies. Raises InvalidRequest for a partition."""
        parent = self._parent(name)
        if parent is not None:
            raise InvalidRequest(f"{name} has the policies of {parent.name}: use that name.")

    # Changes.

    async def create(
        self,
        name: str,
        partitions: int,
        kafka: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Creates the topic and its partitions. `kafka`: their settings, for Kafka topics.

        Raises InvalidRequest, TopicExists.
        """
        _check_count(partitions)
        check_topic(name)
        if PARTITION_SUFFIX in TopicName.parse(name).local:
            why = f"The name of a partitioned topic cannot contain {PARTITION_SUFFIX!r}."
            raise InvalidRequest(why)
        TopicName.parse(partition_name(name, partitions - 1))

        def edit(batch: MetadataBatch) -> None:
            if self.count(name) or name in map(base_topic, self._metadata.topic_names()):
                raise TopicExists(name)
            record = PartitionedTopicRecord(
                name=name,
                partitions=partitions,
                created_ms=self._clock_ms(),
                properties=properties,
            )
            if kafka is not None:
                record.kafka.CopyFrom(KafkaPartitions(config=kafka))
            self._put(record, batch)

        await self._change(edit)

    async def grow(self, name: str, partitions: int) -> None:
        """Increases the number of partitions.

        Raises InvalidRequest (fewer than now), NotAllowed, TopicNotFound.
        """

        def edit(batch: MetadataBatch) -> None:
            record = self.record(name)
            _check_count(partitions)
            if partitions < record.partitions:
                has = counted(record.partitions, "partition")
                raise InvalidRequest(
                    f"{name} has {has}; the number cannot be reduced to {partitions}."
                )
            record.partitions = partitions
            self._put(record, batch)

        await self._change(edit)

    async def change_record(self, name: str, change: RecordChange) -> None:
        """Applies `change` to the record, not to the number of partitions.

        Raises NotAllowed, TopicNotFound, and what `change` raises.
        """

        def edit(batch: MetadataBatch) -> None:
            record = self.record(name)
            change(record)
            batch.put(record)

        await self._change(edit)

    async def update_kafka(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Changes the settings that new partitions start with; None resets a setting.

        Raises NotAllowed, TopicNotFound.
        """

        def change(record: PartitionedTopicRecord) -> None:
            for setting, text in changes.items():
                record.kafka.config.pop(setting, None)
                if text is not None:
                    record.kafka.config[setting] = text

        await self.change_record(name, change)

    @runs_to_completion
    async def _change(self, edit: Callable[[MetadataBatch], None]) -> None:
        """Applies one edit at a time, each to completion: one synced write in a thread.

        The state that an edit reads is unchanged when the edit is written: a subscription created
        meanwhile is on new partitions, too.
        """
        async with self._turn:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._executor(), self._metadata.change, edit)

    def _put(self, record: PartitionedTopicRecord, batch: MetadataBatch) -> None:
        """Adds the record, and the partitions that do not exist yet."""
        batch.put(record)
        if is_non_persistent(record.name):
            # Its partitions begin when they are used.
            return
        cursors = self._metadata.cursors(partition_name(record.name, 0))
        now_ms = self._clock_ms()
        for index in range(record.partitions):
            name = partition_name(record.name, index)
            if self._metadata.topic(name) is None:
                new_record = TopicRecord(name=name, created_ms=now_ms)
                if record.HasField("kafka"):
                    new_record.kafka.CopyFrom(KafkaLog(config=record.kafka.config))
                batch.put(new_record)
                for cursor in cursors:
                    incarnation = self._metadata.new_incarnation(now_ms)
                    batch.put(
                        CursorRecord(
                            topic=name,
                            subscription=cursor.subscription,
                            mark_delete=_EARLIEST,
                            created_ms=now_ms,
                            incarnation=incarnation,
                            subscription_properties=cursor.subscription_properties,
                        )
                    )


async def on_each(
    names: Iterable[Named], call: Callable[[Named], Awaitable[Answer]]
) -> list[Answer]:
    """Calls every partition, or whatever `names` are, and returns the answers.

    As in Pulsar, a refusal does not stop the others. Raises the first refusal after all calls.
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


def _check_count(partitions: int) -> None:
    if not 1 <= partitions <= PARTITIONS_MAX:
        requested = counted(partitions, "partition")
        raise InvalidRequest(
            f"A topic cannot have {requested}; the number must be 1 to {PARTITIONS_MAX}."
        )

"""The schemas of topics: their versions, stored in the metadata, and the rules for adding one.

A topic has one schema, in versions from 0 on; by the topic's strategy, a new version must be
compatible with earlier ones (broker/schemas/compatibility.py). All partitions of a partitioned
topic have its schema. The topic need not exist: an administrator may register its schema first.
Rules and their source: Pulsar's SchemaRegistryServiceImpl, AbstractTopic and PersistentTopic.

* A definition that a version has already is that version.
* A deletion leaves a mark, so that its versions are not used again: `force` removes the mark, too.
  Deleting the topic deletes its schema in the same write; the end of an unused non-persistent topic
  deletes it in a later write.
* Every change is one synced write, and is decided on the versions that it is written after.

Definitions are checked and compared in separate threads, because clients choose their sizes:
nothing else in the broker waits for them. Bounds: broker/schemas/definitions.py,
broker/schemas/steps.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from weakref import WeakValueDictionary

from ledgerfold.broker.common.given_names import check_topic
from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.policies.effective import PolicyLevels
from ledgerfold.broker.schemas.compatibility import same_as, why_incompatible, why_no_consumer
from ledgerfold.broker.schemas.definitions import TOPIC_BYTES_MAX, VERSIONS_MAX, size_of
from ledgerfold.broker.schemas.validation import check_definition
from ledgerfold.storage.errors import (
    IncompatibleSchema,
    LimitExceeded,
    Moved,
    SchemaNotFound,
)
from ledgerfold.storage.metadata import MetadataBatch, MetadataStore
from ledgerfold.storage.partition_names import base_topic
from ledgerfold.storage.records import SCHEMAS
from ledgerfold.v1.records_pb2 import Policies, SchemaDefinition, SchemaRecord, TopicRecord

_T = TypeVar("_T")
# They compute more than they wait for the disk.
_THREADS = 2
_ADVICE = "Delete the topic's schema, or change it less often."
_NO_UPDATES = (
    "it is not a version of the topic's schema, and clients may not add versions "
    "(allow_auto_update_schema): let an administrator add it."
)
_NO_SCHEMA = (
    "the topic has a schema, and producers without one are refused (schema_validation_enforced)."
)


class Schemas:
    """The schemas of one broker's topics. Names are full; a partition's name stands for its topic.

    `exists`: whether a topic exists; thread-safe.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        levels: PolicyLevels,
        clock_ms: Callable[[], int],
        exists: Callable[[str], bool],
    ) -> None:
        self._metadata, self._levels, self._clock_ms = metadata, levels, clock_ms
        self._exists = exists
        self.executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="schemas")
        # Each lock exists while a task holds it or waits for it.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def close(self) -> None:
        """Waits for work in progress; cancels work that waits for a thread."""
        self.executor.shutdown(cancel_futures=True)

    # Queries.

    def versions(self, topic: str) -> list[SchemaRecord]:
        """Returns all versions, oldest first."""
        return [each for each in self._metadata.schemas(base_topic(topic)) if not each.deleted]

    def version(self, topic: str, number: int | None = None) -> SchemaRecord:
        """Returns a version, by default the latest. Raises SchemaNotFound."""
        name = base_topic(topic)
        record = self._metadata.schema(name, number)
        if record is None or record.deleted:
            raise SchemaNotFound(name, number)
        return record

    def has_versions(self, topic: str) -> bool:
        latest = self._metadata.schema(base_topic(topic))
        return latest is not None and not latest.deleted

    def policies(self, topic: str) -> Policies:
        """Returns the policies in force for the topic, which need not exist."""
        name = base_topic(topic)
        partitioned = self._metadata.partitioned_topic(name)
        if partitioned is not None:
            return self._levels.in_force(TopicRecord(name=name, policies=partitioned.policies))
        return self._levels.in_force(self._metadata.topic(name) or TopicRecord(name=name))

    async def find(self, topic: str, definition: SchemaDefinition) -> int:
        """Returns the version that is this schema; -1 if none is. Raises InvalidSchema."""

        def search() -> int:
            check_definition(definition)
            versions = self.versions(topic)
            at = same_as(definition, _definitions(versions))
            return -1 if at is None else versions[at].version

        return await self._work(search)

    async def check(self, topic: str, definition: SchemaDefinition) -> None:
        """Checks that the definition could be added. Raises InvalidSchema, IncompatibleSchema."""
        await self._compare(topic, definition, why_incompatible)

    async def _compare(
        self, topic: str, definition: SchemaDefinition, why_not: Callable[..., str | None]
    ) -> None:
        """`why_not`: returns why the definition does not fit all versions, by the strategy."""
        strategy = self.policies(topic).schema_compatibility_strategy

        def compare() -> None:
            check_definition(definition)
            why = why_not(_definitions(self.versions(topic)), definition, strategy)
            if why is not None:
                raise IncompatibleSchema(base_topic(topic), why)

        await self._work(compare)

    # Requests of clients.

    async def for_producer(self, topic: str, definition: SchemaDefinition) -> int:
        """Returns the version for a producer of an existing topic; adds it if it is compatible.

        Raises InvalidSchema, IncompatibleSchema, LimitExceeded, Moved (the topic was deleted).
        """
        return await self._put(topic, definition, by_client=True)

    def without(self, topic: str) -> None:
        """Checks that a producer needs no schema. Raises IncompatibleSchema."""
        # Most topics have no schema, which is checked more quickly.
        if self.has_versions(topic) and self.policies(topic).schema_validation_enforced:
            raise IncompatibleSchema(base_topic(topic), _NO_SCHEMA)

    async def for_consumer(
        self, topic: str, definition: SchemaDefinition, *, is_idle: Callable[[], bool]
    ) -> None:
        """Checks that a consumer may have this schema, and adds it to a topic without a schema.

        `is_idle`: whether nothing was published to the topic, and no client is connected. Raises
        like for_producer().
        """
        if is_idle() and not self.has_versions(topic):
            await self._put(topic, definition, by_client=True)
        else:
            await self._compare(topic, definition, why_no_consumer)

    # Changes.

    async def put(self, topic: str, definition: SchemaDefinition) -> int:
        """Adds a version, as an administrator. Returns its number, or that of the same schema.

        Raises InvalidSchema, IncompatibleSchema, LimitExceeded, InvalidRequest (the name).
        """
        check_topic(topic)
        return await self._put(topic, definition, by_client=False)

    @runs_to_completion
    async def _put(self, topic: str, definition: SchemaDefinition, *, by_client: bool) -> int:
        async with self._turn(base_topic(topic)):
            policies = self.policies(topic)
            return await self._work(lambda: self._add(topic, definition, policies, by_client))

    def _add(
        self, topic: str, definition: SchemaDefinition, policies: Policies, by_client: bool
    ) -> int:
        """Adds a version, in a thread, while no other task adds to the topic; returns its number.

        Raises the reason for a refusal.
        """
        name = base_topic(topic)
        check_definition(definition)
        stored = self._metadata.schemas(name)
        versions = [each for each in stored if not each.deleted]
        known = same_as(definition, _definitions(versions))
        if known is not None:
            return versions[known].version
        if by_client and not policies.allow_auto_update_schema:
            raise IncompatibleSchema(name, _NO_UPDATES)
        strategy = policies.schema_compatibility_strategy
        why = why_incompatible(_definitions(versions), definition, strategy)
        if why is not None:
            raise IncompatibleSchema(name, why)
        _check_room(name, [*_definitions(versions), definition])
        record = SchemaRecord(
            topic=name,
            version=_next_version(stored),
            definition=definition,
            created_ms=self._clock_ms(),
        )

        def edit(batch: MetadataBatch) -> None:
            # A deletion of the topic either precedes this, or deletes this version, too.
            if by_client and not self._exists(topic):
                raise Moved(f"{topic} was deleted; try again.")
            # A reset or a restore may have happened since the comparison; neither waits for it.
            if self._metadata.schemas(name) != stored:
                raise Moved(f"The schemas of {topic} were changed meanwhile; try again.")
            batch.put(record)

        self._metadata.need_feature(SCHEMAS)
        self._metadata.change(edit)
        return record.version

    @runs_to_completion
    async def delete(self, topic: str, *, force: bool) -> int:
        """Deletes all versions. Returns the number of the mark; -1 with `force`."""
        name = base_topic(topic)
        check_topic(name)
        mark = SchemaRecord(topic=name, deleted=True, created_ms=self._clock_ms())

        def edit(batch: MetadataBatch) -> None:
            mark.version = _next_version(self._metadata.schemas(name))
            batch.delete_schemas(name)
            if not force:
                batch.put(mark)

        def change() -> None:
            if not force:
                self._metadata.need_feature(SCHEMAS)
            self._metadata.change(edit)

        async with self._turn(name):
            await self._work(change)
        return -1 if force else mark.version

    async def forget(self, ended: Iterable[str], exists: Callable[[str], bool]) -> None:
        """Deletes the schemas of topics that have ended, unless they exist again.

        `exists`: whether anything that has the schema exists; thread-safe. Raises DiskFailure.
        """
        owners = {base_topic(each) for each in ended if self._metadata.schema(base_topic(each))}

        def edit(batch: MetadataBatch) -> None:
            # A client's version is only added to a topic that exists: before this, or after.
            for name in owners:
                if not exists(name):
                    batch.delete_schemas(name)

        if owners:
            await self._work(lambda: self._metadata.change(edit))

    def _turn(self, name: str) -> asyncio.Lock:
        """Returns the lock of changes of a topic's schema."""
        return self._turns.setdefault(name, asyncio.Lock())

    async def _work(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)


def _definitions(records: Sequence[SchemaRecord]) -> list[SchemaDefinition]:
    return [each.definition for each in records]


def _check_room(topic: str, definitions: Sequence[SchemaDefinition]) -> None:
    """Raises LimitExceeded. `definitions`: those of all versions, with the new one."""
    if len(definitions) > VERSIONS_MAX:
        what = f"Versions of the schema of {topic}"
        raise LimitExceeded(what, len(definitions), VERSIONS_MAX, _ADVICE)
    sizes = sum(map(size_of, definitions))
    if sizes > TOPIC_BYTES_MAX:
        what = f"Bytes of all versions of the schema of {topic}"
        raise LimitExceeded(what, sizes, TOPIC_BYTES_MAX, _ADVICE)


def _next_version(stored: Sequence[SchemaRecord]) -> int:
    return stored[-1].version + 1 if stored else 0

"""Grants: which role may produce to topics, or consume from them. Stored with their namespace.

As in Pulsar: a grant is for a namespace, for one topic of it, or for one partition; partitions also
have those of their topic. Revoking a grant of a partitioned topic revokes those of its partitions,
too. Deleting a topic or a namespace deletes its grants. Whether grants matter is decided by
broker/security/guard.py.

Bounds: GRANTS_MAX of a namespace, with those of its topics; the decoded grants of _KEPT_MAX
namespaces are cached, with the bytes of their record, and are decoded again when the bytes differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any

from ledgerfold.broker.common.given_names import check_name
from ledgerfold.broker.common.names import namespace_of
from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.storage.errors import InvalidRequest, LimitExceeded, NamespaceNotFound
from ledgerfold.storage.metadata import MetadataBatch, MetadataStore
from ledgerfold.storage.partition_names import base_topic, partition_name
from ledgerfold.storage.records import GRANTS, decode, key
from ledgerfold.v1.records_pb2 import Action, Grant, NamespaceRecord

GRANTS_MAX = 1000
_KEPT_MAX = 32
_NONE = frozenset[int]()
# The actions of a role, by the topic ("" for all) and the role.
_Granted = Mapping[tuple[str, str], frozenset[int]]
InThread = Callable[[Callable[[], None]], Coroutine[Any, Any, None]]


def _with_grants(topic: str) -> tuple[str, ...]:
    """Returns the topics whose grants apply to a topic: of a partition, its topic's, too."""
    return topic, base_topic(topic)


class Permissions:
    """The grants of one broker. `turn`: held by each writer of namespace records. `exists`: whether
    a namespace does.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        turn: asyncio.Lock,
        in_thread: InThread,
        exists: Callable[[str], bool],
    ) -> None:
        self._metadata, self._turn, self._in_thread = metadata, turn, in_thread
        self._exists = exists
        self._cache: dict[str, tuple[bytes, _Granted]] = {}
        # Called with a namespace of which grants were removed.
        self.on_removed: set[Callable[[str], Awaitable[None]]] = set()

    def of_namespace(self, namespace: str) -> Sequence[Grant]:
        """Returns the grants of a namespace, without those of its topics. Thread-safe."""
        return [each for each in self.all_in(namespace) if not each.topic]

    def of_topic(self, topic: str) -> Sequence[Grant]:
        """Returns the grants of a topic by its full name, and of its namespace. Thread-safe."""
        names = ("", *_with_grants(topic))
        return [each for each in self.all_in(namespace_of(topic)) if each.topic in names]

    def actions(self, namespace: str, topic: str, role: str) -> frozenset[int]:
        """Returns what a role may do with a topic, or with all of a namespace (""). Thread-safe."""
        granted = self._decoded(namespace)
        names = ("", *_with_grants(topic)) if topic else ("",)
        return _NONE.union(*(granted.get((each, role), _NONE) for each in names))

    def _decoded(self, namespace: str) -> _Granted:
        stored = self._metadata.namespace_as_stored(namespace)
        if stored is None:
            return {}
        kept = self._cache.get(namespace)
        if kept is None or kept[0] != stored:
            record = decode(NamespaceRecord, key("namespace", namespace), stored)
            granted = {(each.topic, each.role): frozenset(each.actions) for each in record.grants}
            if len(self._cache) >= _KEPT_MAX:
                self._cache.clear()
            kept = self._cache[namespace] = stored, granted
        return kept[1]

    def all_in(self, namespace: str) -> Sequence[Grant]:
        """Returns the grants of a namespace and of its topics. Thread-safe."""
        record = self._metadata.namespace(namespace)
        return () if record is None else record.grants

    @runs_to_completion
    async def grant(self, namespace: str, topic: str, role: str, actions: Collection[int]) -> None:
        """Replaces the actions of a role, in one synced write. `topic`: "" for all.

        Raises NamespaceNotFound, InvalidRequest, LimitExceeded, StorageError.
        """
        granted = checked_grant(topic, role, actions)
        before = set[int]()

        def edit(batch: MetadataBatch) -> None:
            # In the write: a grant must not restore a deleted namespace.
            if not self._exists(namespace):
                raise NamespaceNotFound(namespace)
            record = self._metadata.namespace(namespace) or NamespaceRecord(name=namespace)
            for each in record.grants:
                if _is_same(each, granted):
                    before.update(each.actions)
            grants = [each for each in record.grants if not _is_same(each, granted)]
            if len(grants) >= GRANTS_MAX:
                raise LimitExceeded(
                    f"Grants of {namespace}", len(grants) + 1, GRANTS_MAX,
                    "Grant roles permissions of the whole namespace.",
                )  # fmt: skip
            _put(batch, record, [*grants, granted])

        async with self._turn:
            await self._in_thread(lambda: self._metadata.need_feature(GRANTS))
            await self._in_thread(lambda: self._metadata.change(edit))
        if before - set(granted.actions):
            await self.removed(namespace)

    @runs_to_completion
    async def revoke(self, namespace: str, topic: str, role: str) -> None:
        """Removes the grant of a role, if there is one. Raises StorageError."""

        def edit(batch: MetadataBatch) -> None:
            record = self._metadata.namespace(namespace)
            if record is not None:
                _put(batch, record, self._other_grants(record, topic, role))

        async with self._turn:
            await self._in_thread(lambda: self._metadata.change(edit))
        await self.removed(namespace)

    def _other_grants(self, record: NamespaceRecord, topic: str, role: str) -> list[Grant]:
        """Returns the grants except those of a role for a topic and its partitions."""
        partitioned = self._metadata.partitioned_topic(topic) if topic else None
        count = 0 if partitioned is None else partitioned.partitions
        names = {topic, *(partition_name(topic, index) for index in range(count))}
        return [each for each in record.grants if each.role != role or each.topic not in names]

    async def removed(self, namespace: str) -> None:
        """Rechecks the open streams of a namespace, after grants were removed."""
        for callback in tuple(self.on_removed):
            await callback(namespace)


def checked_grant(topic: str, role: str, actions: Collection[int]) -> Grant:
    """Returns a grant; `topic`: "" for all. Raises InvalidRequest."""
    check_name("A role", role)
    if not actions or not set(actions) <= {Action.ACTION_PRODUCE, Action.ACTION_CONSUME}:
        raise InvalidRequest("Grant produce, consume or both.")
    listed: Any = sorted(set(actions))
    return Grant(role=role, actions=listed, topic=topic)


def _is_same(one: Grant, other: Grant) -> bool:
    return (one.topic, one.role) == (other.topic, other.role)


def _put(batch: MetadataBatch, record: NamespaceRecord, grants: Sequence[Grant]) -> None:
    # They may be its own: protobuf copies them first.
    relisted = NamespaceRecord(grants=grants)
    record.ClearField("grants")
    record.MergeFrom(relisted)
    batch.put(record)


def delete_grants(metadata: MetadataStore, names: Sequence[str], batch: MetadataBatch) -> None:
    """Deletes the grants of topics that `batch` deletes: a topic of that name may be another's.

    The topics are of one namespace; a partitioned topic and its partitions are deleted together. It
    takes the grants of partitions that it did not have, too: a successor may have more.
    """
    parents = {each for name in names for each in _with_grants(name)}
    partitioned = {each for each in parents if key("partitioned", each) in batch.deletes}
    gone = partitioned.union(names)
    record = metadata.namespace(namespace_of(names[0])) if names else None
    if record is None:
        return

    def is_left(topic: str) -> bool:
        return topic not in gone and partitioned.isdisjoint(_with_grants(topic))

    left = [each for each in record.grants if is_left(each.topic)]
    if len(left) < len(record.grants):
        _put(batch, record, left)

"""Tenants and namespaces: which exist, and their creation and deletion.

A namespace exists if it was created, or has a topic: a client may create a topic in any namespace.
Its policies and grants are set only if it exists. A tenant exists if it was created, or has a
namespace. `public/default` always exists. Nothing but the admin roles is inherited from a tenant
(broker/security/guard.py).

Pulsar creates no topic in an unknown namespace; its admin REST API (broker/http) and the lookups of
its binary protocol (broker/pulsar) therefore check for the namespace first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ledgerfold.broker.common.given_names import check_name
from ledgerfold.broker.common.names import (
    DOMAINS,
    check_named_entity,
    namespace_of,
    parse_namespace,
)
from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.policies.effective import updated_policies
from ledgerfold.broker.topics.permissions import GRANTS_MAX, InThread, Permissions
from ledgerfold.storage.errors import InvalidRequest, LimitExceeded, NotAllowed
from ledgerfold.storage.metadata import MetadataBatch, MetadataStore
from ledgerfold.storage.records import GRANTS, TENANTS
from ledgerfold.v1.records_pb2 import Grant, NamespaceRecord, Policies, TenantRecord

ALWAYS = "public/default"
ADMIN_ROLES_MAX = 1000


class Namespaces:
    """The tenants and namespaces of one broker.

    `turn` is held by each writer of namespace records: policies are stored in the same records.
    `in_memory`: lists the topics of a namespace, or of all (""), that are not stored.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        turn: asyncio.Lock,
        in_thread: InThread,
        in_memory: Callable[[str], list[str]],
    ) -> None:
        self._metadata, self._turn, self._in_thread = metadata, turn, in_thread
        self.permissions = Permissions(metadata, turn, in_thread, self.exists)
        self._in_memory = in_memory

    # Queries.

    def names(self, tenant: str | None = None) -> list[str]:
        """Returns the namespaces of a tenant, or all, sorted."""
        found = {ALWAYS, *(record.name for record in self._metadata.namespaces())}
        found.update(map(namespace_of, self._topics()))
        return sorted(each for each in found if tenant in (None, each.partition("/")[0]))

    def exists(self, namespace: str) -> bool:
        if namespace == ALWAYS or self._metadata.namespace(namespace) is not None:
            return True
        return not self.is_empty(namespace)

    def is_empty(self, namespace: str) -> bool:
        """Returns whether the namespace has no topic."""
        names = self._metadata.topic_names
        prefixes = [f"{domain}://{namespace}/" for domain in DOMAINS]
        is_stored = any(names(each) or names(each, "partitioned") for each in prefixes)
        return not (is_stored or self._in_memory(namespace))

    def tenants(self) -> list[str]:
        """Returns all tenants, sorted."""
        found = {each.name for each in self._metadata.tenants()}
        return sorted(found.union(each.partition("/")[0] for each in self.names()))

    def tenant(self, name: str) -> TenantRecord | None:
        """Returns a tenant's record, or a new one if it was never created; None: no such tenant."""
        record = self._metadata.tenant(name)
        if record is None and self.names(name):
            record = TenantRecord(name=name)
        return record

    def admin_roles(self, tenant: str) -> Sequence[str]:
        """Returns the roles that may administer a tenant, if roles matter. Thread-safe."""
        record = self._metadata.tenant(tenant)
        return () if record is None else record.admin_roles

    def _topics(self) -> Sequence[str]:
        topics = [each.name for each in self._metadata.topics()]
        topics += [each.name for each in self._metadata.partitioned_topics()]
        return topics + self._in_memory("")

    # Changes, each one synced write.

    @runs_to_completion
    async def put_tenant(self, name: str, admin_roles: Sequence[str]) -> None:
        """Creates a tenant, or replaces its roles.

        Raises InvalidRequest, LimitExceeded, StorageError.
        """
        check_name("A tenant", name)
        check_named_entity(name, name)
        roles = _checked_roles(admin_roles)
        async with self._turn:
            await self._in_thread(lambda: self._metadata.need_feature(TENANTS))
            record = TenantRecord(name=name, admin_roles=roles)
            await self._change(lambda batch: batch.put(record))

    @runs_to_completion
    async def delete_tenant(self, name: str) -> bool:
        """Deletes a tenant. Returns False, and does nothing, if it has a namespace."""
        async with self._turn:
            if self.names(name):
                return False
            await self._change(lambda batch: batch.delete("tenant", name))
            return True

    @runs_to_completion
    async def create(
        self, namespace: str, policies: Policies | None = None, grants: Sequence[Grant] = ()
    ) -> bool:
        """Creates a namespace. Returns False if it exists.

        `grants`: checked ones, of different roles. Raises InvalidRequest, LimitExceeded,
        StorageError.
        """
        for part in parse_namespace(namespace).split("/"):
            check_name("A tenant or namespace", part)
        record = NamespaceRecord(name=namespace, grants=grants)
        if policies is not None:
            record.policies.CopyFrom(updated_policies(Policies(), policies, ()))
        if len(grants) > GRANTS_MAX:
            advice = "Let several clients have one role."
            raise LimitExceeded(f"Grants of {namespace}", len(grants), GRANTS_MAX, advice)
        is_new = False

        def edit(batch: MetadataBatch) -> None:
            nonlocal is_new
            # A topic may have been added meanwhile, by the policies of no namespace.
            is_new = not self.exists(namespace)
            if is_new:
                batch.put(record)

        async with self._turn:
            if grants:
                await self._in_thread(lambda: self._metadata.need_feature(GRANTS))
            await self._change(edit)
        return is_new

    @runs_to_completion
    async def delete(self, namespace: str) -> bool:
        """Deletes a namespace, its policies, and schemas of topics that were never created.

        Returns False, and does nothing, if it has topics.

        Raises NotAllowed for `public/default`, StorageError.
        """
        if namespace == ALWAYS:
            raise NotAllowed(f"{ALWAYS} always exists and cannot be deleted.")
        is_deleted = False

        def edit(batch: MetadataBatch) -> None:
            nonlocal is_deleted
            # A topic, or a schema, may have been added meanwhile.
            is_deleted = self.is_empty(namespace)
            if is_deleted:
                batch.delete_namespace(namespace)

        async with self._turn:
            await self._change(edit)
        if is_deleted:
            await self.permissions.removed(namespace)
        return is_deleted

    async def _change(self, edit: Callable[[MetadataBatch], None]) -> None:
        await self._in_thread(lambda: self._metadata.change(edit))


def _checked_roles(roles: Sequence[str]) -> list[str]:
    """Returns the roles, each once. Raises InvalidRequest, LimitExceeded."""
    if len(roles) > ADMIN_ROLES_MAX:
        advice = "Let several clients have one role."
        raise LimitExceeded("Admin roles of a tenant", len(roles), ADMIN_ROLES_MAX, advice)
    for each in roles:
        if each != each.strip():
            # Pulsar's words.
            raise InvalidRequest("AdminRoles contains whitespace in the beginning or end.")
        check_name("A role", each)
    return list(dict.fromkeys(roles))

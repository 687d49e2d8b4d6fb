"""The calls of AdminService about tenants and namespaces (broker/topics/namespaces.py), and about
grants (broker/topics/permissions.py).
"""

from __future__ import annotations

from ledgerfold.broker.common.names import full_topic, namespace_of, parse_namespace
from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import (
    InvalidRequest,
    NamespaceExists,
    NamespaceNotFound,
    NotAllowed,
    TenantExists,
    TenantNotFound,
)
from ledgerfold.v1 import admin_pb2


class NamespaceHandlers:
    def __init__(self, broker: Broker) -> None:
        self._namespaces = broker.namespaces

    async def tenants(self, request: admin_pb2.ListTenantsRequest) -> admin_pb2.ListTenantsResponse:
        return admin_pb2.ListTenantsResponse(tenants=self._namespaces.tenants())

    @runs_to_completion
    async def create_tenant(self, request: admin_pb2.CreateTenantRequest) -> None:
        """Raises InvalidRequest, TenantExists, StorageError."""
        if self._namespaces.tenant(request.tenant) is not None:
            raise TenantExists(request.tenant)
        await self._namespaces.put_tenant(request.tenant, tuple(request.admin_roles))

    @runs_to_completion
    async def update_tenant(self, request: admin_pb2.UpdateTenantRequest) -> None:
        """Raises TenantNotFound, InvalidRequest, StorageError."""
        self._check_tenant(request.tenant)
        await self._namespaces.put_tenant(request.tenant, tuple(request.admin_roles))

    @runs_to_completion
    async def delete_tenant(self, request: admin_pb2.DeleteTenantRequest) -> None:
        """Raises TenantNotFound, NotAllowed, StorageError."""
        self._check_tenant(request.tenant)
        if not await self._namespaces.delete_tenant(request.tenant):
            raise NotAllowed(f"Tenant {request.tenant} has namespaces: delete them first.")

    async def namespaces(
        self, request: admin_pb2.ListNamespacesRequest
    ) -> admin_pb2.ListNamespacesResponse:
        """Raises TenantNotFound."""
        if request.tenant:
            self._check_tenant(request.tenant)
        names = self._namespaces.names(request.tenant or None)
        return admin_pb2.ListNamespacesResponse(namespaces=names)

    @runs_to_completion
    async def create(self, request: admin_pb2.CreateNamespaceRequest) -> None:
        """Raises InvalidRequest, TenantNotFound, NamespaceExists, StorageError."""
        self._check_tenant(parse_namespace(request.namespace).partition("/")[0])
        if not await self._namespaces.create(request.namespace):
            raise NamespaceExists(request.namespace)

    @runs_to_completion
    async def delete(self, request: admin_pb2.DeleteNamespaceRequest) -> None:
        """Raises InvalidRequest, NamespaceNotFound, NotAllowed, StorageError."""
        name = parse_namespace(request.namespace)
        if not self._namespaces.exists(name):
            raise NamespaceNotFound(name)
        if not await self._namespaces.delete(name):
            raise NotAllowed(f"Namespace {name} has topics: delete them first.")

    def _check_tenant(self, name: str) -> None:
        if self._namespaces.tenant(name) is None:
            raise TenantNotFound(name)


class PermissionHandlers:
    def __init__(self, broker: Broker) -> None:
        self._namespaces = broker.namespaces

    async def get(
        self, request: admin_pb2.GetPermissionsRequest
    ) -> admin_pb2.GetPermissionsResponse:
        """Raises InvalidRequest, NamespaceNotFound."""
        namespace, topic = self._scope(request.scope)
        grants = self._namespaces.permissions.of_namespace(namespace)
        if topic:
            grants = self._namespaces.permissions.of_topic(topic)
        return admin_pb2.GetPermissionsResponse(grants=grants)

    async def grant(self, request: admin_pb2.GrantPermissionRequest) -> None:
        """Raises InvalidRequest, NamespaceNotFound, LimitExceeded, StorageError."""
        namespace, topic = self._scope(request.scope)
        await self._namespaces.permissions.grant(namespace, topic, request.role, request.actions)

    async def revoke(self, request: admin_pb2.RevokePermissionRequest) -> None:
        """Raises InvalidRequest, NamespaceNotFound, StorageError."""
        namespace, topic = self._scope(request.scope)
        await self._namespaces.permissions.revoke(namespace, topic, request.role)

    def _scope(self, scope: admin_pb2.PolicyScope) -> tuple[str, str]:
        """Returns the namespace, and the full name of the topic or ""."""
        kind = scope.WhichOneof("scope")
        if kind is None:
            raise InvalidRequest("Name a topic or a namespace.")
        topic = full_topic(scope.topic) if kind == "topic" else ""
        namespace = namespace_of(topic) if topic else parse_namespace(scope.namespace)
        if not self._namespaces.exists(namespace):
            raise NamespaceNotFound(namespace)
        return namespace, topic

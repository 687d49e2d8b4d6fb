"""The calls of AdminService about tenants and namespaces (broker/topics/namespaces.py)."""

from __future__ import annotations

from ledgerfold.broker.common.names import parse_namespace
from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.rpc.handlers import Handler
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import (
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

    def calls(self) -> dict[str, Handler]:
        """Returns the handlers by their names in the wire contract."""
        return {
            "ListTenants": self.tenants,
            "CreateTenant": self.create_tenant,
            "UpdateTenant": self.update_tenant,
            "DeleteTenant": self.delete_tenant,
            "ListNamespaces": self.namespaces,
            "CreateNamespace": self.create,
            "DeleteNamespace": self.delete,
        }

    async def tenants(self, request: admin_pb2.ListTenantsRequest) -> admin_pb2.ListTenantsResponse:
        return admin_pb2.ListTenantsResponse(tenants=self._namespaces.tenants())

    @runs_to_completion
    async def create_tenant(
        self, request: admin_pb2.CreateTenantRequest
    ) -> admin_pb2.CreateTenantResponse:
        """Raises InvalidRequest, TenantExists, StorageError."""
        if self._namespaces.tenant(request.tenant) is not None:
            raise TenantExists(request.tenant)
        await self._namespaces.put_tenant(request.tenant, tuple(request.admin_roles))
        return admin_pb2.CreateTenantResponse()

    @runs_to_completion
    async def update_tenant(
        self, request: admin_pb2.UpdateTenantRequest
    ) -> admin_pb2.UpdateTenantResponse:
        """Raises TenantNotFound, InvalidRequest, StorageError."""
        self._check_tenant(request.tenant)
        await self._namespaces.put_tenant(request.tenant, tuple(request.admin_roles))
        return admin_pb2.UpdateTenantResponse()

    @runs_to_completion
    async def delete_tenant(
        self, request: admin_pb2.DeleteTenantRequest
    ) -> admin_pb2.DeleteTenantResponse:
        """Raises TenantNotFound, NotAllowed, StorageError."""
        self._check_tenant(request.tenant)
        if not await self._namespaces.delete_tenant(request.tenant):
            raise NotAllowed(f"Tenant {request.tenant} has namespaces: delete them first.")
        return admin_pb2.DeleteTenantResponse()

    async def namespaces(
        self, request: admin_pb2.ListNamespacesRequest
    ) -> admin_pb2.ListNamespacesResponse:
        """Raises TenantNotFound."""
        if request.tenant:
            self._check_tenant(request.tenant)
        names = self._namespaces.names(request.tenant or None)
        return admin_pb2.ListNamespacesResponse(namespaces=names)

    @runs_to_completion
    async def create(
        self, request: admin_pb2.CreateNamespaceRequest
    ) -> admin_pb2.CreateNamespaceResponse:
        """Raises InvalidRequest, TenantNotFound, NamespaceExists, StorageError."""
        self._check_tenant(parse_namespace(request.namespace).partition("/")[0])
        if not await self._namespaces.create(request.namespace):
            raise NamespaceExists(request.namespace)
        return admin_pb2.CreateNamespaceResponse()

    @runs_to_completion
    async def delete(
        self, request: admin_pb2.DeleteNamespaceRequest
    ) -> admin_pb2.DeleteNamespaceResponse:
        """Raises InvalidRequest, NamespaceNotFound, NotAllowed, StorageError."""
        name = parse_namespace(request.namespace)
        if not self._namespaces.exists(name):
            raise NamespaceNotFound(name)
        if not await self._namespaces.delete(name):
            raise NotAllowed(f"Namespace {name} has topics: delete them first.")
        return admin_pb2.DeleteNamespaceResponse()

    def _check_tenant(self, name: str) -> None:
        if self._namespaces.tenant(name) is None:
            raise TenantNotFound(name)

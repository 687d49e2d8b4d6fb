"""The calls of Admin about tenants and namespaces (broker/client/administration/admin.py).

>>> from ledgerfold.broker.client.administration.admin import Admin
>>> with Admin("127.0.0.1:7650") as admin:
...     admin.create_tenant("made")
...     admin.create_namespace("made/here")
...     print(admin.list_namespaces("made"))
['made/here']
"""

from __future__ import annotations

from collections.abc import Iterable

from ledgerfold.broker.client.administration.channel import Calls
from ledgerfold.v1 import admin_pb2


class NamespaceCalls(Calls):
    """The calls about tenants and namespaces. A tenant or namespace also exists as soon as it
    contains something.
    """

    def list_tenants(self) -> list[str]:
        return list(self._call(admin_pb2.ListTenantsRequest()).tenants)

    def create_tenant(self, tenant: str, *, admin_roles: Iterable[str] = ()) -> None:
        """Creates a tenant, which the roles may administer. Raises TenantExists, InvalidRequest."""
        self._call(admin_pb2.CreateTenantRequest(tenant=tenant, admin_roles=list(admin_roles)))

    def update_tenant(self, tenant: str, *, admin_roles: Iterable[str]) -> None:
        """Replaces the roles that may administer a tenant. Raises TenantNotFound."""
        self._call(admin_pb2.UpdateTenantRequest(tenant=tenant, admin_roles=list(admin_roles)))

    def delete_tenant(self, tenant: str) -> None:
        """Deletes a tenant. Raises TenantNotFound, NotAllowed if it has a namespace."""
        self._call(admin_pb2.DeleteTenantRequest(tenant=tenant))

    def list_namespaces(self, tenant: str = "") -> list[str]:
        """Returns the "tenant/namespace" names of one tenant, or of all. Raises TenantNotFound."""
        return list(self._call(admin_pb2.ListNamespacesRequest(tenant=tenant)).namespaces)

    def create_namespace(self, namespace: str) -> None:
        """Creates a "tenant/namespace". Raises TenantNotFound, NamespaceExists, InvalidRequest."""
        self._call(admin_pb2.CreateNamespaceRequest(namespace=namespace))

    def delete_namespace(self, namespace: str) -> None:
        """Deletes a namespace and its policies.

        Raises NamespaceNotFound, NotAllowed if it has a topic.
        """
        self._call(admin_pb2.DeleteNamespaceRequest(namespace=namespace))

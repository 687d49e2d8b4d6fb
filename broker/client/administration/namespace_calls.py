"""The calls of Admin about tenants, namespaces and permissions of roles
(broker/client/administration/admin.py).

>>> from ledgerfold.broker.client.administration.admin import Admin
>>> with Admin("127.0.0.1:7650") as admin:
...     admin.create_tenant("made")
...     admin.create_namespace("made/here")
...     print(admin.list_namespaces("made"))
...     admin.grant_permission("billing", ["consume"], topic="made/here/paid")
...     admin.permissions(topic="made/here/paid")
['made/here']
{'billing': ['consume']}
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ledgerfold.broker.client.administration.channel import Calls
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1 import admin_pb2
from ledgerfold.v1.records_pb2 import Action


class NamespaceCalls(Calls):
    """The calls about tenants and namespaces. A tenant or namespace also exists as soon as it
    contains something.
    """

    def list_tenants(self) -> list[str]:
        """Returns the names of all tenants."""
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


_PREFIX = "ACTION_"
ACTIONS = tuple(name.removeprefix(_PREFIX).lower() for name, number in Action.items() if number)


class PermissionCalls(Calls):
    """The calls about permissions. Name a topic, or a namespace "tenant/namespace".

    Every broker stores permissions; they have an effect only if it authenticates clients
    (docs/SECURITY.md).
    """

    def permissions(
        self, *, topic: str | None = None, namespace: str | None = None
    ) -> dict[str, list[str]]:
        """Returns the permitted actions of each role. A topic's include those of its namespace."""
        request = admin_pb2.GetPermissionsRequest(scope=_scope(topic, namespace))
        actions = dict[str, list[str]]()
        for each in self._call(request).grants:
            names = actions.setdefault(each.role, [])
            names += [name for name in map(_name, each.actions) if name not in names]
        return actions

    def grant_permission(
        self,
        role: str,
        actions: Sequence[str],
        *,
        topic: str | None = None,
        namespace: str | None = None,
    ) -> None:
        """Replaces what a role may do: "produce", "consume" or both.

        Raises InvalidRequest, NamespaceNotFound, LimitExceeded.
        """
        request = admin_pb2.GrantPermissionRequest(
            scope=_scope(topic, namespace), role=role, actions=_parsed(actions)
        )
        self._call(request)

    def revoke_permission(
        self, role: str, *, topic: str | None = None, namespace: str | None = None
    ) -> None:
        """Removes what a role was granted, and disconnects its clients if nothing else permits
        them. Raises NamespaceNotFound.
        """
        scope = _scope(topic, namespace)
        self._call(admin_pb2.RevokePermissionRequest(scope=scope, role=role))


def _scope(topic: str | None, namespace: str | None) -> admin_pb2.PolicyScope:
    if (topic is None) == (namespace is None):
        raise InvalidRequest("Name a topic or a namespace.")
    return admin_pb2.PolicyScope(topic=topic, namespace=namespace)


def _parsed(actions: Iterable[str]) -> list[Any]:
    for each in actions:
        if each not in ACTIONS:
            raise InvalidRequest(f"{each!r:.100} is not an action: use {' or '.join(ACTIONS)}.")
    return [Action.Value(f"{_PREFIX}{each.upper()}") for each in actions]


def _name(action: Any) -> str:
    return Action.Name(action).removeprefix(_PREFIX).lower()

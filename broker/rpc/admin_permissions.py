"""The calls of AdminService about grants (broker/topics/permissions.py)."""

from __future__ import annotations

from ledgerfold.broker.common.names import full_topic, namespace_of, parse_namespace
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import InvalidRequest, NamespaceNotFound
from ledgerfold.v1 import admin_pb2


class PermissionHandlers:
    def __init__(self, broker: Broker) -> None:
        self._namespaces = broker.namespaces

    async def get(
        self, request: admin_pb2.GetPermissionsRequest
    ) -> admin_pb2.GetPermissionsResponse:
        """Raises InvalidRequest, NamespaceNotFound."""
        namespace, topic = self._scope(request.scope)
        found = self._namespaces.permissions.of_namespace(namespace)
        if topic:
            found = self._namespaces.permissions.of_topic(topic)
        return admin_pb2.GetPermissionsResponse(grants=found)

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

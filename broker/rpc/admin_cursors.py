"""The calls of AdminService that move subscriptions (broker/cursor_moves.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
from ledgerfold.v1 import admin_pb2
from ledgerfold.v1.admin_pb2_grpc import AdminServiceServicer
from ledgerfold.v1.data_pb2 import StartPosition

from broker import cursor_moves
from broker.names import persistent_topic
from broker.status_map import rpc_errors
from broker.subscription import Subscription
from broker.subscription_factory import existing_subscription, seek_subscription
from storage.errors import InvalidRequest

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.topic import Topic

Context = grpc.aio.ServicerContext[Any, Any]


class CursorCalls(AdminServiceServicer):
    """A part of AdminService (broker/rpc/admin.py)."""

    _broker: Broker

    @rpc_errors
    async def ExpireMessages(  # noqa: N802
        self, request: admin_pb2.ExpireMessagesRequest, context: Context
    ) -> admin_pb2.ExpireMessagesResponse:
        if request.subscription:
            topic, subscription = await self._named(request.topic, request.subscription)
            expired = await cursor_moves.expire_messages(topic, subscription, request.older_than_ms)
        else:
            topic = await self._broker.topic(persistent_topic(request.topic), create=False)
            expired = await cursor_moves.expire_all(topic, request.older_than_ms)
        return admin_pb2.ExpireMessagesResponse(entries=expired)

    @rpc_errors
    async def ResetCursor(  # noqa: N802
        self, request: admin_pb2.ResetCursorRequest, context: Context
    ) -> admin_pb2.ResetCursorResponse:
        topic, subscription = await self._named(request.topic, request.subscription)
        to = request.WhichOneof("to")
        if to is None:
            raise InvalidRequest("Say where to: a message id, or how long ago.")
        start = request.start
        if to == "ago_ms":
            start = StartPosition(publish_time_ms=self._broker.clock_ms() - request.ago_ms)
        await seek_subscription(topic, subscription.name, start)
        return admin_pb2.ResetCursorResponse()

    @rpc_errors
    async def SkipMessages(  # noqa: N802
        self, request: admin_pb2.SkipMessagesRequest, context: Context
    ) -> admin_pb2.SkipMessagesResponse:
        topic, subscription = await self._named(request.topic, request.subscription)
        skipped = cursor_moves.skip_messages(topic, subscription, request.entries)
        await subscription.persist()
        return admin_pb2.SkipMessagesResponse(entries=skipped)

    @rpc_errors
    async def ClearBacklog(  # noqa: N802
        self, request: admin_pb2.ClearBacklogRequest, context: Context
    ) -> admin_pb2.ClearBacklogResponse:
        topic, subscription = await self._named(request.topic, request.subscription)
        skipped = cursor_moves.clear_backlog(topic, subscription)
        await subscription.persist()
        return admin_pb2.ClearBacklogResponse(entries=skipped)

    async def _named(self, topic_name: str, name: str) -> tuple[Topic, Subscription]:
        """Raises TopicNotFound, SubscriptionNotFound, NotAllowed for compaction's own."""
        cursor_moves.check_may_move(name)
        topic = await self._broker.topic(persistent_topic(topic_name), create=False)
        return topic, existing_subscription(topic, name)

"""The calls of AdminService that take something from a topic (broker/topics/operations.py), or tell
where something is in it.

A partitioned topic is truncated with all its partitions; terminated is one partition, and a message
is found in one, as in Pulsar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from ledgerfold.broker.ground.names import partition_index, persistent_topic
from ledgerfold.broker.ground.uncancelled import runs_to_its_end
from ledgerfold.broker.topics.freeing import freeing
from ledgerfold.broker.topics.operations import terminate_topic, truncate_topic
from ledgerfold.broker.topics.partitions import on_each
from ledgerfold.broker.wire.errors import rpc_errors
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import NotAllowed
from ledgerfold.v1 import admin_pb2
from ledgerfold.v1.admin_pb2_grpc import AdminServiceServicer
from ledgerfold.v1.records_pb2 import MessageId

if TYPE_CHECKING:
    from ledgerfold.broker.topics.broker import Broker

Context = grpc.aio.ServicerContext[Any, Any]


class OperationCalls(AdminServiceServicer):
    """A part of AdminService (broker/rpc/admin.py)."""

    _broker: Broker

    @rpc_errors
    @runs_to_its_end
    async def TruncateTopic(  # noqa: N802
        self, request: admin_pb2.TruncateTopicRequest, context: Context
    ) -> admin_pb2.TruncateTopicResponse:
        name = persistent_topic(request.topic, "truncated")
        names = self._broker.partitions.names(name)
        broker = self._broker
        await freeing(broker.store, lambda: on_each(names, lambda x: truncate_topic(broker, x)))
        return admin_pb2.TruncateTopicResponse()

    @rpc_errors
    @runs_to_its_end
    async def TerminateTopic(  # noqa: N802
        self, request: admin_pb2.TerminateTopicRequest, context: Context
    ) -> admin_pb2.TerminateTopicResponse:
        name = persistent_topic(request.topic, "terminated")
        if self._broker.partitions.count(name):
            raise NotAllowed(f"One partition is terminated: name {name}-partition-0 or another.")
        last = await terminate_topic(self._broker, name)
        return admin_pb2.TerminateTopicResponse(last_message_id=_entry_id(name, last))

    @rpc_errors
    async def GetMessageIdByTimestamp(  # noqa: N802
        self, request: admin_pb2.GetMessageIdByTimestampRequest, context: Context
    ) -> admin_pb2.GetMessageIdByTimestampResponse:
        name = persistent_topic(request.topic, "searched")
        if self._broker.partitions.count(name):
            raise NotAllowed(f"A message is in one partition: name {name}-partition-0 or another.")
        topic = await self._broker.topic(name, create=False)
        found = await topic.log.first_published_since(request.publish_time_ms)
        return admin_pb2.GetMessageIdByTimestampResponse(message_id=_entry_id(name, found))


def _entry_id(topic: str, position: Position) -> MessageId:
    return MessageId(
        ledger_id=position.ledger_id,
        entry_id=position.entry_id,
        batch_index=-1,
        partition=partition_index(topic),
    )

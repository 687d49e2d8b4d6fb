"""Partitioned topics themselves: their calls of AdminService, and GetPartitions of DataService.

The rules are in broker/topics/partitions.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import grpc

from ledgerfold.broker.ground.names import parse_namespace, persistent_topic
from ledgerfold.broker.ground.uncancelled import runs_to_its_end
from ledgerfold.broker.stats import topic as stats
from ledgerfold.broker.stats.partitioned import partitioned_stats
from ledgerfold.broker.topics.freeing import freeing
from ledgerfold.broker.wire.errors import rpc_errors
from ledgerfold.storage.errors import TopicNotFound
from ledgerfold.v1 import admin_pb2, data_pb2
from ledgerfold.v1.admin_pb2_grpc import AdminServiceServicer

if TYPE_CHECKING:
    from ledgerfold.broker.topics.broker import Broker

Context = grpc.aio.ServicerContext[Any, Any]


@rpc_errors
async def get_partitions(
    broker: Broker, request: data_pb2.GetPartitionsRequest, context: Context
) -> data_pb2.GetPartitionsResponse:
    count = broker.partitions.count(persistent_topic(request.topic))
    return data_pb2.GetPartitionsResponse(partitions=count)


class PartitionCalls(AdminServiceServicer):
    """A part of AdminService (broker/rpc/admin.py)."""

    _broker: Broker

    @rpc_errors
    @runs_to_its_end
    async def CreatePartitionedTopic(  # noqa: N802
        self, request: admin_pb2.CreatePartitionedTopicRequest, context: Context
    ) -> admin_pb2.CreatePartitionedTopicResponse:
        name = persistent_topic(request.topic, "created")
        await self._broker.create_partitioned_topic(name, request.partitions)
        return admin_pb2.CreatePartitionedTopicResponse()

    @rpc_errors
    @runs_to_its_end
    async def UpdatePartitionedTopic(  # noqa: N802
        self, request: admin_pb2.UpdatePartitionedTopicRequest, context: Context
    ) -> admin_pb2.UpdatePartitionedTopicResponse:
        name = persistent_topic(request.topic)
        await self._broker.grow_partitioned_topic(name, request.partitions)
        return admin_pb2.UpdatePartitionedTopicResponse()

    @rpc_errors
    async def GetPartitionedTopicMetadata(  # noqa: N802
        self, request: admin_pb2.GetPartitionedTopicMetadataRequest, context: Context
    ) -> admin_pb2.GetPartitionedTopicMetadataResponse:
        name = persistent_topic(request.topic)
        count = self._broker.partitions.count(name)
        if not count and self._broker.metadata.topic(name) is None:
            raise TopicNotFound(name)
        return admin_pb2.GetPartitionedTopicMetadataResponse(partitions=count)

    @rpc_errors
    async def ListPartitionedTopics(  # noqa: N802
        self, request: admin_pb2.ListPartitionedTopicsRequest, context: Context
    ) -> admin_pb2.ListPartitionedTopicsResponse:
        namespace = parse_namespace(request.namespace) if request.namespace else ""
        topics = self._broker.partitions.list_names(namespace)
        return admin_pb2.ListPartitionedTopicsResponse(topics=topics)

    @rpc_errors
    @runs_to_its_end
    async def DeletePartitionedTopic(  # noqa: N802
        self, request: admin_pb2.DeletePartitionedTopicRequest, context: Context
    ) -> admin_pb2.DeletePartitionedTopicResponse:
        name = persistent_topic(request.topic)
        broker, force = self._broker, request.force
        await freeing(broker.store, lambda: broker.delete_partitioned_topic(name, force))
        return admin_pb2.DeletePartitionedTopicResponse()

    @rpc_errors
    async def GetPartitionedTopicStats(  # noqa: N802
        self, request: admin_pb2.GetPartitionedTopicStatsRequest, context: Context
    ) -> admin_pb2.GetPartitionedTopicStatsResponse:
        name = persistent_topic(request.topic)
        self._broker.partitions.record(name)
        documents = {}
        for partition in self._broker.partitions.names(name):
            topic = await self._broker.topic(partition, create=False)
            documents[partition] = stats.topic_stats(topic, self._broker.compaction.stats(topic))
        document = partitioned_stats(documents, per_partition=request.per_partition)
        return admin_pb2.GetPartitionedTopicStatsResponse(json=json.dumps(document))

"""The calls of AdminService about partitioned topics.

The rules are in broker/topics/partitions.py.
"""

from __future__ import annotations

import json

from ledgerfold.broker.common.given_names import check_properties
from ledgerfold.broker.common.names import full_topic, parse_namespace
from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.rpc.admin_topics import stats_of
from ledgerfold.broker.rpc.existing import recorded_name
from ledgerfold.broker.rpc.handlers import Handlers
from ledgerfold.broker.rpc.name_pages import page_of
from ledgerfold.broker.stats.partitioned import partitioned_stats
from ledgerfold.broker.topics.freeing import retry_with_reserve
from ledgerfold.storage.errors import TopicNotFound
from ledgerfold.v1 import admin_pb2


class PartitionedTopicHandlers(Handlers):
    @runs_to_completion
    async def create(self, request: admin_pb2.CreatePartitionedTopicRequest) -> None:
        name = full_topic(request.topic)
        kafka = dict(request.kafka.values) if request.HasField("kafka") else None
        properties = dict(request.properties)
        check_properties("a topic", properties)
        await self._broker.create_partitioned_topic(name, request.partitions, kafka, properties)

    @runs_to_completion
    async def grow(self, request: admin_pb2.UpdatePartitionedTopicRequest) -> None:
        name = recorded_name(self._broker, request.topic)
        await self._broker.grow_partitioned_topic(name, request.partitions)

    async def metadata(
        self, request: admin_pb2.GetPartitionedTopicMetadataRequest
    ) -> admin_pb2.GetPartitionedTopicMetadataResponse:
        name = recorded_name(self._broker, request.topic)
        record = self._broker.metadata.partitioned_topic(name)
        if record is None and not self._broker.exists(name):
            raise TopicNotFound(name)
        if record is None:
            return admin_pb2.GetPartitionedTopicMetadataResponse(partitions=0)
        return admin_pb2.GetPartitionedTopicMetadataResponse(
            partitions=record.partitions, properties=record.properties
        )

    async def list_names(
        self, request: admin_pb2.ListPartitionedTopicsRequest
    ) -> admin_pb2.ListPartitionedTopicsResponse:
        namespace = parse_namespace(request.namespace) if request.namespace else ""

        def respond() -> admin_pb2.ListPartitionedTopicsResponse:
            names = self._broker.partitions.list_names(namespace)
            page, has_more = page_of(names, in_pages=request.in_pages, after=request.after)
            return admin_pb2.ListPartitionedTopicsResponse(topics=page, has_more=has_more)

        return await self._broker.in_thread(respond)

    @runs_to_completion
    async def delete(self, request: admin_pb2.DeletePartitionedTopicRequest) -> None:
        name = recorded_name(self._broker, request.topic)
        broker, force = self._broker, request.force
        await retry_with_reserve(broker.store, lambda: broker.delete_partitioned_topic(name, force))

    async def stats(
        self, request: admin_pb2.GetPartitionedTopicStatsRequest
    ) -> admin_pb2.GetPartitionedTopicStatsResponse:
        name = recorded_name(self._broker, request.topic)
        properties = dict(self._broker.partitions.record(name).properties)
        documents = {}
        for partition in self._broker.partitions.names(name):
            topic = await self._broker.any_topic(partition, create=False)
            documents[partition] = stats_of(self._broker, topic)
        document = partitioned_stats(documents, per_partition=request.per_partition)
        if properties:
            document["metadata"]["properties"] = properties
        return admin_pb2.GetPartitionedTopicStatsResponse(json=json.dumps(document))

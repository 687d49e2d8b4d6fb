"""The verbs about topics: those of broker/rpc, over HTTP.

Sources: Pulsar's PersistentTopics, NonPersistentTopics and PersistentTopicsBase. For non-persistent
topics, verbs that need stored messages are refused.
"""

from __future__ import annotations

import json
from typing import Any

from ledgerfold.broker.common.names import PERSISTENT, full_topic, is_non_persistent
from ledgerfold.broker.http.answers import (
    Answer,
    Refusal,
    Request,
    WrittenFloat,
    answering,
    shown,
    whole_number,
)
from ledgerfold.broker.http.cluster import check_exists
from ledgerfold.broker.http.routes import ADMIN, Route
from ledgerfold.broker.rpc.admin_compaction import CompactionHandlers
from ledgerfold.broker.rpc.admin_partitions import PartitionedTopicHandlers
from ledgerfold.broker.rpc.admin_topics import TopicHandlers
from ledgerfold.broker.rpc.read import get_last_message_id
from ledgerfold.broker.stats.partitioned import metadata_document
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.partitions import PARTITIONS_MAX
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.errors import (
    InvalidRequest,
    NotAllowed,
    TopicNotFound,
)
from ledgerfold.storage.partition_names import PARTITION_SUFFIX, partition_index
from ledgerfold.v1 import admin_pb2, data_pb2
from ledgerfold.v1.records_pb2 import MessageId

ALL = f"{ADMIN}/{{domain}}/{{tenant}}/{{namespace}}"
TOPIC = f"{ALL}/{{topic}}"
NAMESPACE = f"{ADMIN}/namespaces/{{tenant}}/{{namespace}}"


def topic_routes(broker: Broker) -> list[Route]:
    topics, partitions = TopicVerbs(broker), PartitionVerbs(broker)
    return [
        ("GET", ALL, topics.list_names),
        ("PUT", TOPIC, topics.create),
        ("DELETE", TOPIC, topics.delete),
        ("GET", f"{TOPIC}/stats", topics.stats),
        ("GET", f"{TOPIC}/internalStats", topics.internal_stats),
        ("PUT", f"{TOPIC}/unload", topics.unload),
        ("PUT", f"{NAMESPACE}/unload", topics.unload_namespace),
        ("POST", f"{TOPIC}/trim", topics.trim),
        ("DELETE", f"{TOPIC}/truncate", topics.truncate),
        ("POST", f"{TOPIC}/terminate", topics.terminate),
        ("POST", f"{TOPIC}/terminate/partitions", partitions.terminate),
        ("GET", f"{TOPIC}/lastMessageId", topics.last_message_id),
        ("GET", f"{TOPIC}/messageid/{{timestamp}}", topics.message_id_at),
        ("PUT", f"{TOPIC}/compaction", topics.compact),
        ("GET", f"{TOPIC}/compaction", topics.compaction_status),
        ("GET", f"{ALL}/partitioned", partitions.list_names),
        ("PUT", f"{TOPIC}/partitions", partitions.create),
        ("POST", f"{TOPIC}/partitions", partitions.grow),
        ("GET", f"{TOPIC}/partitions", partitions.metadata),
        ("DELETE", f"{TOPIC}/partitions", partitions.delete),
        ("GET", f"{TOPIC}/partitioned-stats", partitions.stats),
        ("GET", f"{TOPIC}/partitioned-internalStats", partitions.internal_stats),
    ]


def named_topic(broker: Broker, request: Request) -> str:
    """Returns the full name of the request's topic, which need not exist.

    Raises Refusal for an unknown namespace, InvalidRequest, NotAllowed.
    """
    check_exists(broker, request.namespace, "Namespace not found")
    return full_topic(request.topic)


def id_document(message_id: MessageId) -> dict[str, int]:
    """Returns Pulsar's JSON of a message id."""
    return {
        "ledgerId": message_id.ledger_id,
        "entryId": message_id.entry_id,
        "partitionIndex": message_id.partition,
        "batchIndex": message_id.batch_index,
        "batchSize": 0,
    }


def _document(response: Any) -> Answer:
    """Returns the answer of stats."""
    return shown(json.loads(response.json))


def _stats(request: Request, response: Any) -> Answer:
    """Returns the answer of stats, without the clients that the request excludes."""
    stats = json.loads(response.json)
    for each in (stats, *stats.get("partitions", {}).values()):
        if request.flag("excludePublishers"):
            each["publishers"] = []
        if request.flag("excludeConsumers"):
            for subscription in each.get("subscriptions", {}).values():
                subscription["consumers"] = []
    return shown(stats)


def properties_in(body: Any) -> dict[str, str]:
    """Returns the properties of a body, which may be absent. Raises Refusal.

    As in Pulsar, numbers, as they are written, and truth values become texts.

    >>> properties_in({"owner": "team a", "level": WrittenFloat("1E2"), "is_old": False})
    {'owner': 'team a', 'level': '1E2', 'is_old': 'false'}
    """
    if body in (None, ""):
        return {}
    if not isinstance(body, dict):
        raise Refusal(400, "Properties must be an object.")
    for name, value in body.items():
        if not isinstance(value, str | int | float):
            raise Refusal(400, f"The value of the property {name[:100]!r} must be a text.")
    return {name: _text(value) for name, value in body.items()}


def _text(value: str | float) -> str:
    if isinstance(value, WrittenFloat):
        return value.text
    return value if isinstance(value, str) else json.dumps(value)


class BrokerVerbs:
    """Verbs about the topics of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._topics = broker, TopicHandlers(broker)

    def _name(self, request: Request) -> str:
        return named_topic(self._broker, request)


class TopicVerbs(BrokerVerbs):
    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._compaction = CompactionHandlers(broker)

    async def list_names(self, request: Request) -> Answer:
        check_exists(self._broker, request.namespace)
        if request.names["domain"] != PERSISTENT:
            return shown(self._broker.non_persistent.listed(request.namespace))
        listed = self._broker.names.listed
        return await self._broker.in_thread(lambda: shown(listed(request.namespace)))

    async def create(self, request: Request) -> None:
        name = self._name(request)
        properties = properties_in(request.body)
        rpc_request = admin_pb2.CreateTopicRequest(topic=name, properties=properties)
        with answering(NotAllowed, 412), answering(TopicNotFound, 412):
            await self._topics.create(rpc_request)

    async def delete(self, request: Request) -> None:
        name, force = full_topic(request.topic), request.flag("force")
        rpc_request = admin_pb2.DeleteTopicRequest(topic=name, force=force)
        try:
            with answering(NotAllowed, 409):
                await self._topics.delete(rpc_request)
        except TopicNotFound:
            # As in Pulsar: a non-persistent topic may have ended at any time.
            if not is_non_persistent(name):
                raise

    async def stats(self, request: Request) -> Answer:
        name = self._name(request)
        rpc_request = admin_pb2.GetTopicStatsRequest(topic=name)
        return _stats(request, await self._topics.stats(rpc_request))

    async def internal_stats(self, request: Request) -> Answer:
        rpc_request = admin_pb2.GetTopicInternalStatsRequest(topic=self._name(request))
        return _document(await self._topics.internal_stats(rpc_request))

    async def unload(self, request: Request) -> None:
        await self._topics.unload(admin_pb2.UnloadTopicRequest(topic=self._name(request)))

    async def unload_namespace(self, request: Request) -> None:
        check_exists(self._broker, request.namespace)
        listed, in_memory = self._broker.names.listed, self._broker.non_persistent.listed
        for name in listed(request.namespace) + in_memory(request.namespace):
            # A topic that was deleted meanwhile needs no unload.
            if self._broker.exists(name) or name in listed(request.namespace):
                await self._topics.unload(admin_pb2.UnloadTopicRequest(topic=name))

    async def trim(self, request: Request) -> Answer:
        await self._topics.trim(admin_pb2.TrimTopicRequest(topic=self._name(request)))
        return Answer(200)

    async def truncate(self, request: Request) -> None:
        name = self._name(request)
        if is_non_persistent(name):
            raise Refusal(412, "unsupport truncate")
        await self._topics.truncate(admin_pb2.TruncateTopicRequest(topic=name))

    async def terminate(self, request: Request) -> Answer:
        name = self._name(request)
        if is_non_persistent(name):
            raise Refusal(406, "Need to provide a persistent topic name")
        rpc_request = admin_pb2.TerminateTopicRequest(topic=name)
        response = await self._topics.terminate(rpc_request)
        return shown(id_document(response.last_message_id))

    async def last_message_id(self, request: Request) -> Answer:
        name = self._name(request)
        rpc_request = data_pb2.GetLastMessageIdRequest(topic=name)
        message_id = (await get_last_message_id(self._broker, rpc_request)).message_id
        topic = await self._broker.any_topic(name, create=False)
        if message_id.entry_id < 0 and isinstance(topic, Topic):
            message_id.partition = partition_index(topic.name)
            message_id.ledger_id = topic.log.positions.last_published().ledger_id
        return shown(id_document(message_id))

    async def message_id_at(self, request: Request) -> Answer:
        rpc_request = admin_pb2.GetMessageIdByTimestampRequest(
            topic=self._name(request), publish_time_ms=request.number("timestamp")
        )
        return shown(
            id_document((await self._topics.message_id_by_timestamp(rpc_request)).message_id)
        )

    async def compact(self, request: Request) -> None:
        rpc_request = admin_pb2.TriggerCompactionRequest(topic=self._name(request))
        await self._compaction.trigger(rpc_request)

    async def compaction_status(self, request: Request) -> Answer:
        rpc_request = admin_pb2.GetCompactionStatusRequest(topic=self._name(request))
        response = await self._compaction.status(rpc_request)
        status = admin_pb2.CompactionStatus.Name(response.status)
        return shown(
            {
                "status": status.removeprefix("COMPACTION_STATUS_"),
                "lastError": response.last_error,
            }
        )


class PartitionVerbs(BrokerVerbs):
    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._partitions = PartitionedTopicHandlers(broker)

    async def list_names(self, request: Request) -> Answer:
        check_exists(self._broker, request.namespace)
        prefix, list_names = f"{request.names['domain']}://", self._broker.partitions.list_names

        def answer() -> Answer:
            names = list_names(request.namespace)
            return shown([each for each in names if each.startswith(prefix)])

        return await self._broker.in_thread(answer)

    async def create(self, request: Request) -> None:
        name, body, properties = self._name(request), request.body, dict[str, str]()
        if isinstance(body, dict):
            properties = properties_in(body.get("properties"))
            body = body.get("partitions")
        count = whole_number("The number of partitions", body)
        if count < 1:
            raise Refusal(406, "Number of partitions should be more than 0")
        if count > PARTITIONS_MAX:
            raise Refusal(
                406, f"Number of partitions should be less than or equal to {PARTITIONS_MAX}"
            )
        rpc_request = admin_pb2.CreatePartitionedTopicRequest(
            topic=name, partitions=count, properties=properties
        )
        await self._partitions.create(rpc_request)

    async def grow(self, request: Request) -> None:
        name = self._name(request)
        self._check_parent(name)
        count = whole_number("The number of partitions", request.body)
        if not self._broker.partitions.count(name):
            raise Refusal(409, f"Topic {name} is not the partitioned topic.")
        if not 0 < count <= PARTITIONS_MAX:
            raise Refusal(422, f"The number of partitions must be 1 to {PARTITIONS_MAX}.")
        rpc_request = admin_pb2.UpdatePartitionedTopicRequest(topic=name, partitions=count)
        with answering(InvalidRequest, 422):
            await self._partitions.grow(rpc_request)

    async def metadata(self, request: Request) -> Answer:
        rpc_request = admin_pb2.GetPartitionedTopicMetadataRequest(topic=self._name(request))
        metadata = admin_pb2.GetPartitionedTopicMetadataResponse()
        try:
            metadata = await self._partitions.metadata(rpc_request)
        except TopicNotFound:
            # Any topic may be created by its first use.
            if not request.flag("checkAllowAutoCreation"):
                raise
        return shown(metadata_document(metadata))

    async def delete(self, request: Request) -> None:
        name, force = full_topic(request.topic), request.flag("force")
        self._check_parent(name)
        rpc_request = admin_pb2.DeletePartitionedTopicRequest(topic=name, force=force)
        with answering(NotAllowed, 409):
            await self._partitions.delete(rpc_request)

    async def stats(self, request: Request) -> Answer:
        self._check_parent(self._name(request))
        name = self._partitioned(request)
        each = request.query.get("perPartition", "true").lower() == "true"
        rpc_request = admin_pb2.GetPartitionedTopicStatsRequest(topic=name, per_partition=each)
        return _stats(request, await self._partitions.stats(rpc_request))

    async def internal_stats(self, request: Request) -> Answer:
        name = self._partitioned(request)
        documents = {}
        for each in self._broker.partitions.names(name):
            rpc_request = admin_pb2.GetTopicInternalStatsRequest(topic=each)
            documents[each] = json.loads((await self._topics.internal_stats(rpc_request)).json)
        metadata = {"partitions": len(documents), "deleted": False}
        return shown({"metadata": metadata, "partitions": documents})

    async def terminate(self, request: Request) -> Answer:
        name = self._name(request)
        if not self._broker.partitions.count(name):
            raise Refusal(405, "Termination of a non-partitioned topic is not allowed here")
        last = {}
        for at, each in enumerate(self._broker.partitions.names(name)):
            response = await self._topics.terminate(admin_pb2.TerminateTopicRequest(topic=each))
            last[str(at)] = id_document(response.last_message_id)
        return shown(last)

    def _check_parent(self, name: str) -> None:
        """Raises Refusal for a name that no partitioned topic can have, such as a partition's."""
        if PARTITION_SUFFIX in name and not self._broker.partitions.count(name):
            raise Refusal(412, "Partitioned Topic Name should not contain '-partition-'")

    def _partitioned(self, request: Request) -> str:
        name = self._name(request)
        if not self._broker.partitions.count(name):
            raise Refusal(404, f"Partitioned Topic {name} not found")
        return name

"""The calls of AdminService about topics.

Unload, trim and truncate apply to all partitions of a partitioned topic; a termination and a search
by time need a single partition, as in Pulsar.
"""

from __future__ import annotations

import json
from operator import itemgetter
from typing import Any

from ledgerfold.broker.common.given_names import check_properties
from ledgerfold.broker.common.names import full_topic, parse_namespace, persistent_topic
from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.rpc.existing import (
    check_whole,
    existing_names,
    recorded_name,
    stored_topics,
)
from ledgerfold.broker.rpc.handlers import Handlers
from ledgerfold.broker.rpc.name_pages import page_of
from ledgerfold.broker.stats.kafka import kafka_internal_stats, kafka_stats
from ledgerfold.broker.stats.non_persistent import (
    non_persistent_internal_stats,
    non_persistent_stats,
)
from ledgerfold.broker.stats.topic import add_damage, internal_stats, topic_stats
from ledgerfold.broker.topics.broker import AnyTopic, Broker
from ledgerfold.broker.topics.freeing import retry_with_reserve
from ledgerfold.broker.topics.kafka_topic import KafkaTopic
from ledgerfold.broker.topics.non_persistent_topic import NonPersistentTopic
from ledgerfold.broker.topics.operations import terminate_topic, truncate_topic
from ledgerfold.broker.topics.partitions import on_each
from ledgerfold.broker.topics.single_entries import entry_by_id, examined_entry, peeked_entries
from ledgerfold.storage.entry import Position
from ledgerfold.storage.partition_names import partition_index
from ledgerfold.v1 import admin_pb2
from ledgerfold.v1.records_pb2 import MessageId


class TopicHandlers(Handlers):
    @runs_to_completion
    async def create(self, request: admin_pb2.CreateTopicRequest) -> None:
        kafka = dict(request.kafka.values) if request.HasField("kafka") else None
        name, properties = full_topic(request.topic), dict(request.properties)
        check_properties("a topic", properties)
        await self._broker.create_topic(name, kafka, properties)

    @runs_to_completion
    async def delete(self, request: admin_pb2.DeleteTopicRequest) -> None:
        name, force = recorded_name(self._broker, request.topic), request.force
        await retry_with_reserve(self._broker.store, lambda: self._broker.delete_topic(name, force))

    async def list_names(
        self, request: admin_pb2.ListTopicsRequest
    ) -> admin_pb2.ListTopicsResponse:
        namespace = parse_namespace(request.namespace) if request.namespace else ""

        def respond() -> admin_pb2.ListTopicsResponse:
            names = self._names(namespace)
            page, has_more = page_of(names, in_pages=request.in_pages, after=request.after)
            return admin_pb2.ListTopicsResponse(topics=page, has_more=has_more)

        return await self._broker.in_thread(respond)

    def _names(self, namespace: str) -> list[str]:
        """Returns the topics of both kinds, from a thread."""
        non_persistent = self._broker.non_persistent.listed(namespace)
        return self._broker.names.listed(namespace) + non_persistent

    async def stats(
        self, request: admin_pb2.GetTopicStatsRequest
    ) -> admin_pb2.GetTopicStatsResponse:
        name = recorded_name(self._broker, request.topic)
        topic = await self._broker.any_topic(name, create=False)
        document = stats_of(self._broker, topic)
        return admin_pb2.GetTopicStatsResponse(json=json.dumps(document))

    async def internal_stats(
        self, request: admin_pb2.GetTopicInternalStatsRequest
    ) -> admin_pb2.GetTopicInternalStatsResponse:
        name = recorded_name(self._broker, request.topic)
        topic = await self._broker.any_topic(name, create=False)
        if isinstance(topic, KafkaTopic):
            document = kafka_internal_stats(topic, self._broker.cleaner)
            segments = document["kafka"]["segmentList"]
            holds = topic.log.segments.holds
            await add_damage(segments, itemgetter("ledgerIds"), self._broker, holds)
        elif isinstance(topic, NonPersistentTopic):
            document = non_persistent_internal_stats(topic)
        else:
            document = internal_stats(self._broker, topic)
            await add_damage(
                document["ledgers"],
                lambda ledger: [ledger["ledgerId"]],
                self._broker,
                topic.log.ledgers.__contains__,
            )
        return admin_pb2.GetTopicInternalStatsResponse(json=json.dumps(document))

    @runs_to_completion
    async def unload(self, request: admin_pb2.UnloadTopicRequest) -> None:
        for name in existing_names(self._broker, request.topic):
            await self._broker.unload_topic(name)

    @runs_to_completion
    async def trim(self, request: admin_pb2.TrimTopicRequest) -> admin_pb2.TrimTopicResponse:
        removed = [await topic.trim() for topic in await stored_topics(self._broker, request.topic)]
        return admin_pb2.TrimTopicResponse(ledgers_removed=sum(removed))

    @runs_to_completion
    async def truncate(self, request: admin_pb2.TruncateTopicRequest) -> None:
        name = persistent_topic(request.topic, "truncated")
        names = self._broker.partitions.names(name)
        broker = self._broker
        await retry_with_reserve(
            broker.store, lambda: on_each(names, lambda x: truncate_topic(broker, x))
        )

    @runs_to_completion
    async def terminate(
        self, request: admin_pb2.TerminateTopicRequest
    ) -> admin_pb2.TerminateTopicResponse:
        name = persistent_topic(request.topic, "terminated")
        check_whole(self._broker, name, "Only one partition can be terminated")
        last = await terminate_topic(self._broker, name)
        return admin_pb2.TerminateTopicResponse(last_message_id=_entry_id(name, last))

    async def message_id_by_timestamp(
        self, request: admin_pb2.GetMessageIdByTimestampRequest
    ) -> admin_pb2.GetMessageIdByTimestampResponse:
        name = persistent_topic(request.topic, "searched")
        check_whole(self._broker, name, "A message belongs to one partition")
        topic = await self._broker.any_topic(name, create=False)
        if isinstance(topic, KafkaTopic):
            offset = await topic.offset_at_time(request.publish_time_ms, read_committed=False)
            position = Position(0, topic.partition.high_watermark if offset is None else offset)
            return admin_pb2.GetMessageIdByTimestampResponse(message_id=_entry_id(name, position))
        stored = await self._broker.topic(name, create=False)
        position = await stored.log.search.first_published_since(request.publish_time_ms)
        return admin_pb2.GetMessageIdByTimestampResponse(message_id=_entry_id(name, position))


def stats_of(broker: Broker, topic: AnyTopic) -> dict[str, Any]:
    """Returns `topics stats` of any kind."""
    if isinstance(topic, KafkaTopic):
        return kafka_stats(topic)
    if isinstance(topic, NonPersistentTopic):
        return non_persistent_stats(topic)
    return topic_stats(topic, broker.compaction.stats(topic))


def _entry_id(topic: str, position: Position) -> MessageId:
    return MessageId(
        ledger_id=position.ledger_id,
        entry_id=position.entry_id,
        batch_index=-1,
        partition=partition_index(topic),
    )


class MessageHandlers(Handlers):
    async def peek(self, request: admin_pb2.PeekMessagesRequest) -> admin_pb2.PeekMessagesResponse:
        name, position = recorded_name(self._broker, request.topic), request.position
        entries = await peeked_entries(
            self._broker, name, request.subscription, position, request.messages
        )
        return admin_pb2.PeekMessagesResponse(entries=[bytes(each.data) for each in entries])

    async def examine(
        self, request: admin_pb2.ExamineMessagesRequest
    ) -> admin_pb2.ExamineMessagesResponse:
        name, position = recorded_name(self._broker, request.topic), request.position
        entry = await examined_entry(
            self._broker, name, position, from_earliest=request.from_earliest
        )
        return admin_pb2.ExamineMessagesResponse(entry=bytes(entry.data))

    async def by_id(
        self, request: admin_pb2.GetMessageByIdRequest
    ) -> admin_pb2.GetMessageByIdResponse:
        name = recorded_name(self._broker, request.topic)
        at = Position(request.ledger_id, request.entry_id)
        entry = await entry_by_id(self._broker, name, at)
        return admin_pb2.GetMessageByIdResponse(entry=bytes(entry.data))

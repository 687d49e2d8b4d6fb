"""Administration: topics, subscriptions, policies, compaction.

    >>> with Admin("127.0.0.1:7650") as admin:
    ...     admin.create_topic("prices")
    ...     print(admin.list_topics("public/default"))
    ['persistent://public/default/prices']

A thin typed layer over ledgerfold.v1.AdminService, on a plain synchronous channel: commands that
only ask something need no event loop. Verbs are those of pulsar-admin. Every call raises the errors
of storage/errors.py: TopicNotFound and the like, Unavailable when there is no broker, Timeout.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import grpc

from ledgerfold.broker.client import forks
from ledgerfold.broker.client.address import address_of
from ledgerfold.broker.client.admin_policies import PolicyCalls
from ledgerfold.broker.client.kafka_admin import KafkaAdmin
from ledgerfold.broker.client.message_id import MessageId
from ledgerfold.broker.client.outlook import Outlook
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    data_pb2,
    data_pb2_grpc,
    kafka_pb2_grpc,
    records_pb2,
)

_OPTIONS = (("grpc.max_receive_message_length", -1),)


class Admin(PolicyCalls, Outlook):
    """A connection for administration. May be used by several threads.

    `timeout_seconds` bounds each call but `watch_compaction`, `explain` and
    `what_if`. Nothing is tried again.
    """

    def __init__(self, service_url: str, *, timeout_seconds: float = 30) -> None:
        address = address_of(service_url)
        forks.check_may_connect()
        self._timeout_s = timeout_seconds
        self._channel: Any = grpc.insecure_channel(address, options=_OPTIONS)
        self._admin: Any = admin_pb2_grpc.AdminServiceStub(self._channel)
        self._data: Any = data_pb2_grpc.DataServiceStub(self._channel)
        # What there is to ask of Kafka topics alone.
        self.kafka = KafkaAdmin(kafka_pb2_grpc.KafkaServiceStub(self._channel), timeout_seconds)
        forks.channel_opened(self._channel)
        forks.belongs_to_this_process(self)

    def _call(self, method: Any, request: object) -> Any:
        try:
            return method(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None

    # The broker.

    def broker_info(self, *, await_compactor: bool = False) -> admin_pb2.GetBrokerInfoResponse:
        """Version, data directory, durability, and how the compactor is.

        `await_compactor`: waits until it is known whether one can work there, 10 s at most.
        """
        request = admin_pb2.GetBrokerInfoRequest(await_compactor=await_compactor)
        info: admin_pb2.GetBrokerInfoResponse = self._call(self._admin.GetBrokerInfo, request)
        return info

    def clock(self) -> admin_pb2.GetClockResponse:
        """The broker's time, and whether it stands until it is moved."""
        clock: admin_pb2.GetClockResponse = self._call(
            self._admin.GetClock, admin_pb2.GetClockRequest()
        )
        return clock

    def move_clock(self, *, advance_ms: int | None = None, to_ms: int | None = None) -> int:
        """Moves a test clock on, or to a later time, in ms; the time it shows then.

        What has become due by then is done when this returns. Raises NotAllowed where the broker
        goes by the machine's clock, InvalidRequest for a time that is past.
        """
        request = admin_pb2.MoveClockRequest(advance_ms=advance_ms, to_ms=to_ms)
        return int(self._call(self._admin.MoveClock, request).now_ms)

    # Topics.

    def create_topic(self, topic: str, *, kafka: Mapping[str, str] | None = None) -> None:
        """`kafka`: settings by Kafka's names, none or more: it is a Kafka topic then.

        Raises TopicExists, KafkaError (INVALID_CONFIG).
        """
        request = admin_pb2.CreateTopicRequest(topic=topic)
        if kafka is not None:
            request.kafka.SetInParent()
            request.kafka.values.update(kafka)
        self._call(self._admin.CreateTopic, request)

    def delete_topic(self, topic: str, *, force: bool = False) -> None:
        """Deletes it with its data. `force` disconnects its clients, else TopicBusy is raised."""
        request = admin_pb2.DeleteTopicRequest(topic=topic, force=force)
        self._call(self._admin.DeleteTopic, request)

    def list_topics(self, namespace: str = "") -> list[str]:
        """Full names, of one "tenant/namespace" or of all."""
        request = admin_pb2.ListTopicsRequest(namespace=namespace)
        return list(self._call(self._admin.ListTopics, request).topics)

    def create_partitioned_topic(
        self, topic: str, partitions: int, *, kafka: Mapping[str, str] | None = None
    ) -> None:
        """With its partitions, the topics `<topic>-partition-0` and so on. `kafka`: their settings.

        Raises TopicExists, KafkaError.
        """
        request = admin_pb2.CreatePartitionedTopicRequest(topic=topic, partitions=partitions)
        if kafka is not None:
            request.kafka.SetInParent()
            request.kafka.values.update(kafka)
        self._call(self._admin.CreatePartitionedTopic, request)

    def update_partitioned_topic(self, topic: str, partitions: int) -> None:
        """Makes more partitions, never fewer. Raises InvalidRequest, NotAllowed."""
        request = admin_pb2.UpdatePartitionedTopicRequest(topic=topic, partitions=partitions)
        self._call(self._admin.UpdatePartitionedTopic, request)

    def partitioned_topic_metadata(self, topic: str) -> dict[str, Any]:
        """{"partitions": 3, "deleted": False}; 0 partitions when it is not partitioned."""
        request = admin_pb2.GetPartitionedTopicMetadataRequest(topic=topic)
        metadata = self._call(self._admin.GetPartitionedTopicMetadata, request)
        return {"partitions": metadata.partitions, "deleted": False}

    def list_partitioned_topics(self, namespace: str = "") -> list[str]:
        """As list_topics, which lists their partitions."""
        request = admin_pb2.ListPartitionedTopicsRequest(namespace=namespace)
        return list(self._call(self._admin.ListPartitionedTopics, request).topics)

    def delete_partitioned_topic(self, topic: str, *, force: bool = False) -> None:
        """As delete_topic, with all partitions."""
        request = admin_pb2.DeletePartitionedTopicRequest(topic=topic, force=force)
        self._call(self._admin.DeletePartitionedTopic, request)

    def partitioned_stats(self, topic: str, *, per_partition: bool = False) -> dict[str, Any]:
        """What pulsar-admin's `topics partitioned-stats` shows."""
        request = admin_pb2.GetPartitionedTopicStatsRequest(
            topic=topic, per_partition=per_partition
        )
        return _document(self._call(self._admin.GetPartitionedTopicStats, request).json)

    def stats(self, topic: str) -> dict[str, Any]:
        """What pulsar-admin's `topics stats` shows."""
        request = admin_pb2.GetTopicStatsRequest(topic=topic)
        return _document(self._call(self._admin.GetTopicStats, request).json)

    def internal_stats(self, topic: str) -> dict[str, Any]:
        """What pulsar-admin's `topics stats-internal` shows."""
        request = admin_pb2.GetTopicInternalStatsRequest(topic=topic)
        return _document(self._call(self._admin.GetTopicInternalStats, request).json)

    def unload(self, topic: str) -> None:
        """Closes and loads it anew; its clients come back by themselves."""
        self._call(self._admin.UnloadTopic, admin_pb2.UnloadTopicRequest(topic=topic))

    def trim(self, topic: str) -> int:
        """Removes raw ledgers that nothing holds back. Answers how many."""
        response = self._call(self._admin.TrimTopic, admin_pb2.TrimTopicRequest(topic=topic))
        return int(response.ledgers_removed)

    def truncate(self, topic: str) -> None:
        """Removes all its data, read or not; subscriptions stay, at the end."""
        self._call(self._admin.TruncateTopic, admin_pb2.TruncateTopicRequest(topic=topic))

    def terminate(self, topic: str) -> MessageId:
        """Nothing is published to it any more; the id of the last entry."""
        request = admin_pb2.TerminateTopicRequest(topic=topic)
        return MessageId.of_record(self._call(self._admin.TerminateTopic, request).last_message_id)

    def last_message_id(self, topic: str, *, read_compacted: bool = False) -> MessageId:
        """-1:-1 when the topic is empty."""
        request = data_pb2.GetLastMessageIdRequest(topic=topic, read_compacted=read_compacted)
        return MessageId.of_record(self._call(self._data.GetLastMessageId, request).message_id)

    def message_id_by_timestamp(self, topic: str, publish_time_ms: int) -> MessageId:
        """The first entry published then or later; where the next will be when there is none.

        The compacted ledger is looked into first. Raises NotAllowed for a partitioned topic.
        """
        request = admin_pb2.GetMessageIdByTimestampRequest(
            topic=topic, publish_time_ms=publish_time_ms
        )
        found = self._call(self._admin.GetMessageIdByTimestamp, request).message_id
        return MessageId.of_record(found)

    # Subscriptions.

    def create_subscription(
        self, topic: str, subscription: str, start: MessageId | None = None
    ) -> None:
        """A durable one that begins behind `start`; at the end when there is none.

        Raises SubscriptionExists.
        """
        request = admin_pb2.CreateSubscriptionRequest(
            topic=topic, subscription=subscription, start=_start(start)
        )
        self._call(self._admin.CreateSubscription, request)

    def list_subscriptions(self, topic: str) -> list[str]:
        request = admin_pb2.ListSubscriptionsRequest(topic=topic)
        return list(self._call(self._admin.ListSubscriptions, request).subscriptions)

    def expire_messages(self, topic: str, subscription: str, older_than_ms: int) -> int:
        """Passes what was published longer ago; of every subscription, if none is named.

        How many entries of backlog that were. Raises SubscriptionBusy when a subscription that is
        named has no backlog, or has nearly caught up and nothing expired.
        """
        request = admin_pb2.ExpireMessagesRequest(
            topic=topic, subscription=subscription, older_than_ms=older_than_ms
        )
        return int(self._call(self._admin.ExpireMessages, request).entries)

    def reset_cursor(
        self,
        topic: str,
        subscription: str,
        start: MessageId | None = None,
        *,
        inclusive: bool = True,
        ago_ms: int | None = None,
    ) -> None:
        """Moves it to a message, or to the first one published since a time ago.

        `inclusive`: that message itself is delivered again. Its consumers come back by themselves.
        """
        request = admin_pb2.ResetCursorRequest(
            topic=topic, subscription=subscription, ago_ms=ago_ms
        )
        if start is not None:
            request.start.CopyFrom(_start(start))
            request.start.inclusive = inclusive and request.start.HasField("message_id")
        self._call(self._admin.ResetCursor, request)

    def skip_messages(self, topic: str, subscription: str, entries: int) -> int:
        """Passes so many entries of the backlog, or as many as there are; how many it were."""
        request = admin_pb2.SkipMessagesRequest(
            topic=topic, subscription=subscription, entries=entries
        )
        return int(self._call(self._admin.SkipMessages, request).entries)

    def clear_backlog(self, topic: str, subscription: str) -> int:
        """Passes the whole backlog; how many entries that were."""
        request = admin_pb2.ClearBacklogRequest(topic=topic, subscription=subscription)
        return int(self._call(self._admin.ClearBacklog, request).entries)

    def unsubscribe(self, topic: str, subscription: str, *, force: bool = False) -> None:
        """Deletes it. `force` disconnects its consumers, else SubscriptionBusy is raised."""
        request = data_pb2.UnsubscribeRequest(topic=topic, subscription=subscription, force=force)
        self._call(self._data.Unsubscribe, request)

    # Compaction.

    def trigger_compaction(
        self, topic: str, *, strategy: records_pb2.CompactionStrategy | None = None
    ) -> int:
        """Starts a run, or queues it, and answers its number; 0 when there is nothing new.

        `strategy`: of this run alone. Raises CompactionRunning, CompactionQueueFull, NotAllowed.
        """
        request = admin_pb2.TriggerCompactionRequest(topic=topic, strategy=strategy)
        return int(self._call(self._admin.TriggerCompaction, request).run_number)

    def compaction_status(self, topic: str) -> admin_pb2.GetCompactionStatusResponse:
        """Of the run on its way, else of the last one."""
        request = admin_pb2.GetCompactionStatusRequest(topic=topic)
        status: admin_pb2.GetCompactionStatusResponse = self._call(
            self._admin.GetCompactionStatus, request
        )
        return status

    def watch_compaction(
        self, topic: str, *, timeout_seconds: float | None = None
    ) -> Iterator[admin_pb2.GetCompactionStatusResponse]:
        """The status now, then at each change, until no run is on its way.

        Closing the iterator ends the watch, not the run. Raises Timeout.
        """
        request = admin_pb2.WatchCompactionRequest(topic=topic)
        call = self._admin.WatchCompaction(request, timeout=timeout_seconds)
        try:
            for response in call:
                yield response.status
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        finally:
            call.cancel()

    def cancel_compaction(self, topic: str) -> int:
        """Answers the number of the run that it cancels; 0 when none is on its way."""
        request = admin_pb2.CancelCompactionRequest(topic=topic)
        return int(self._call(self._admin.CancelCompaction, request).run_number)

    def runs(self, topic: str = "", *, limit: int = 0) -> list[records_pb2.RunRecord]:
        """The history of compactions of one topic or of all, newest first; `limit` 0 = all."""
        request = admin_pb2.ListRunsRequest(topic=topic, limit=limit)
        return list(self._call(self._admin.ListRuns, request).runs)

    def close(self) -> None:
        """Further calls raise AlreadyClosed. Closing twice is fine."""
        channel = self._channel
        self._channel = None
        # Nothing may refer to the channel any more (forks.py).
        gone = forks.Gone("The admin is closed.")
        self._admin = self._data = gone
        self.kafka.close(gone)
        if channel is not None:
            channel.close()

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _document(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    return document


def _start(start: MessageId | None) -> data_pb2.StartPosition:
    if start is None or start == MessageId.latest:
        return data_pb2.StartPosition(latest=True)
    if start == MessageId.earliest:
        return data_pb2.StartPosition(earliest=True)
    return data_pb2.StartPosition(message_id=start.to_record())

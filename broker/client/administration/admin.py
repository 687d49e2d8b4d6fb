"""Administration: topics, subscriptions, policies, compaction.

    >>> with Admin("127.0.0.1:7650") as admin:
    ...     admin.create_topic("prices", properties={"owner": "sales"})
    ...     admin.update_topic_properties("prices", {"level": "gold"}, remove=["owner"])
    ...     print(admin.list_topics("public/default"), admin.topic_properties("prices"))
    ['persistent://public/default/prices'] {'level': 'gold'}

A thin typed layer over ledgerfold.v1.AdminService. Verbs are those of pulsar-admin.
Every call raises the errors of storage/errors.py: TopicNotFound and similar, Unavailable without a
broker, Timeout.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import grpc

from ledgerfold.broker.client.administration.admin_policies import PolicyCalls
from ledgerfold.broker.client.administration.analysis_calls import AnalysisCalls
from ledgerfold.broker.client.administration.channel import AdminChannel
from ledgerfold.broker.client.administration.kafka_admin import KafkaAdmin
from ledgerfold.broker.client.administration.message_calls import MessageCalls
from ledgerfold.broker.client.administration.namespace_calls import NamespaceCalls, PermissionCalls
from ledgerfold.broker.client.administration.schema_calls import SchemaCalls
from ledgerfold.broker.client.administration.state_calls import FaultCalls, StateCalls
from ledgerfold.broker.client.administration.subscription_calls import SubscriptionCalls
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.streams.closing import Closing
from ledgerfold.broker.client.streams.credentials import credentials_of
from ledgerfold.broker.client.streams.forks import invalidate_after_fork
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1 import admin_pb2, data_pb2, records_pb2


class Admin(
    MessageCalls,
    NamespaceCalls,
    PermissionCalls,
    PolicyCalls,
    SchemaCalls,
    StateCalls,
    FaultCalls,
    SubscriptionCalls,
    AnalysisCalls,
    Closing,
):
    """A connection for administration. Thread-safe.

    `timeout_seconds` bounds each call except `watch_compaction`, `explain` and `what_if`. No call
    is retried. `credentials`: arguments of `Client` about TLS and authentication.
    """

    def __init__(
        self, service_url: str, *, timeout_seconds: float = 30, **credentials: Any
    ) -> None:
        proof = credentials_of("Admin", Admin.__init__, credentials)
        super().__init__(AdminChannel(service_url, timeout_seconds, "admin", proof))
        # The calls for Kafka topics.
        self.kafka = KafkaAdmin(self._channel)
        invalidate_after_fork(self)

    # The broker.

    def broker_info(self, *, await_compactor: bool = False) -> admin_pb2.GetBrokerInfoResponse:
        """Returns version, data directory, durability, and the state of the compactor.

        `await_compactor`: waits until it is known whether a compactor is available, at most 10 s.
        """
        request = admin_pb2.GetBrokerInfoRequest(await_compactor=await_compactor)
        info: admin_pb2.GetBrokerInfoResponse = self._call(request)
        return info

    def clock(self) -> admin_pb2.GetClockResponse:
        """Returns the broker's time, and whether its clock is a manual one."""
        clock: admin_pb2.GetClockResponse = self._call(admin_pb2.GetClockRequest())
        return clock

    def move_clock(self, *, advance_ms: int | None = None, to_ms: int | None = None) -> int:
        """Moves a manual clock forward, by a duration or to a time, in ms. Returns its time.

        Work that has become due is complete when this returns. Raises NotAllowed if the broker uses
        the machine's clock, InvalidRequest for a past time.
        """
        request = admin_pb2.MoveClockRequest(advance_ms=advance_ms, to_ms=to_ms)
        return int(self._call(request).now_ms)

    # Topics.

    def create_topic(
        self,
        topic: str,
        *,
        kafka: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        **others: object,
    ) -> None:
        """Creates a topic; with `kafka` (settings by Kafka's names, or an empty mapping) a Kafka
        topic.

        Raises TopicExists, KafkaError (INVALID_CONFIG), InvalidRequest for `others`.
        """
        if others:
            raise InvalidRequest(
                f"create_topic has no argument {next(iter(others))[:100]}. Arguments: topic, "
                "kafka, properties. create_partitioned_topic creates partitions."
            )
        request = admin_pb2.CreateTopicRequest(
            topic=topic, kafka=_kafka_config(kafka), properties=properties
        )
        self._call(request)

    def delete_topic(self, topic: str, *, force: bool = False) -> None:
        """Deletes a topic with its subscriptions and data.

        Raises TopicNotFound, and TopicBusy if clients are connected, which `force` disconnects.
        """
        self._call(admin_pb2.DeleteTopicRequest(topic=topic, force=force))

    def list_topics(self, namespace: str = "") -> list[str]:
        """Returns the full names of all topics, or of those of one "tenant/namespace", in order."""
        return all_names(self._call, admin_pb2.ListTopicsRequest(namespace=namespace))

    def create_partitioned_topic(
        self,
        topic: str,
        partitions: int,
        *,
        kafka: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Creates a partitioned topic with its partitions `<topic>-partition-0` and so on.

        `kafka`: the settings of the partitions. Raises TopicExists, KafkaError.
        """
        request = admin_pb2.CreatePartitionedTopicRequest(
            topic=topic,
            partitions=partitions,
            kafka=_kafka_config(kafka),
            properties=properties,
        )
        self._call(request)

    def update_partitioned_topic(self, topic: str, partitions: int) -> None:
        """Increases the number of partitions. Raises InvalidRequest, NotAllowed."""
        self._call(admin_pb2.UpdatePartitionedTopicRequest(topic=topic, partitions=partitions))

    def partitioned_topic_metadata(self, topic: str) -> dict[str, Any]:
        """Returns {"partitions": 3, "deleted": False}; 0 partitions if the topic is not
        partitioned.
        """
        metadata = self._call(admin_pb2.GetPartitionedTopicMetadataRequest(topic=topic))
        document = {"partitions": metadata.partitions, "deleted": False}
        return document | ({"properties": dict(metadata.properties)} if metadata.properties else {})

    def list_partitioned_topics(self, namespace: str = "") -> list[str]:
        """Returns the full names of partitioned topics; `list_topics` returns their partitions."""
        return all_names(self._call, admin_pb2.ListPartitionedTopicsRequest(namespace=namespace))

    def delete_partitioned_topic(self, topic: str, *, force: bool = False) -> None:
        """Deletes a partitioned topic with its partitions, as delete_topic."""
        self._call(admin_pb2.DeletePartitionedTopicRequest(topic=topic, force=force))

    def partitioned_stats(self, topic: str, *, per_partition: bool = False) -> dict[str, Any]:
        """Returns the output of pulsar-admin's `topics partitioned-stats`."""
        request = admin_pb2.GetPartitionedTopicStatsRequest(
            topic=topic, per_partition=per_partition
        )
        return _document(self._call(request).json)

    def stats(self, topic: str) -> dict[str, Any]:
        """Returns the output of pulsar-admin's `topics stats`."""
        return _document(self._call(admin_pb2.GetTopicStatsRequest(topic=topic)).json)

    def internal_stats(self, topic: str) -> dict[str, Any]:
        """Returns the output of pulsar-admin's `topics stats-internal`."""
        return _document(self._call(admin_pb2.GetTopicInternalStatsRequest(topic=topic)).json)

    def unload(self, topic: str) -> None:
        """Closes and reloads a topic; its clients reconnect automatically."""
        self._call(admin_pb2.UnloadTopicRequest(topic=topic))

    def trim(self, topic: str) -> int:
        """Deletes raw ledgers that are no longer needed. Returns the number of these ledgers."""
        response = self._call(admin_pb2.TrimTopicRequest(topic=topic))
        return int(response.ledgers_removed)

    def truncate(self, topic: str) -> None:
        """Deletes all data of a topic, read or not; subscriptions move to the end."""
        self._call(admin_pb2.TruncateTopicRequest(topic=topic))

    def terminate(self, topic: str) -> MessageId:
        """Terminates a topic: publishing to it fails from now on. Returns the id of the last
        entry.
        """
        request = admin_pb2.TerminateTopicRequest(topic=topic)
        return MessageId.of_record(self._call(request).last_message_id)

    def last_message_id(self, topic: str, *, read_compacted: bool = False) -> MessageId:
        """Returns the last message id; -1:-1 if the topic is empty."""
        request = data_pb2.GetLastMessageIdRequest(topic=topic, read_compacted=read_compacted)
        return MessageId.of_record(self._call(request).message_id)

    def message_id_by_timestamp(self, topic: str, publish_time_ms: int) -> MessageId:
        """Returns the id of the first entry that was published at a time, in ms since the epoch,
        or later.

        If there is none, this is the id that the next entry will have. The compacted ledger is
        searched first. Raises NotAllowed for a partitioned topic.
        """
        request = admin_pb2.GetMessageIdByTimestampRequest(
            topic=topic, publish_time_ms=publish_time_ms
        )
        record = self._call(request).message_id
        return MessageId.of_record(record)

    def topic_properties(self, topic: str) -> dict[str, str]:
        """Returns the properties of a topic; its partitions have their own.

        Raises NotAllowed for a non-persistent topic.
        """
        request = admin_pb2.GetTopicPropertiesRequest(topic=topic)
        return dict(self._call(request).properties)

    def update_topic_properties(
        self, topic: str, properties: Mapping[str, str] | None = None, remove: Iterable[str] = ()
    ) -> None:
        """Sets properties of a topic, and removes those named by `remove`; others stay.

        Raises InvalidRequest for more than 100 properties, or more than 16,384 characters.
        """
        request = admin_pb2.UpdateTopicPropertiesRequest(topic=topic, set=properties, remove=remove)
        self._call(request)

    # Compaction.

    def trigger_compaction(
        self, topic: str, *, strategy: records_pb2.CompactionStrategy | None = None
    ) -> int:
        """Starts or queues a run. Returns its number; 0 if there is nothing new to compact.

        `strategy`: for this run only. Raises CompactionRunning, CompactionQueueFull, NotAllowed.
        """
        request = admin_pb2.TriggerCompactionRequest(topic=topic, strategy=strategy)
        return int(self._call(request).run_number)

    def compaction_status(self, topic: str) -> admin_pb2.GetCompactionStatusResponse:
        """Returns the status of the current run, or else of the last one."""
        request = admin_pb2.GetCompactionStatusRequest(topic=topic)
        status: admin_pb2.GetCompactionStatusResponse = self._call(request)
        return status

    def watch_compaction(
        self, topic: str, *, timeout_seconds: float | None = None
    ) -> Iterator[admin_pb2.GetCompactionStatusResponse]:
        """Yields the current status, then the status at each change, until no run is in progress.

        Closing the iterator does not end the run. Raises Timeout after `timeout_seconds`; without
        it there is no time limit.
        """
        request = admin_pb2.WatchCompactionRequest(topic=topic)
        call = self._channel.method_of(request)(request, timeout=timeout_seconds)
        try:
            for response in call:
                yield response.status
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        finally:
            call.cancel()

    def cancel_compaction(self, topic: str) -> int:
        """Cancels the current run. Returns its number, or 0 if no run is in progress."""
        return int(self._call(admin_pb2.CancelCompactionRequest(topic=topic)).run_number)

    def runs(self, topic: str = "", *, limit: int = 0) -> list[records_pb2.RunRecord]:
        """Returns the records of the compaction runs of a topic, newest first; "": of all topics.

        `limit`: at most this many; 0: all that are kept, which are the last 100 of each topic.
        """
        return all_runs(self._call, admin_pb2.ListRunsRequest(topic=topic, limit=limit))

    def close(self) -> None:
        """Closes the connection; further calls raise AlreadyClosed. Idempotent."""
        self._channel.close()


def _document(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    return document


def _kafka_config(values: Mapping[str, str] | None) -> admin_pb2.KafkaConfig | None:
    return None if values is None else admin_pb2.KafkaConfig(values=values)


def all_names(
    call: Callable[[Any], Any],
    request: admin_pb2.ListTopicsRequest | admin_pb2.ListPartitionedTopicsRequest,
) -> list[str]:
    """Returns the names of all pages, in order."""
    request.in_pages = True
    page = call(request)
    names = list[str](page.topics)
    while page.has_more:
        request.after = names[-1]
        page = call(request)
        names += page.topics
    return names


def all_runs(
    call: Callable[[Any], Any], request: admin_pb2.ListRunsRequest
) -> list[records_pb2.RunRecord]:
    """Returns the runs of all pages, newest first, at most `request.limit`."""
    request.in_pages = True
    page = call(request)
    runs = list[records_pb2.RunRecord](page.runs)
    while page.has_more:
        last = runs[-1]
        place = admin_pb2.RunPlace(topic=last.topic, number=last.number, queued_ms=last.queued_ms)
        request.after.CopyFrom(place)
        if request.limit:
            request.limit -= len(page.runs)
        page = call(request)
        runs += page.runs
    return runs

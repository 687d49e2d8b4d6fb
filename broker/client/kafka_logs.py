"""The log of a Kafka topic, batch by batch: for copies from, and to, folders of Kafka's.

    >>> from ledgerfold.storage.kafka.records import build_columns
    >>> batch = build_columns([b"k"], [b"v"], [5], base_offset=40)
    >>> with KafkaLogs("127.0.0.1:7650") as logs:
    ...     logs.create("orders", {"cleanup.policy": "compact"})
    ...     logs.take_over("orders", batch, append_time_ms=1_700_000_000_000)
    ...     logs.begin_segment("orders", 500)
    500

What KafkaAdmin has (kafka_admin.py), on a channel of its own, and what only a copy asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import grpc

from ledgerfold.broker.client import forks
from ledgerfold.broker.client.address import address_of
from ledgerfold.broker.client.kafka_admin import KafkaAdmin
from ledgerfold.v1 import admin_pb2, admin_pb2_grpc, kafka_pb2, kafka_pb2_grpc

_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


class KafkaLogs(KafkaAdmin):
    """A connection. `timeout_seconds` bounds each call; nothing is tried again."""

    def __init__(self, service_url: str, *, timeout_seconds: float = 120) -> None:
        address = address_of(service_url)
        forks.check_may_connect()
        self._channel: Any = grpc.insecure_channel(address, options=_OPTIONS)
        super().__init__(kafka_pb2_grpc.KafkaServiceStub(self._channel), timeout_seconds)
        self._admin: Any = admin_pb2_grpc.AdminServiceStub(self._channel)
        forks.channel_opened(self._channel)
        forks.belongs_to_this_process(self)

    def create(self, topic: str, config: Mapping[str, str]) -> None:
        """Raises TopicExists, KafkaError (INVALID_CONFIG)."""
        kafka = admin_pb2.KafkaConfig(values=config)
        self._call(self._admin.CreateTopic, admin_pb2.CreateTopicRequest(topic=topic, kafka=kafka))

    def delete(self, topic: str) -> None:
        self._call(self._admin.DeleteTopic, admin_pb2.DeleteTopicRequest(topic=topic, force=True))

    def take_over(
        self,
        topic: str,
        batches: bytes,
        *,
        append_time_ms: int,
        aborted: Iterable[kafka_pb2.KafkaAbortedInfo] = (),
    ) -> None:
        """Batches of another log, with their offsets. No segment ends before them.

        `aborted`: what its transaction index says of markers that are in the active segment then.
        """
        request = kafka_pb2.KafkaAppendRequest(
            topic=topic,
            batches=batches,
            origin=kafka_pb2.KAFKA_ORIGIN_REPLICATION,
            keep_segments=True,
            append_time_ms=append_time_ms,
            aborted=aborted,
        )
        self._call(self._stub.Append, request)

    def begin_segment(
        self,
        topic: str,
        base_offset: int,
        empty_modified_ms: int | None = None,
        modified_ms: int | None = None,
    ) -> int:
        """The active segment ends. One that holds nothing moves, or stays with that time.

        `modified_ms`: of the new one's file, as long as it holds nothing; None: now.
        """
        request = kafka_pb2.RollSegmentRequest(
            topic=topic,
            base_offset=base_offset,
            empty_modified_ms=empty_modified_ms,
            modified_ms=modified_ms,
        )
        return int(self._call(self._stub.RollSegment, request).base_offset)

    def describe(self, topic: str) -> kafka_pb2.DescribeLogResponse:
        """As it comes over the wire."""
        told: kafka_pb2.DescribeLogResponse = self._call(
            self._stub.DescribeLog, kafka_pb2.DescribeLogRequest(topic=topic)
        )
        return told

    def batches(self, topic: str, offset: int = 0) -> Iterator[bytes]:
        """Those that end at or behind `offset`, as they are stored; a page is held at a time."""
        page = self.describe_log(topic, batches=True, batches_from=offset)
        yield from page.batches
        while page.more_from is not None:
            page = self.describe_log(topic, batches=True, batches_from=page.more_from)
            yield from page.batches

    def __enter__(self) -> KafkaLogs:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Further calls raise AlreadyClosed."""
        channel, self._channel = self._channel, None
        # Nothing may refer to the channel any more (forks.py).
        self._admin = gone = forks.Gone("The connection is closed.")
        self.close(gone)
        if channel is not None:
            channel.close()

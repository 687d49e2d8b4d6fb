"""The log of a Kafka topic, batch by batch, for importing and exporting Kafka's log folders.

    >>> from ledgerfold.storage.kafka.records import build_columns
    >>> batch = build_columns([b"k"], [b"v"], [5], base_offset=40)
    >>> with KafkaLogs("127.0.0.1:7650") as logs:
    ...     logs.create("orders", {"cleanup.policy": "compact"})
    ...     logs.take_over("orders", batch, append_time_ms=1_700_000_000_000)
    ...     logs.begin_segment("orders", 500)
    500

It adds to KafkaAdmin (kafka_admin.py) the calls that only copying needs, on its own channel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ledgerfold.broker.client.administration.channel import AdminChannel
from ledgerfold.broker.client.administration.kafka_admin import KafkaAdmin
from ledgerfold.broker.client.administration.kafka_pages import exact_description
from ledgerfold.broker.client.streams.closing import Closing
from ledgerfold.broker.client.streams.credentials import credentials_of
from ledgerfold.broker.client.streams.forks import invalidate_after_fork
from ledgerfold.v1 import admin_pb2, kafka_pb2


class KafkaLogs(KafkaAdmin, Closing):
    """A connection for copying logs. `timeout_seconds` bounds each call; no call is retried."""

    def __init__(
        self, service_url: str, *, timeout_seconds: float = 120, **credentials: Any
    ) -> None:
        given = credentials_of("KafkaLogs", KafkaLogs.__init__, credentials)
        super().__init__(AdminChannel(service_url, timeout_seconds, "connection", given))
        invalidate_after_fork(self)

    def create(self, topic: str, config: Mapping[str, str]) -> None:
        """Creates a topic. Raises TopicExists, KafkaError (INVALID_CONFIG)."""
        kafka = admin_pb2.KafkaConfig(values=config)
        self._call(admin_pb2.CreateTopicRequest(topic=topic, kafka=kafka))

    def delete(self, topic: str) -> None:
        self._call(admin_pb2.DeleteTopicRequest(topic=topic, force=True))

    def take_over(
        self,
        topic: str,
        batches: bytes,
        *,
        append_time_ms: int,
        aborted: Iterable[kafka_pb2.KafkaAbortedInfo] = (),
    ) -> None:
        """Appends batches of another log with their offsets, without rolling a segment.

        `aborted`: the entries of that log's transaction index for markers in the active segment.
        """
        request = kafka_pb2.KafkaAppendRequest(
            topic=topic,
            batches=batches,
            origin=kafka_pb2.KAFKA_ORIGIN_REPLICATION,
            keep_segments=True,
            append_time_ms=append_time_ms,
            aborted=aborted,
        )
        self._call(request)

    def begin_segment(
        self,
        topic: str,
        base_offset: int,
        empty_modified_ms: int | None = None,
        modified_ms: int | None = None,
    ) -> int:
        """Rolls the active segment. An empty one is moved, or kept with `empty_modified_ms`.

        `modified_ms`: the modification time of the new segment's file, while it is empty; None:
        now.
        """
        request = kafka_pb2.RollSegmentRequest(
            topic=topic,
            base_offset=base_offset,
            empty_modified_ms=empty_modified_ms,
            modified_ms=modified_ms,
        )
        return int(self._call(request).base_offset)

    def take_over_log_start(self, topic: str, offset: int) -> None:
        """Advances the log start to that of another log, regardless of the cleanup policy."""
        self._call(kafka_pb2.SetLogStartRequest(topic=topic, offset=offset, as_follower=True))

    def describe(self, topic: str) -> kafka_pb2.DescribeLogResponse:
        """Returns the description in its wire format. Raises NotAllowed (exact_description)."""
        return exact_description(self._call, topic)

    def batches(self, topic: str, offset: int = 0) -> Iterator[bytes]:
        """Yields the stored batches that end at or after `offset`; holds one page at a time."""
        request = kafka_pb2.DescribeLogRequest(
            topic=topic, batches=True, batches_from=offset, batches_only=True
        )
        has_more = True
        while has_more:
            page = self._call(request)
            yield from (each.batch for each in page.batches)
            has_more, request.batches_from = page.HasField("more_from"), page.more_from

    def close(self) -> None:
        """Closes the connection; further calls raise AlreadyClosed."""
        self._channel.close()

"""Administration of Kafka topics: raw batches, the log, settings, the cleaner.

    >>> from ledgerfold.admin import Admin
    >>> with Admin("127.0.0.1:7650") as admin:
    ...     admin.create_topic("addresses", kafka={"cleanup.policy": "compact"})
    ...     print(admin.kafka.config("addresses")["cleanup.policy"].value)
    ...     print(admin.kafka.describe_log("addresses").log_end_offset)
    compact
    0

A thin typed layer over ledgerfold.v1.KafkaService, as Admin is over AdminService. What Kafka would
refuse raises KafkaError, with Kafka's code and words; a topic that is none of Kafka's, NotAllowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import grpc

from ledgerfold.broker.client.kafka_answers import (
    Appended,
    CleanerStatus,
    CleanerTurn,
    CleaningPlan,
    ConfigEntry,
    LogDescription,
    Origin,
    TruncatedLog,
)
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.v1 import kafka_pb2


class KafkaAdmin:
    """`Admin.kafka`. Its `timeout_seconds` bounds each call but `plan_cleaning`, `clean`,
    `run_retention` and `truncate_log`, which take as long as the data does.
    """

    def __init__(self, stub: Any, timeout_s: float) -> None:
        self._stub, self._timeout_s = stub, timeout_s

    def close(self, gone: Any) -> None:
        """Further calls raise what `gone` says."""
        self._stub = gone

    def _call(self, method: Any, request: object, *, is_bounded: bool = True) -> Any:
        try:
            return method(request, timeout=self._timeout_s if is_bounded else None)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None

    # The log.

    def init_producer_id(self) -> tuple[int, int]:
        """A producer id that was never given out, and its epoch, 0."""
        told = self._call(self._stub.InitProducerId, kafka_pb2.InitProducerIdRequest())
        return told.producer_id, told.producer_epoch

    def append(self, topic: str, batches: bytes, origin: Origin = Origin.CLIENT) -> Appended:
        """Record batches v2, one behind the other (storage/kafka builds them); durable then.

        The first that is refused ends it: those before it are in the log. Raises KafkaError.
        """
        request = kafka_pb2.KafkaAppendRequest(topic=topic, batches=batches, origin=origin.value)
        return Appended.of(self._call(self._stub.Append, request))

    def end_transaction(
        self,
        topic: str,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        timestamp_ms: int = 0,
    ) -> int:
        """Appends the marker that a coordinator would; its offset. `timestamp_ms` 0: now."""
        request = kafka_pb2.EndTransactionRequest(
            topic=topic,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            commit=commit,
            timestamp_ms=timestamp_ms,
        )
        return int(self._call(self._stub.EndTransaction, request).last_offsets[0])

    def describe_log(
        self, topic: str, *, batches: bool = False, batches_from: int = 0
    ) -> LogDescription:
        """Offsets, segments, producers. `batches`: as they are stored, too, a page of them.

        Those that end at or behind `batches_from`: about 4 MiB, and at least one. `more_from` tells
        where the next page begins.
        """
        request = kafka_pb2.DescribeLogRequest(
            topic=topic, batches=batches, batches_from=batches_from
        )
        return LogDescription.of(self._call(self._stub.DescribeLog, request))

    def roll_segment(self, topic: str) -> int:
        """Ends the active segment, unless it is empty; the base offset of the active one."""
        request = kafka_pb2.RollSegmentRequest(topic=topic)
        return int(self._call(self._stub.RollSegment, request).base_offset)

    def set_log_start(self, topic: str, offset: int | None = None) -> int:
        """Nothing below it is read any more (Kafka: DeleteRecords); the log's start.

        None: the high watermark.
        """
        request = kafka_pb2.SetLogStartRequest(topic=topic, offset=-1 if offset is None else offset)
        return int(self._call(self._stub.SetLogStart, request).log_start_offset)

    def truncate_log(self, topic: str, offset: int) -> TruncatedLog:
        """What lies at or behind it is gone, though it was acknowledged; batches go whole.

        Its offsets are given out again: a reader that knows them reads other records there. One at
        or behind the log's end changes nothing. It takes as long as the last segment is large.
        """
        request = kafka_pb2.TruncateLogRequest(topic=topic, offset=offset)
        return TruncatedLog.of(self._call(self._stub.TruncateLog, request, is_bounded=False))

    def set_high_watermark(self, topic: str, offset: int | None) -> int:
        """Holds it back, as followers that lag would; None lets it go. Where it is."""
        request = kafka_pb2.SetHighWatermarkRequest(topic=topic, offset=offset)
        return int(self._call(self._stub.SetHighWatermark, request).high_watermark)

    # Settings, by Kafka's names.

    def config(self, topic: str = "") -> dict[str, ConfigEntry]:
        """Of a topic, as they hold for it; "": of the broker."""
        told = self._call(self._stub.GetKafkaConfig, kafka_pb2.GetKafkaConfigRequest(topic=topic))
        return {each.name: ConfigEntry.of(each) for each in told.entries}

    def change_config(
        self, topic: str = "", *, values: Mapping[str, str] | None = None, unset: Iterable[str] = ()
    ) -> None:
        """All or none; "": the broker's, until it stops. Raises KafkaError (INVALID_CONFIG)."""
        request = kafka_pb2.SetKafkaConfigRequest(topic=topic, set=values, unset=unset)
        self._call(self._stub.SetKafkaConfig, request)

    # The cleaner.

    def plan_cleaning(self, *topics: str, with_map: bool = False) -> list[CleaningPlan]:
        """What it would do now, without a change; no topic: of every compacted one.

        `with_map`: with the offset map, which the worker builds: at most 1,000 of its keys.
        """
        request = kafka_pb2.PlanCleaningRequest(topics=topics, map=with_map)
        told = self._call(self._stub.PlanCleaning, request, is_bounded=False)
        return list(map(CleaningPlan.of, told.plans))

    def clean(self, topic: str = "") -> CleanerTurn:
        """One turn of a cleaner's thread, now; "": of the filthiest log, as a thread chooses."""
        request = kafka_pb2.CleanTurnRequest(topic=topic)
        return CleanerTurn.of(self._call(self._stub.Clean, request, is_bounded=False))

    def run_retention(self) -> int:
        """One pass over the logs that are not compacted; how many segments went."""
        request = kafka_pb2.RunRetentionRequest()
        told = self._call(self._stub.RunRetention, request, is_bounded=False)
        return int(told.deleted_segments)

    def cleaner(self, namespace: str = "") -> CleanerStatus:
        """Gauges, checkpoints (of one namespace, or of all), and how it stands with each topic."""
        request = kafka_pb2.GetCleanerRequest(namespace=namespace)
        return CleanerStatus.of(self._call(self._stub.GetCleaner, request))

    def set_checkpoint(self, topic: str, offset: int | None) -> None:
        """Where the next round starts; None: none is stored."""
        self._set(topic, checkpoint=-1 if offset is None else offset)

    def mark_uncleanable(self, topic: str, reason: str) -> None:
        """The cleaner leaves it alone, for this reason."""
        self._set(topic, uncleanable_reason=reason)

    def pause_cleaning(self, topic: str) -> str:
        """Ends a round on its way, and begins no other until `resume_cleaning`; the state."""
        return self._set(topic, action="abort-and-pause")

    def resume_cleaning(self, topic: str) -> str:
        """The state then; "": none. Raises InvalidRequest when it is not paused."""
        return self._set(topic, action="resume")

    def _set(self, topic: str, **what: Any) -> str:
        request = kafka_pb2.SetCleaningRequest(topic=topic, **what)
        return str(self._call(self._stub.SetCleaning, request).cleaning_state)

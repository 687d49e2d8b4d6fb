"""Administration of Kafka topics: raw batches, the log, settings, the cleaner.

    >>> from ledgerfold.admin import Admin
    >>> with Admin("127.0.0.1:7650") as admin:
    ...     admin.create_topic("addresses", kafka={"cleanup.policy": "compact"})
    ...     print(admin.kafka.config("addresses")["cleanup.policy"].value)
    ...     print(admin.kafka.describe_log("addresses").log_end_offset)
    compact
    0

A thin typed layer over ledgerfold.v1.KafkaService. A request that Kafka would refuse raises
KafkaError with Kafka's code and message; a topic that is not a Kafka topic raises NotAllowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ledgerfold.broker.client.administration.channel import Calls
from ledgerfold.broker.client.administration.kafka_answers import (
    Appended,
    CleanerStatus,
    CleanerTurn,
    CleaningPlan,
    ConfigEntry,
    LogDescription,
    Origin,
    TruncatedLog,
)
from ledgerfold.broker.client.administration.kafka_pages import whole_description
from ledgerfold.v1 import kafka_pb2


class KafkaAdmin(Calls):
    """The calls for Kafka topics (`Admin.kafka`).

    `timeout_seconds` of Admin bounds each call except `plan_cleaning`, `clean`, `run_retention` and
    `truncate_log`, whose time depends on the amount of data.
    """

    # The log.

    def init_producer_id(self) -> tuple[int, int]:
        """Returns a new producer id, and its epoch, 0."""
        response = self._call(kafka_pb2.InitProducerIdRequest())
        return response.producer_id, response.producer_epoch

    def append(self, topic: str, batches: bytes, origin: Origin = Origin.CLIENT) -> Appended:
        """Appends concatenated record batches v2 (storage/kafka builds them) durably.

        Appending stops at the first refused batch: those before it are in the log. Raises
        KafkaError.
        """
        request = kafka_pb2.KafkaAppendRequest(topic=topic, batches=batches, origin=origin.value)
        return Appended.of(self._call(request))

    def end_transaction(
        self,
        topic: str,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        timestamp_ms: int = 0,
    ) -> int:
        """Appends the marker that a coordinator would append. Returns its offset. `timestamp_ms` 0:
        now.
        """
        request = kafka_pb2.EndTransactionRequest(
            topic=topic,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            commit=commit,
            timestamp_ms=timestamp_ms,
        )
        return int(self._call(request).last_offsets[0])

    def describe_log(
        self, topic: str, *, batches: bool = False, batches_from: int = 0
    ) -> LogDescription:
        """Returns offsets, segments and producers; with `batches` also a page of stored batches.

        The page has batches that end at or after `batches_from`: about 4 MiB, at least one.
        `more_from` is the start of the next page.
        """
        request = kafka_pb2.DescribeLogRequest(
            topic=topic, batches=batches, batches_from=batches_from
        )
        return LogDescription.of(whole_description(self._call, request))

    def roll_segment(self, topic: str) -> int:
        """Rolls the active segment unless it is empty. Returns the active one's base offset."""
        return int(self._call(kafka_pb2.RollSegmentRequest(topic=topic)).base_offset)

    def set_log_start(self, topic: str, offset: int | None = None) -> int:
        """Advances the log start offset (Kafka: DeleteRecords). Returns it.

        `offset` None: to the high watermark. Raises KafkaError (POLICY_VIOLATION) if the topic's
        `cleanup.policy` does not include `delete`.
        """
        request = kafka_pb2.SetLogStartRequest(topic=topic, offset=-1 if offset is None else offset)
        return int(self._call(request).log_start_offset)

    def truncate_log(self, topic: str, offset: int) -> TruncatedLog:
        """Deletes the batches that end at or after `offset`, although they were acknowledged.

        Their offsets are assigned again: a reader may then find other records there. An offset at
        or after the log end changes nothing. The time depends on the size of the last segment.
        """
        request = kafka_pb2.TruncateLogRequest(topic=topic, offset=offset)
        return TruncatedLog.of(self._call(request, timeout_s=None))

    def set_high_watermark(self, topic: str, offset: int | None) -> int:
        """Holds the high watermark back, as lagging followers would; None releases it.
        Returns it.
        """
        request = kafka_pb2.SetHighWatermarkRequest(topic=topic, offset=offset)
        return int(self._call(request).high_watermark)

    # Settings, by Kafka's names.

    def config(self, topic: str = "") -> dict[str, ConfigEntry]:
        """Returns the effective settings of a topic; "": of the broker."""
        response = self._call(kafka_pb2.GetKafkaConfigRequest(topic=topic))
        return {each.name: ConfigEntry.of(each) for each in response.entries}

    def change_config(
        self, topic: str = "", *, values: Mapping[str, str] | None = None, unset: Iterable[str] = ()
    ) -> None:
        """Changes all given settings or none; "": the broker's, until it stops.

        Raises KafkaError (INVALID_CONFIG).
        """
        self._call(kafka_pb2.SetKafkaConfigRequest(topic=topic, set=values, unset=unset))

    # The cleaner.

    def plan_cleaning(self, *topics: str, with_map: bool = False) -> list[CleaningPlan]:
        """Returns the cleaner's plan for each topic, without changes; no topic: for all compacted
        ones.

        `with_map`: includes at most 1,000 keys of the offset map, which the worker builds.
        """
        request = kafka_pb2.PlanCleaningRequest(topics=topics, map=with_map)
        response = self._call(request, timeout_s=None)
        return list(map(CleaningPlan.of, response.plans))

    def clean(self, topic: str = "") -> CleanerTurn:
        """Cleans a topic once; "": the dirtiest log, which a cleaner thread would choose."""
        return CleanerTurn.of(self._call(kafka_pb2.CleanTurnRequest(topic=topic), timeout_s=None))

    def run_retention(self) -> int:
        """Runs one retention pass over logs that are not compacted. Returns the number of deleted
        segments.
        """
        response = self._call(kafka_pb2.RunRetentionRequest(), timeout_s=None)
        return int(response.deleted_segments)

    def cleaner(self, namespace: str = "") -> CleanerStatus:
        """Returns gauges, checkpoints (of one namespace or of all), and the state of each topic."""
        return CleanerStatus.of(self._call(kafka_pb2.GetCleanerRequest(namespace=namespace)))

    def set_checkpoint(self, topic: str, offset: int | None) -> None:
        """Sets the start of the next cleaning; None: deletes the checkpoint."""
        self._set(topic, checkpoint=-1 if offset is None else offset)

    def mark_uncleanable(self, topic: str, reason: str) -> None:
        """Marks a topic as uncleanable, for this reason."""
        self._set(topic, uncleanable_reason=reason)

    def pause_cleaning(self, topic: str) -> str:
        """Aborts a running cleaning, and pauses the topic until `resume_cleaning`. Returns the
        state.
        """
        return self._set(topic, action="abort-and-pause")

    def resume_cleaning(self, topic: str) -> str:
        """Resumes cleaning. Returns the state; "": none. Raises InvalidRequest if it is not
        paused.
        """
        return self._set(topic, action="resume")

    def _set(self, topic: str, **changes: Any) -> str:
        return str(self._call(kafka_pb2.SetCleaningRequest(topic=topic, **changes)).cleaning_state)

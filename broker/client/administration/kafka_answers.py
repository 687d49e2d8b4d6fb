"""Responses about Kafka topics. Names are Kafka's. Offsets count from 0; times are ms since the
epoch, on the broker's clock.

    >>> LogDescription.of(kafka_pb2.DescribeLogResponse(log_end_offset=3)).log_end_offset
    3
"""

from __future__ import annotations

from collections.abc import MutableMapping, MutableSequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Self

from google.protobuf.message import Message

from ledgerfold.storage.kafka.transaction_index import AbortedTransaction
from ledgerfold.v1 import kafka_pb2


@dataclass(frozen=True, slots=True)
class _Response:
    """A dataclass whose fields have the names of the fields of a protobuf message."""

    @classmethod
    def of(cls, response: Any) -> Self:
        """Converts `response`."""
        return cls._with(response)

    @classmethod
    def _with(cls, response: Message, **converted: Any) -> Self:
        """Converts `response`; `converted`: the fields that differ from its own."""
        names = [each.name for each in fields(cls)]
        copied = {name: _value(response, name) for name in names if name not in converted}
        return cls(**copied, **converted)


def _value(response: Message, name: str) -> Any:
    """Returns a field as a plain Python value; None if it is not set."""
    value = getattr(response, name)
    if isinstance(value, MutableMapping):
        return dict(value)
    if isinstance(value, MutableSequence):
        return list(value)
    has_presence = response.DESCRIPTOR.fields_by_name[name].has_presence
    return value if not has_presence or response.HasField(name) else None


class Origin(Enum):
    """The kind of appender, which decides what the broker checks."""

    CLIENT = kafka_pb2.KAFKA_ORIGIN_CLIENT
    # A coordinator of groups or transactions: control batches are accepted, too.
    COORDINATOR = kafka_pb2.KAFKA_ORIGIN_COORDINATOR
    # A leader that is followed: the batches keep their offsets.
    REPLICATION = kafka_pb2.KAFKA_ORIGIN_REPLICATION


@dataclass(frozen=True, slots=True)
class Appended(_Response):
    """The first and the last offset of each appended batch, in order.

    `log_append_time_ms`: the timestamp of all their records, under LogAppendTime; else None.
    """

    offsets: list[tuple[int, int]]
    log_append_time_ms: int | None

    @classmethod
    def of(cls, response: kafka_pb2.KafkaAppendResponse) -> Self:
        time_ms = response.log_append_time_ms
        return cls(
            list(zip(response.first_offsets, response.last_offsets, strict=True)),
            None if time_ms < 0 else time_ms,
        )


@dataclass(frozen=True, slots=True)
class SegmentInfo(_Response):
    """A segment. `next_offset`: the one after its last batch; sizes are those of Kafka's files."""

    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    modified_ms: int
    is_active: bool
    is_cleaned: bool
    offset_index_bytes: int
    time_index_bytes: int
    # The ledgers that store it.
    ledger_ids: list[int]


@dataclass(frozen=True, slots=True)
class ProducerInfo(_Response):
    """The log's state of an idempotent producer; -1: none.

    `transaction_first_offset`: that of the open transaction. `is_forgotten`: Kafka would have
    expired the producer, by the timestamps of its records; here its resends are still recognized.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_data_offset: int
    last_timestamp_ms: int
    transaction_first_offset: int | None
    is_forgotten: bool

    @classmethod
    def of(cls, response: kafka_pb2.KafkaProducerInfo) -> Self:
        first = response.transaction_first_offset
        return cls._with(response, transaction_first_offset=None if first < 0 else first)


@dataclass(frozen=True, slots=True)
class LogDescription(_Response):
    """A partition's log. `checkpoint`: the first dirty offset; None without a checkpoint."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    checkpoint: int | None
    segments: list[SegmentInfo]
    producers: list[ProducerInfo]
    aborted: list[AbortedTransaction]
    # In Kafka's format, "LogCleaningPaused{pausedCount=1}"; "": none.
    cleaning_state: str
    # Why the topic is uncleanable; "": it is not.
    uncleanable_reason: str
    # The kind of failure, for programs: as in CleanerStatus.
    uncleanable_kind: str
    # A page of stored batches, header and records, if requested.
    batches: list[bytes] = field(repr=False, default_factory=list)
    # The start of the next page; None: this is the last one.
    more_from: int | None = None

    @classmethod
    def of(cls, response: kafka_pb2.DescribeLogResponse) -> Self:
        return cls._with(
            response,
            segments=list(map(SegmentInfo.of, response.segments)),
            producers=list(map(ProducerInfo.of, response.producers)),
            aborted=list(map(AbortedTransaction.of, response.aborted)),
            batches=[each.batch for each in response.batches],
        )


@dataclass(frozen=True, slots=True)
class TruncatedLog(_Response):
    """The log after a truncation. `checkpoint`: as in LogDescription."""

    log_end_offset: int
    log_start_offset: int
    checkpoint: int | None


@dataclass(frozen=True, slots=True)
class ConfigEntry(_Response):
    """A setting. `source`: "topic", the broker's name for it, or "default"."""

    name: str
    value: str
    source: str
    unit: str
    doc: str
    # True if it can be changed while the broker runs.
    is_dynamic: bool


@dataclass(frozen=True, slots=True)
class CleaningPlan(_Response):
    """The cleaner's plan for a log, with its reasons.

    `ratio`: dirty bytes divided by all bytes, 0 to 1. `first_uncleanable_offset`: by the rules;
    `bound_offset`: rounded down to the base of its segment. `map_entries`: (offset, key), by
    offset.
    """

    topic: str
    log_start_offset: int
    log_end_offset: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    bound_offset: int
    clean_bytes: int
    cleanable_bytes: int
    ratio: float
    min_ratio: float
    # True if older than max.compaction.lag.ms; `delay_ms`: by how much.
    is_overdue: bool
    delay_ms: int
    # "active segment", "last stable offset", "min.compaction.lag.ms".
    bound_by: str
    # The stored checkpoint is out of the log's range, and will be repaired.
    repairs_checkpoint: bool
    is_eligible: bool
    why_not: str
    map_entries: list[tuple[int, bytes]]
    map_keys: int
    map_keys_max: int
    end_offset: int

    @classmethod
    def of(cls, response: kafka_pb2.CleaningPlan) -> Self:
        entries = [(each.offset, each.key) for each in response.entries]
        return cls._with(response, map_entries=entries)


@dataclass(frozen=True, slots=True)
class CleaningStats(_Response):
    """The statistics of a cleaning, as LogCleaner counts them."""

    map_messages_read: int
    messages_read: int
    messages_written: int
    bytes_read: int
    bytes_written: int
    # Records without a key, which are dropped.
    invalid_messages_read: int
    # Keys in the offset map, and its capacity.
    map_keys: int
    map_slots: int
    index_ms: int
    elapsed_ms: int


@dataclass(frozen=True, slots=True)
class CleanerTurn(_Response):
    """The result of one pass of a cleaner thread.

    `topic`: None if there was nothing to clean. `stats`, `end_offset` and `checkpoint` (the start
    of the next cleaning): None if no cleaning was completed.
    """

    topic: str | None
    plan: CleaningPlan | None
    stats: CleaningStats | None
    end_offset: int | None
    checkpoint: int | None
    was_aborted: bool
    # Why the cleaning failed; "": it did not. A log whose cleaning failed is uncleanable.
    failure: str
    # Segments that retention deleted, over all logs.
    deleted_segments: int
    # The kind of failure, for programs: as in CleanerStatus; "": none.
    failure_kind: str

    @classmethod
    def of(cls, response: kafka_pb2.CleanTurnResponse) -> Self:
        is_done = response.HasField("stats")
        return cls._with(
            response,
            topic=response.topic or None,
            plan=CleaningPlan.of(response.plan) if response.HasField("plan") else None,
            stats=CleaningStats.of(response.stats) if is_done else None,
            end_offset=response.end_offset if is_done else None,
            checkpoint=response.checkpoint if is_done else None,
        )


@dataclass(frozen=True, slots=True)
class CleanerStatus(_Response):
    """The state of the cleaner.

    `gauges`: by Kafka's names. `checkpoint_file`: the text of cleaner-offset-checkpoint.
    `uncleanable`, `states`: the reason and the cleaning state, by topic. `uncleanable_kinds`: the
    kind of failure by topic: the reason of an error, WORKER_DIED, or MARKED, if marked by an
    administrator. `shared_lines`: lines of the file that stand for topics of several namespaces.
    `is_starting`: topics are being loaded, and no pass starts automatically yet.
    """

    gauges: dict[str, float]
    checkpoint_file: str
    uncleanable: dict[str, str]
    states: dict[str, str]
    last_turns: list[str]
    uncleanable_kinds: dict[str, str]
    shared_lines: list[str]
    is_starting: bool

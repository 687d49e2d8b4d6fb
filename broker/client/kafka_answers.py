"""What is told of Kafka topics. Offsets count from 0; times are ms since the epoch, on the broker's
clock. Names are Kafka's.

    >>> LogDescription.of(kafka_pb2.DescribeLogResponse(log_end_offset=3)).log_end_offset
    3
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from ledgerfold.v1 import kafka_pb2


class Origin(Enum):
    """Who appends: what is checked depends on it."""

    CLIENT = kafka_pb2.KAFKA_ORIGIN_CLIENT
    # Of groups or transactions: control batches are taken, too.
    COORDINATOR = kafka_pb2.KAFKA_ORIGIN_COORDINATOR
    # A leader that is followed: the batches' own offsets stand.
    REPLICATION = kafka_pb2.KAFKA_ORIGIN_REPLICATION


@dataclass(frozen=True, slots=True)
class Appended:
    """Where batches lie: the first and the last offset of each, in order.

    `log_append_time_ms`: what all their records are dated, under LogAppendTime; else None.
    """

    offsets: list[tuple[int, int]]
    log_append_time_ms: int | None

    @classmethod
    def of(cls, told: kafka_pb2.KafkaAppendResponse) -> Appended:
        time_ms = told.log_append_time_ms
        return cls(
            list(zip(told.first_offsets, told.last_offsets, strict=True)),
            None if time_ms < 0 else time_ms,
        )


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A segment. `next_offset`: behind its last batch; sizes as Kafka's files would have them."""

    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    modified_ms: int
    is_active: bool
    is_cleaned: bool
    offset_index_bytes: int
    time_index_bytes: int
    # What holds it in the data directory.
    ledger_ids: list[int]

    @classmethod
    def of(cls, told: kafka_pb2.KafkaSegmentInfo) -> SegmentInfo:
        return cls(
            told.base_offset,
            told.next_offset,
            told.size_bytes,
            told.largest_timestamp_ms,
            told.modified_ms,
            told.is_active,
            told.is_cleaned,
            told.offset_index_bytes,
            told.time_index_bytes,
            list(told.ledger_ids),
        )


@dataclass(frozen=True, slots=True)
class ProducerInfo:
    """What the log remembers of an idempotent producer. -1: none; `transaction_first_offset`: of
    the transaction that is open. `is_forgotten`: Kafka would not know it any more, by the times of
    its records; what it sends again is known here.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_data_offset: int
    last_timestamp_ms: int
    transaction_first_offset: int | None
    is_forgotten: bool

    @classmethod
    def of(cls, told: kafka_pb2.KafkaProducerInfo) -> ProducerInfo:
        first = told.transaction_first_offset
        return cls(
            told.producer_id,
            told.producer_epoch,
            told.last_sequence,
            told.last_data_offset,
            told.last_timestamp_ms,
            None if first < 0 else first,
            told.is_forgotten,
        )


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """An entry of the transaction index. `last_offset`: the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class LogDescription:
    """A partition's log. `checkpoint`: the first dirty offset, None when none is stored."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    checkpoint: int | None
    segments: list[SegmentInfo]
    producers: list[ProducerInfo]
    aborted: list[AbortedTransaction]
    # In Kafka's words, "LogCleaningPaused{pausedCount=1}"; "": none.
    cleaning_state: str
    # Why the cleaner leaves the topic alone; "": it does not.
    uncleanable_reason: str
    # Which failure it was, for programs: as in CleanerStatus.
    uncleanable_kind: str
    # If they were asked for, a page of them: each as it is stored, header and records.
    batches: list[bytes] = field(repr=False, default_factory=list)
    # Where the next page begins; None: there are no more.
    more_from: int | None = None

    @classmethod
    def of(cls, told: kafka_pb2.DescribeLogResponse) -> LogDescription:
        return cls(
            told.log_start_offset,
            told.log_end_offset,
            told.high_watermark,
            told.last_stable_offset,
            told.checkpoint if told.HasField("checkpoint") else None,
            list(map(SegmentInfo.of, told.segments)),
            list(map(ProducerInfo.of, told.producers)),
            [
                AbortedTransaction(
                    each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset
                )
                for each in told.aborted
            ],
            told.cleaning_state,
            told.uncleanable_reason,
            told.uncleanable_kind,
            [each.batch for each in told.batches],
            told.more_from if told.HasField("more_from") else None,
        )


@dataclass(frozen=True, slots=True)
class TruncatedLog:
    """A log as a truncation left it. `checkpoint`: as LogDescription's."""

    log_end_offset: int
    log_start_offset: int
    checkpoint: int | None

    @classmethod
    def of(cls, told: kafka_pb2.TruncateLogResponse) -> TruncatedLog:
        checkpoint = told.checkpoint if told.HasField("checkpoint") else None
        return cls(told.log_end_offset, told.log_start_offset, checkpoint)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting. `source`: "topic", the broker's name for it, or "default"."""

    name: str
    value: str
    source: str
    unit: str
    doc: str
    # Whether it can be set while the broker runs.
    is_dynamic: bool

    @classmethod
    def of(cls, told: kafka_pb2.KafkaConfigEntry) -> ConfigEntry:
        return cls(told.name, told.value, told.source, told.unit, told.doc, told.is_dynamic)


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """What the cleaner would do with a log now, and why.

    `ratio`: dirty bytes of all, 0 to 1. `first_uncleanable_offset`: as the rules give it,
    `bound_offset`: down to the segment that holds it. `map_entries`: (offset, key), by offset.
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
    # Older than max.compaction.lag.ms, and by how much.
    is_overdue: bool
    delay_ms: int
    # "active segment", "last stable offset", "min.compaction.lag.ms".
    bound_by: str
    # The stored checkpoint is to be repaired: the log does not hold it.
    repairs_checkpoint: bool
    is_eligible: bool
    why_not: str
    map_entries: list[tuple[int, bytes]]
    map_keys: int
    map_keys_max: int
    end_offset: int

    @classmethod
    def of(cls, told: kafka_pb2.CleaningPlan) -> CleaningPlan:
        return cls(
            told.topic,
            told.log_start_offset,
            told.log_end_offset,
            told.first_dirty_offset,
            told.first_uncleanable_offset,
            told.bound_offset,
            told.clean_bytes,
            told.cleanable_bytes,
            told.ratio,
            told.min_ratio,
            told.is_overdue,
            told.delay_ms,
            told.bound_by,
            told.repairs_checkpoint,
            told.is_eligible,
            told.why_not,
            [(each.offset, each.key) for each in told.entries],
            told.map_keys,
            told.map_keys_max,
            told.end_offset,
        )


@dataclass(frozen=True, slots=True)
class CleaningStats:
    """What a round read and wrote, as LogCleaner's statistics count."""

    map_messages_read: int
    map_bytes_read: int
    messages_read: int
    messages_written: int
    bytes_read: int
    bytes_written: int
    # Without a key: they are left out.
    invalid_messages_read: int
    # Keys in the offset map, and how many it has room for.
    map_keys: int
    map_slots: int
    index_ms: int
    elapsed_ms: int

    @classmethod
    def of(cls, told: kafka_pb2.CleaningStats) -> CleaningStats:
        return cls(
            told.map_messages_read,
            told.map_bytes_read,
            told.messages_read,
            told.messages_written,
            told.bytes_read,
            told.bytes_written,
            told.invalid_messages_read,
            told.map_keys,
            told.map_slots,
            told.index_ms,
            told.elapsed_ms,
        )


@dataclass(frozen=True, slots=True)
class CleanerTurn:
    """What one turn did. `topic`: None when there was nothing to clean. `stats`, `end_offset` and
    `checkpoint` (where the next round starts): None when no round came to its end.
    """

    topic: str | None
    plan: CleaningPlan | None
    stats: CleaningStats | None
    end_offset: int | None
    checkpoint: int | None
    was_aborted: bool
    # Why the round failed; "": it did not. The log is left alone then.
    failure: str
    # That retention let go, of all logs.
    deleted_segments: int
    # Which failure it was, for programs: as in CleanerStatus; "": none.
    failure_kind: str

    @classmethod
    def of(cls, told: kafka_pb2.CleanTurnResponse) -> CleanerTurn:
        is_done = told.HasField("stats")
        return cls(
            told.topic or None,
            CleaningPlan.of(told.plan) if told.HasField("plan") else None,
            CleaningStats.of(told.stats) if is_done else None,
            told.end_offset if is_done else None,
            told.checkpoint if is_done else None,
            told.was_aborted,
            told.failure,
            told.deleted_segments,
            told.failure_kind,
        )


@dataclass(frozen=True, slots=True)
class CleanerStatus:
    """The cleaner: `gauges` by Kafka's names, the text of cleaner-offset-checkpoint, and by topic
    why it is left alone, and the cleaning state.

    `uncleanable_kinds`: which failure a topic is left alone for: the reason of an error,
    WORKER_DIED, or MARKED, by hand. `shared_lines`: those of the file that stand for topics of
    several namespaces. `is_starting`: topics are being loaded, and no turn is taken by itself yet.
    """

    gauges: dict[str, float]
    checkpoint_file: str
    uncleanable: dict[str, str]
    states: dict[str, str]
    last_turns: list[str]
    uncleanable_kinds: dict[str, str]
    shared_lines: list[str]
    is_starting: bool

    @classmethod
    def of(cls, told: kafka_pb2.GetCleanerResponse) -> CleanerStatus:
        return cls(
            dict(told.gauges),
            told.checkpoint_file,
            dict(told.uncleanable),
            dict(told.states),
            list(told.last_turns),
            dict(told.uncleanable_kinds),
            list(told.shared_lines),
            told.is_starting,
        )

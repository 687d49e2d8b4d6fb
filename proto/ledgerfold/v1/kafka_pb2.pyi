from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class KafkaOrigin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KAFKA_ORIGIN_CLIENT: _ClassVar[KafkaOrigin]
    KAFKA_ORIGIN_COORDINATOR: _ClassVar[KafkaOrigin]
    KAFKA_ORIGIN_REPLICATION: _ClassVar[KafkaOrigin]
KAFKA_ORIGIN_CLIENT: KafkaOrigin
KAFKA_ORIGIN_COORDINATOR: KafkaOrigin
KAFKA_ORIGIN_REPLICATION: KafkaOrigin

class GetKafkaConfigRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class GetKafkaConfigResponse(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[KafkaConfigEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[KafkaConfigEntry, _Mapping]]] = ...) -> None: ...

class KafkaConfigEntry(_message.Message):
    __slots__ = ("name", "value", "source", "unit", "doc", "is_dynamic")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    DOC_FIELD_NUMBER: _ClassVar[int]
    IS_DYNAMIC_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    source: str
    unit: str
    doc: str
    is_dynamic: bool
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[str] = ..., unit: _Optional[str] = ..., doc: _Optional[str] = ..., is_dynamic: _Optional[bool] = ...) -> None: ...

class SetKafkaConfigRequest(_message.Message):
    __slots__ = ("topic", "set", "unset")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    UNSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    set: _containers.ScalarMap[str, str]
    unset: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., set: _Optional[_Mapping[str, str]] = ..., unset: _Optional[_Iterable[str]] = ...) -> None: ...

class SetKafkaConfigResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PlanCleaningRequest(_message.Message):
    __slots__ = ("topics", "map")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    MAP_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    map: bool
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., map: _Optional[bool] = ...) -> None: ...

class PlanCleaningResponse(_message.Message):
    __slots__ = ("plans",)
    PLANS_FIELD_NUMBER: _ClassVar[int]
    plans: _containers.RepeatedCompositeFieldContainer[CleaningPlan]
    def __init__(self, plans: _Optional[_Iterable[_Union[CleaningPlan, _Mapping]]] = ...) -> None: ...

class CleaningPlan(_message.Message):
    __slots__ = ("topic", "log_start_offset", "log_end_offset", "first_dirty_offset", "first_uncleanable_offset", "bound_offset", "clean_bytes", "cleanable_bytes", "ratio", "min_ratio", "is_overdue", "delay_ms", "bound_by", "repairs_checkpoint", "is_eligible", "why_not", "entries", "map_keys", "map_keys_max", "end_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FIRST_DIRTY_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FIRST_UNCLEANABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BOUND_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CLEAN_BYTES_FIELD_NUMBER: _ClassVar[int]
    CLEANABLE_BYTES_FIELD_NUMBER: _ClassVar[int]
    RATIO_FIELD_NUMBER: _ClassVar[int]
    MIN_RATIO_FIELD_NUMBER: _ClassVar[int]
    IS_OVERDUE_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    BOUND_BY_FIELD_NUMBER: _ClassVar[int]
    REPAIRS_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    IS_ELIGIBLE_FIELD_NUMBER: _ClassVar[int]
    WHY_NOT_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MAP_KEYS_FIELD_NUMBER: _ClassVar[int]
    MAP_KEYS_MAX_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
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
    is_overdue: bool
    delay_ms: int
    bound_by: str
    repairs_checkpoint: bool
    is_eligible: bool
    why_not: str
    entries: _containers.RepeatedCompositeFieldContainer[OffsetMapEntry]
    map_keys: int
    map_keys_max: int
    end_offset: int
    def __init__(self, topic: _Optional[str] = ..., log_start_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., first_dirty_offset: _Optional[int] = ..., first_uncleanable_offset: _Optional[int] = ..., bound_offset: _Optional[int] = ..., clean_bytes: _Optional[int] = ..., cleanable_bytes: _Optional[int] = ..., ratio: _Optional[float] = ..., min_ratio: _Optional[float] = ..., is_overdue: _Optional[bool] = ..., delay_ms: _Optional[int] = ..., bound_by: _Optional[str] = ..., repairs_checkpoint: _Optional[bool] = ..., is_eligible: _Optional[bool] = ..., why_not: _Optional[str] = ..., entries: _Optional[_Iterable[_Union[OffsetMapEntry, _Mapping]]] = ..., map_keys: _Optional[int] = ..., map_keys_max: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class OffsetMapEntry(_message.Message):
    __slots__ = ("key", "offset")
    KEY_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    offset: int
    def __init__(self, key: _Optional[bytes] = ..., offset: _Optional[int] = ...) -> None: ...

class CleanTurnRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class CleanTurnResponse(_message.Message):
    __slots__ = ("topic", "plan", "end_offset", "stats", "was_aborted", "failure", "deleted_segments", "checkpoint", "failure_kind")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    WAS_ABORTED_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    DELETED_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_KIND_FIELD_NUMBER: _ClassVar[int]
    topic: str
    plan: CleaningPlan
    end_offset: int
    stats: CleaningStats
    was_aborted: bool
    failure: str
    deleted_segments: int
    checkpoint: int
    failure_kind: str
    def __init__(self, topic: _Optional[str] = ..., plan: _Optional[_Union[CleaningPlan, _Mapping]] = ..., end_offset: _Optional[int] = ..., stats: _Optional[_Union[CleaningStats, _Mapping]] = ..., was_aborted: _Optional[bool] = ..., failure: _Optional[str] = ..., deleted_segments: _Optional[int] = ..., checkpoint: _Optional[int] = ..., failure_kind: _Optional[str] = ...) -> None: ...

class CleaningStats(_message.Message):
    __slots__ = ("map_messages_read", "messages_read", "messages_written", "bytes_read", "bytes_written", "invalid_messages_read", "map_keys", "map_slots", "index_ms", "elapsed_ms")
    MAP_MESSAGES_READ_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_READ_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    BYTES_READ_FIELD_NUMBER: _ClassVar[int]
    BYTES_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    INVALID_MESSAGES_READ_FIELD_NUMBER: _ClassVar[int]
    MAP_KEYS_FIELD_NUMBER: _ClassVar[int]
    MAP_SLOTS_FIELD_NUMBER: _ClassVar[int]
    INDEX_MS_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_MS_FIELD_NUMBER: _ClassVar[int]
    map_messages_read: int
    messages_read: int
    messages_written: int
    bytes_read: int
    bytes_written: int
    invalid_messages_read: int
    map_keys: int
    map_slots: int
    index_ms: int
    elapsed_ms: int
    def __init__(self, map_messages_read: _Optional[int] = ..., messages_read: _Optional[int] = ..., messages_written: _Optional[int] = ..., bytes_read: _Optional[int] = ..., bytes_written: _Optional[int] = ..., invalid_messages_read: _Optional[int] = ..., map_keys: _Optional[int] = ..., map_slots: _Optional[int] = ..., index_ms: _Optional[int] = ..., elapsed_ms: _Optional[int] = ...) -> None: ...

class RunRetentionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RunRetentionResponse(_message.Message):
    __slots__ = ("deleted_segments",)
    DELETED_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    deleted_segments: int
    def __init__(self, deleted_segments: _Optional[int] = ...) -> None: ...

class GetCleanerRequest(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    def __init__(self, namespace: _Optional[str] = ...) -> None: ...

class GetCleanerResponse(_message.Message):
    __slots__ = ("gauges", "checkpoint_file", "uncleanable", "states", "last_turns", "uncleanable_kinds", "shared_lines", "is_starting")
    class GaugesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class UncleanableEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class StatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class UncleanableKindsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    GAUGES_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FILE_FIELD_NUMBER: _ClassVar[int]
    UNCLEANABLE_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    LAST_TURNS_FIELD_NUMBER: _ClassVar[int]
    UNCLEANABLE_KINDS_FIELD_NUMBER: _ClassVar[int]
    SHARED_LINES_FIELD_NUMBER: _ClassVar[int]
    IS_STARTING_FIELD_NUMBER: _ClassVar[int]
    gauges: _containers.ScalarMap[str, float]
    checkpoint_file: str
    uncleanable: _containers.ScalarMap[str, str]
    states: _containers.ScalarMap[str, str]
    last_turns: _containers.RepeatedScalarFieldContainer[str]
    uncleanable_kinds: _containers.ScalarMap[str, str]
    shared_lines: _containers.RepeatedScalarFieldContainer[str]
    is_starting: bool
    def __init__(self, gauges: _Optional[_Mapping[str, float]] = ..., checkpoint_file: _Optional[str] = ..., uncleanable: _Optional[_Mapping[str, str]] = ..., states: _Optional[_Mapping[str, str]] = ..., last_turns: _Optional[_Iterable[str]] = ..., uncleanable_kinds: _Optional[_Mapping[str, str]] = ..., shared_lines: _Optional[_Iterable[str]] = ..., is_starting: _Optional[bool] = ...) -> None: ...

class SetCleaningRequest(_message.Message):
    __slots__ = ("topic", "checkpoint", "uncleanable_reason", "action")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    UNCLEANABLE_REASON_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    checkpoint: int
    uncleanable_reason: str
    action: str
    def __init__(self, topic: _Optional[str] = ..., checkpoint: _Optional[int] = ..., uncleanable_reason: _Optional[str] = ..., action: _Optional[str] = ...) -> None: ...

class SetCleaningResponse(_message.Message):
    __slots__ = ("cleaning_state",)
    CLEANING_STATE_FIELD_NUMBER: _ClassVar[int]
    cleaning_state: str
    def __init__(self, cleaning_state: _Optional[str] = ...) -> None: ...

class InitProducerIdRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InitProducerIdResponse(_message.Message):
    __slots__ = ("producer_id", "producer_epoch")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ...) -> None: ...

class KafkaAppendRequest(_message.Message):
    __slots__ = ("topic", "batches", "origin", "keep_segments", "append_time_ms", "aborted")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    KEEP_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    batches: bytes
    origin: KafkaOrigin
    keep_segments: bool
    append_time_ms: int
    aborted: _containers.RepeatedCompositeFieldContainer[KafkaAbortedInfo]
    def __init__(self, topic: _Optional[str] = ..., batches: _Optional[bytes] = ..., origin: _Optional[_Union[KafkaOrigin, str]] = ..., keep_segments: _Optional[bool] = ..., append_time_ms: _Optional[int] = ..., aborted: _Optional[_Iterable[_Union[KafkaAbortedInfo, _Mapping]]] = ...) -> None: ...

class KafkaAppendResponse(_message.Message):
    __slots__ = ("first_offsets", "last_offsets", "log_append_time_ms")
    FIRST_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    LOG_APPEND_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    first_offsets: _containers.RepeatedScalarFieldContainer[int]
    last_offsets: _containers.RepeatedScalarFieldContainer[int]
    log_append_time_ms: int
    def __init__(self, first_offsets: _Optional[_Iterable[int]] = ..., last_offsets: _Optional[_Iterable[int]] = ..., log_append_time_ms: _Optional[int] = ...) -> None: ...

class EndTransactionRequest(_message.Message):
    __slots__ = ("topic", "producer_id", "producer_epoch", "commit", "timestamp_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    producer_id: int
    producer_epoch: int
    commit: bool
    timestamp_ms: int
    def __init__(self, topic: _Optional[str] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., commit: _Optional[bool] = ..., timestamp_ms: _Optional[int] = ...) -> None: ...

class DescribeLogRequest(_message.Message):
    __slots__ = ("topic", "batches", "batches_from", "batches_bytes_max", "batches_only", "lists_from", "lists_max")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FROM_FIELD_NUMBER: _ClassVar[int]
    BATCHES_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    BATCHES_ONLY_FIELD_NUMBER: _ClassVar[int]
    LISTS_FROM_FIELD_NUMBER: _ClassVar[int]
    LISTS_MAX_FIELD_NUMBER: _ClassVar[int]
    topic: str
    batches: bool
    batches_from: int
    batches_bytes_max: int
    batches_only: bool
    lists_from: str
    lists_max: int
    def __init__(self, topic: _Optional[str] = ..., batches: _Optional[bool] = ..., batches_from: _Optional[int] = ..., batches_bytes_max: _Optional[int] = ..., batches_only: _Optional[bool] = ..., lists_from: _Optional[str] = ..., lists_max: _Optional[int] = ...) -> None: ...

class DescribeLogResponse(_message.Message):
    __slots__ = ("log_start_offset", "log_end_offset", "high_watermark", "last_stable_offset", "checkpoint", "segments", "batches", "producers", "aborted", "cleaning_state", "uncleanable_reason", "more_from", "uncleanable_kind", "more_lists", "known_producers")
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LAST_STABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    CLEANING_STATE_FIELD_NUMBER: _ClassVar[int]
    UNCLEANABLE_REASON_FIELD_NUMBER: _ClassVar[int]
    MORE_FROM_FIELD_NUMBER: _ClassVar[int]
    UNCLEANABLE_KIND_FIELD_NUMBER: _ClassVar[int]
    MORE_LISTS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    checkpoint: int
    segments: _containers.RepeatedCompositeFieldContainer[KafkaSegmentInfo]
    batches: _containers.RepeatedCompositeFieldContainer[KafkaBatchInfo]
    producers: _containers.RepeatedCompositeFieldContainer[KafkaProducerInfo]
    aborted: _containers.RepeatedCompositeFieldContainer[KafkaAbortedInfo]
    cleaning_state: str
    uncleanable_reason: str
    more_from: int
    uncleanable_kind: str
    more_lists: str
    known_producers: int
    def __init__(self, log_start_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., last_stable_offset: _Optional[int] = ..., checkpoint: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[KafkaSegmentInfo, _Mapping]]] = ..., batches: _Optional[_Iterable[_Union[KafkaBatchInfo, _Mapping]]] = ..., producers: _Optional[_Iterable[_Union[KafkaProducerInfo, _Mapping]]] = ..., aborted: _Optional[_Iterable[_Union[KafkaAbortedInfo, _Mapping]]] = ..., cleaning_state: _Optional[str] = ..., uncleanable_reason: _Optional[str] = ..., more_from: _Optional[int] = ..., uncleanable_kind: _Optional[str] = ..., more_lists: _Optional[str] = ..., known_producers: _Optional[int] = ...) -> None: ...

class KafkaSegmentInfo(_message.Message):
    __slots__ = ("base_offset", "next_offset", "size_bytes", "largest_timestamp_ms", "modified_ms", "is_active", "is_cleaned", "offset_index_bytes", "time_index_bytes", "ledger_ids")
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LARGEST_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_MS_FIELD_NUMBER: _ClassVar[int]
    IS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    IS_CLEANED_FIELD_NUMBER: _ClassVar[int]
    OFFSET_INDEX_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIME_INDEX_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEDGER_IDS_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    modified_ms: int
    is_active: bool
    is_cleaned: bool
    offset_index_bytes: int
    time_index_bytes: int
    ledger_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, base_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., size_bytes: _Optional[int] = ..., largest_timestamp_ms: _Optional[int] = ..., modified_ms: _Optional[int] = ..., is_active: _Optional[bool] = ..., is_cleaned: _Optional[bool] = ..., offset_index_bytes: _Optional[int] = ..., time_index_bytes: _Optional[int] = ..., ledger_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class KafkaBatchInfo(_message.Message):
    __slots__ = ("batch",)
    BATCH_FIELD_NUMBER: _ClassVar[int]
    batch: bytes
    def __init__(self, batch: _Optional[bytes] = ...) -> None: ...

class KafkaProducerInfo(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "last_sequence", "last_data_offset", "last_timestamp_ms", "transaction_first_offset", "last_offset_delta", "coordinator_epoch", "is_forgotten")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_DATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_DELTA_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_data_offset: int
    last_timestamp_ms: int
    transaction_first_offset: int
    last_offset_delta: int
    coordinator_epoch: int
    is_forgotten: bool
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., last_sequence: _Optional[int] = ..., last_data_offset: _Optional[int] = ..., last_timestamp_ms: _Optional[int] = ..., transaction_first_offset: _Optional[int] = ..., last_offset_delta: _Optional[int] = ..., coordinator_epoch: _Optional[int] = ..., is_forgotten: _Optional[bool] = ...) -> None: ...

class KafkaAbortedInfo(_message.Message):
    __slots__ = ("producer_id", "first_offset", "last_offset", "last_stable_offset")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_STABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    def __init__(self, producer_id: _Optional[int] = ..., first_offset: _Optional[int] = ..., last_offset: _Optional[int] = ..., last_stable_offset: _Optional[int] = ...) -> None: ...

class RollSegmentRequest(_message.Message):
    __slots__ = ("topic", "base_offset", "empty_modified_ms", "modified_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EMPTY_MODIFIED_MS_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    base_offset: int
    empty_modified_ms: int
    modified_ms: int
    def __init__(self, topic: _Optional[str] = ..., base_offset: _Optional[int] = ..., empty_modified_ms: _Optional[int] = ..., modified_ms: _Optional[int] = ...) -> None: ...

class RollSegmentResponse(_message.Message):
    __slots__ = ("base_offset",)
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    def __init__(self, base_offset: _Optional[int] = ...) -> None: ...

class SetLogStartRequest(_message.Message):
    __slots__ = ("topic", "offset", "as_follower")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    AS_FOLLOWER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    offset: int
    as_follower: bool
    def __init__(self, topic: _Optional[str] = ..., offset: _Optional[int] = ..., as_follower: _Optional[bool] = ...) -> None: ...

class SetLogStartResponse(_message.Message):
    __slots__ = ("log_start_offset",)
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    log_start_offset: int
    def __init__(self, log_start_offset: _Optional[int] = ...) -> None: ...

class SetHighWatermarkRequest(_message.Message):
    __slots__ = ("topic", "offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    offset: int
    def __init__(self, topic: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class SetHighWatermarkResponse(_message.Message):
    __slots__ = ("high_watermark",)
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    high_watermark: int
    def __init__(self, high_watermark: _Optional[int] = ...) -> None: ...

class TruncateLogRequest(_message.Message):
    __slots__ = ("topic", "offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    offset: int
    def __init__(self, topic: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class TruncateLogResponse(_message.Message):
    __slots__ = ("log_end_offset", "log_start_offset", "checkpoint")
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    log_end_offset: int
    log_start_offset: int
    checkpoint: int
    def __init__(self, log_end_offset: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., checkpoint: _Optional[int] = ...) -> None: ...

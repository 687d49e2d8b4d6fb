from ledgerfold.v1 import admin_pb2 as _admin_pb2
from ledgerfold.v1 import records_pb2 as _records_pb2
from ledgerfold.v1 import what_if_pb2 as _what_if_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CompactionPlan(_message.Message):
    __slots__ = ("run_id", "topic", "strategy", "strategy_version", "strategy_settings", "time_ms", "renumber_batches", "retain_null_key", "ledgers_dir", "segments", "compacted_segments", "ledger_id", "horizon_previous", "horizon", "segment_bytes_max", "retention_floor", "keeps_segments", "segment_garbage_max", "unsized_empties_survive", "has_pulsar_entries", "crash_at")
    class StrategySettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_VERSION_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_SETTINGS_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    RENUMBER_BATCHES_FIELD_NUMBER: _ClassVar[int]
    RETAIN_NULL_KEY_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_DIR_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    HORIZON_PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FLOOR_FIELD_NUMBER: _ClassVar[int]
    KEEPS_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_GARBAGE_MAX_FIELD_NUMBER: _ClassVar[int]
    UNSIZED_EMPTIES_SURVIVE_FIELD_NUMBER: _ClassVar[int]
    HAS_PULSAR_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    CRASH_AT_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    topic: str
    strategy: str
    strategy_version: int
    strategy_settings: _containers.ScalarMap[str, str]
    time_ms: int
    renumber_batches: bool
    retain_null_key: bool
    ledgers_dir: str
    segments: _containers.RepeatedCompositeFieldContainer[_records_pb2.SegmentRecord]
    compacted_segments: int
    ledger_id: int
    horizon_previous: _records_pb2.Position
    horizon: _records_pb2.Position
    segment_bytes_max: int
    retention_floor: _records_pb2.Position
    keeps_segments: bool
    segment_garbage_max: float
    unsized_empties_survive: bool
    has_pulsar_entries: bool
    crash_at: str
    def __init__(self, run_id: _Optional[str] = ..., topic: _Optional[str] = ..., strategy: _Optional[str] = ..., strategy_version: _Optional[int] = ..., strategy_settings: _Optional[_Mapping[str, str]] = ..., time_ms: _Optional[int] = ..., renumber_batches: _Optional[bool] = ..., retain_null_key: _Optional[bool] = ..., ledgers_dir: _Optional[str] = ..., segments: _Optional[_Iterable[_Union[_records_pb2.SegmentRecord, _Mapping]]] = ..., compacted_segments: _Optional[int] = ..., ledger_id: _Optional[int] = ..., horizon_previous: _Optional[_Union[_records_pb2.Position, _Mapping]] = ..., horizon: _Optional[_Union[_records_pb2.Position, _Mapping]] = ..., segment_bytes_max: _Optional[int] = ..., retention_floor: _Optional[_Union[_records_pb2.Position, _Mapping]] = ..., keeps_segments: _Optional[bool] = ..., segment_garbage_max: _Optional[float] = ..., unsized_empties_survive: _Optional[bool] = ..., has_pulsar_entries: _Optional[bool] = ..., crash_at: _Optional[str] = ...) -> None: ...

class RunRequest(_message.Message):
    __slots__ = ("plan", "plan_with_vectors")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    PLAN_WITH_VECTORS_FIELD_NUMBER: _ClassVar[int]
    plan: CompactionPlan
    plan_with_vectors: CompactionPlan
    def __init__(self, plan: _Optional[_Union[CompactionPlan, _Mapping]] = ..., plan_with_vectors: _Optional[_Union[CompactionPlan, _Mapping]] = ...) -> None: ...

class RunResponse(_message.Message):
    __slots__ = ("progress", "manifest")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    progress: _admin_pb2.CompactionProgress
    manifest: Manifest
    def __init__(self, progress: _Optional[_Union[_admin_pb2.CompactionProgress, _Mapping]] = ..., manifest: _Optional[_Union[Manifest, _Mapping]] = ...) -> None: ...

class Manifest(_message.Message):
    __slots__ = ("run_id", "ledger_id", "horizon", "segments", "counts", "strategy_version", "engine")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_VERSION_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    ledger_id: int
    horizon: _records_pb2.Position
    segments: _containers.RepeatedCompositeFieldContainer[_records_pb2.SegmentRecord]
    counts: _records_pb2.RunCounts
    strategy_version: str
    engine: str
    def __init__(self, run_id: _Optional[str] = ..., ledger_id: _Optional[int] = ..., horizon: _Optional[_Union[_records_pb2.Position, _Mapping]] = ..., segments: _Optional[_Iterable[_Union[_records_pb2.SegmentRecord, _Mapping]]] = ..., counts: _Optional[_Union[_records_pb2.RunCounts, _Mapping]] = ..., strategy_version: _Optional[str] = ..., engine: _Optional[str] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ("found",)
    FOUND_FIELD_NUMBER: _ClassVar[int]
    found: bool
    def __init__(self, found: _Optional[bool] = ...) -> None: ...

class GetCompactorInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCompactorInfoResponse(_message.Message):
    __slots__ = ("version", "spark_version", "java_version", "spark_master", "pid", "engine")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SPARK_VERSION_FIELD_NUMBER: _ClassVar[int]
    JAVA_VERSION_FIELD_NUMBER: _ClassVar[int]
    SPARK_MASTER_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    version: str
    spark_version: str
    java_version: str
    spark_master: str
    pid: int
    engine: str
    def __init__(self, version: _Optional[str] = ..., spark_version: _Optional[str] = ..., java_version: _Optional[str] = ..., spark_master: _Optional[str] = ..., pid: _Optional[int] = ..., engine: _Optional[str] = ...) -> None: ...

class AnalyzeRequest(_message.Message):
    __slots__ = ("plan", "strategies", "differences_max", "history", "replays", "kafka", "plan_with_vectors")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    STRATEGIES_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_MAX_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    REPLAYS_FIELD_NUMBER: _ClassVar[int]
    KAFKA_FIELD_NUMBER: _ClassVar[int]
    PLAN_WITH_VECTORS_FIELD_NUMBER: _ClassVar[int]
    plan: CompactionPlan
    strategies: _containers.RepeatedCompositeFieldContainer[_records_pb2.CompactionStrategy]
    differences_max: int
    history: CompactionPlan
    replays: _containers.RepeatedCompositeFieldContainer[_what_if_pb2.ReplaySetting]
    kafka: KafkaHistory
    plan_with_vectors: CompactionPlan
    def __init__(self, plan: _Optional[_Union[CompactionPlan, _Mapping]] = ..., strategies: _Optional[_Iterable[_Union[_records_pb2.CompactionStrategy, _Mapping]]] = ..., differences_max: _Optional[int] = ..., history: _Optional[_Union[CompactionPlan, _Mapping]] = ..., replays: _Optional[_Iterable[_Union[_what_if_pb2.ReplaySetting, _Mapping]]] = ..., kafka: _Optional[_Union[KafkaHistory, _Mapping]] = ..., plan_with_vectors: _Optional[_Union[CompactionPlan, _Mapping]] = ...) -> None: ...

class KafkaHistory(_message.Message):
    __slots__ = ("topic", "ledgers_dir", "segments", "log_start_offset", "aborted", "settings")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_DIR_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    ledgers_dir: str
    segments: _containers.RepeatedCompositeFieldContainer[CleanSegment]
    log_start_offset: int
    aborted: _containers.RepeatedCompositeFieldContainer[_records_pb2.AbortedTransaction]
    settings: _containers.RepeatedCompositeFieldContainer[CleanerSettings]
    def __init__(self, topic: _Optional[str] = ..., ledgers_dir: _Optional[str] = ..., segments: _Optional[_Iterable[_Union[CleanSegment, _Mapping]]] = ..., log_start_offset: _Optional[int] = ..., aborted: _Optional[_Iterable[_Union[_records_pb2.AbortedTransaction, _Mapping]]] = ..., settings: _Optional[_Iterable[_Union[CleanerSettings, _Mapping]]] = ...) -> None: ...

class CleanerSettings(_message.Message):
    __slots__ = ("trial", "is_deleted", "min_cleanable_ratio", "min_compaction_lag_ms", "max_compaction_lag_ms", "delete_retention_ms", "segment_bytes", "roll_ms", "index_bytes_max", "index_interval_bytes", "retention_ms", "retention_bytes", "backoff_ms", "keys_max", "producer_expiration_ms")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    IS_DELETED_FIELD_NUMBER: _ClassVar[int]
    MIN_CLEANABLE_RATIO_FIELD_NUMBER: _ClassVar[int]
    MIN_COMPACTION_LAG_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_COMPACTION_LAG_MS_FIELD_NUMBER: _ClassVar[int]
    DELETE_RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROLL_MS_FIELD_NUMBER: _ClassVar[int]
    INDEX_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    INDEX_INTERVAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_MS_FIELD_NUMBER: _ClassVar[int]
    KEYS_MAX_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EXPIRATION_MS_FIELD_NUMBER: _ClassVar[int]
    trial: _what_if_pb2.CleaningTrial
    is_deleted: bool
    min_cleanable_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    delete_retention_ms: int
    segment_bytes: int
    roll_ms: int
    index_bytes_max: int
    index_interval_bytes: int
    retention_ms: int
    retention_bytes: int
    backoff_ms: int
    keys_max: int
    producer_expiration_ms: int
    def __init__(self, trial: _Optional[_Union[_what_if_pb2.CleaningTrial, _Mapping]] = ..., is_deleted: _Optional[bool] = ..., min_cleanable_ratio: _Optional[float] = ..., min_compaction_lag_ms: _Optional[int] = ..., max_compaction_lag_ms: _Optional[int] = ..., delete_retention_ms: _Optional[int] = ..., segment_bytes: _Optional[int] = ..., roll_ms: _Optional[int] = ..., index_bytes_max: _Optional[int] = ..., index_interval_bytes: _Optional[int] = ..., retention_ms: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., backoff_ms: _Optional[int] = ..., keys_max: _Optional[int] = ..., producer_expiration_ms: _Optional[int] = ...) -> None: ...

class AnalyzeResponse(_message.Message):
    __slots__ = ("found",)
    FOUND_FIELD_NUMBER: _ClassVar[int]
    found: _what_if_pb2.TopicWhatIf
    def __init__(self, found: _Optional[_Union[_what_if_pb2.TopicWhatIf, _Mapping]] = ...) -> None: ...

class CheckStrategyRequest(_message.Message):
    __slots__ = ("strategy",)
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    strategy: _records_pb2.CompactionStrategy
    def __init__(self, strategy: _Optional[_Union[_records_pb2.CompactionStrategy, _Mapping]] = ...) -> None: ...

class CheckStrategyResponse(_message.Message):
    __slots__ = ("name", "version", "kind")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    kind: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., kind: _Optional[str] = ...) -> None: ...

class DescribeDecisionsRequest(_message.Message):
    __slots__ = ("strategy", "messages")
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    strategy: _records_pb2.CompactionStrategy
    messages: _containers.RepeatedCompositeFieldContainer[DecisionMessage]
    def __init__(self, strategy: _Optional[_Union[_records_pb2.CompactionStrategy, _Mapping]] = ..., messages: _Optional[_Iterable[_Union[DecisionMessage, _Mapping]]] = ...) -> None: ...

class DecisionMessage(_message.Message):
    __slots__ = ("key", "value", "properties", "event_time_ms", "publish_time_ms", "id")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    properties: _containers.ScalarMap[str, str]
    event_time_ms: int
    publish_time_ms: int
    id: _records_pb2.MessageId
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., properties: _Optional[_Mapping[str, str]] = ..., event_time_ms: _Optional[int] = ..., publish_time_ms: _Optional[int] = ..., id: _Optional[_Union[_records_pb2.MessageId, _Mapping]] = ...) -> None: ...

class DescribeDecisionsResponse(_message.Message):
    __slots__ = ("choices", "why")
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    choices: _containers.RepeatedCompositeFieldContainer[DescribedDecision]
    why: str
    def __init__(self, choices: _Optional[_Iterable[_Union[DescribedDecision, _Mapping]]] = ..., why: _Optional[str] = ...) -> None: ...

class DescribedDecision(_message.Message):
    __slots__ = ("left", "right", "words")
    LEFT_FIELD_NUMBER: _ClassVar[int]
    RIGHT_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    left: int
    right: int
    words: str
    def __init__(self, left: _Optional[int] = ..., right: _Optional[int] = ..., words: _Optional[str] = ...) -> None: ...

class CleanPlan(_message.Message):
    __slots__ = ("run_id", "topic", "ledgers_dir", "segment_bytes_max", "segments", "log_start_offset", "first_dirty_offset", "upper_bound", "time_ms", "delete_retention_ms", "keys_max", "log_segment_bytes", "index_bytes_max", "index_interval_bytes", "producers", "aborted", "ledger_ids", "dry_run", "map_reopens_aborted", "full_index_fails_round", "io_bytes_per_second")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_DIR_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FIRST_DIRTY_OFFSET_FIELD_NUMBER: _ClassVar[int]
    UPPER_BOUND_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    DELETE_RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    KEYS_MAX_FIELD_NUMBER: _ClassVar[int]
    LOG_SEGMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    INDEX_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    INDEX_INTERVAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    LEDGER_IDS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    MAP_REOPENS_ABORTED_FIELD_NUMBER: _ClassVar[int]
    FULL_INDEX_FAILS_ROUND_FIELD_NUMBER: _ClassVar[int]
    IO_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    topic: str
    ledgers_dir: str
    segment_bytes_max: int
    segments: _containers.RepeatedCompositeFieldContainer[CleanSegment]
    log_start_offset: int
    first_dirty_offset: int
    upper_bound: int
    time_ms: int
    delete_retention_ms: int
    keys_max: int
    log_segment_bytes: int
    index_bytes_max: int
    index_interval_bytes: int
    producers: _containers.RepeatedCompositeFieldContainer[ActiveProducer]
    aborted: _containers.RepeatedCompositeFieldContainer[_records_pb2.AbortedTransaction]
    ledger_ids: _containers.RepeatedScalarFieldContainer[int]
    dry_run: bool
    map_reopens_aborted: bool
    full_index_fails_round: bool
    io_bytes_per_second: float
    def __init__(self, run_id: _Optional[str] = ..., topic: _Optional[str] = ..., ledgers_dir: _Optional[str] = ..., segment_bytes_max: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[CleanSegment, _Mapping]]] = ..., log_start_offset: _Optional[int] = ..., first_dirty_offset: _Optional[int] = ..., upper_bound: _Optional[int] = ..., time_ms: _Optional[int] = ..., delete_retention_ms: _Optional[int] = ..., keys_max: _Optional[int] = ..., log_segment_bytes: _Optional[int] = ..., index_bytes_max: _Optional[int] = ..., index_interval_bytes: _Optional[int] = ..., producers: _Optional[_Iterable[_Union[ActiveProducer, _Mapping]]] = ..., aborted: _Optional[_Iterable[_Union[_records_pb2.AbortedTransaction, _Mapping]]] = ..., ledger_ids: _Optional[_Iterable[int]] = ..., dry_run: _Optional[bool] = ..., map_reopens_aborted: _Optional[bool] = ..., full_index_fails_round: _Optional[bool] = ..., io_bytes_per_second: _Optional[float] = ...) -> None: ...

class CleanSegment(_message.Message):
    __slots__ = ("base_offset", "next_base_offset", "is_cleaned", "files", "size_bytes", "offset_index_bytes", "time_index_bytes")
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    IS_CLEANED_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    OFFSET_INDEX_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIME_INDEX_BYTES_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    next_base_offset: int
    is_cleaned: bool
    files: _containers.RepeatedCompositeFieldContainer[_records_pb2.SegmentRecord]
    size_bytes: int
    offset_index_bytes: int
    time_index_bytes: int
    def __init__(self, base_offset: _Optional[int] = ..., next_base_offset: _Optional[int] = ..., is_cleaned: _Optional[bool] = ..., files: _Optional[_Iterable[_Union[_records_pb2.SegmentRecord, _Mapping]]] = ..., size_bytes: _Optional[int] = ..., offset_index_bytes: _Optional[int] = ..., time_index_bytes: _Optional[int] = ...) -> None: ...

class ActiveProducer(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "last_data_offset")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_DATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    last_data_offset: int
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., last_data_offset: _Optional[int] = ...) -> None: ...

class CleanRequest(_message.Message):
    __slots__ = ("plan",)
    PLAN_FIELD_NUMBER: _ClassVar[int]
    plan: CleanPlan
    def __init__(self, plan: _Optional[_Union[CleanPlan, _Mapping]] = ...) -> None: ...

class CleanResponse(_message.Message):
    __slots__ = ("progress", "manifest")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    progress: _admin_pb2.CompactionProgress
    manifest: CleanManifest
    def __init__(self, progress: _Optional[_Union[_admin_pb2.CompactionProgress, _Mapping]] = ..., manifest: _Optional[_Union[CleanManifest, _Mapping]] = ...) -> None: ...

class CleanManifest(_message.Message):
    __slots__ = ("run_id", "end_offset", "groups", "stats", "map", "failure")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    MAP_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    end_offset: int
    groups: _containers.RepeatedCompositeFieldContainer[CleanedGroup]
    stats: CleanStats
    map: _containers.RepeatedCompositeFieldContainer[MappedKey]
    failure: str
    def __init__(self, run_id: _Optional[str] = ..., end_offset: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[CleanedGroup, _Mapping]]] = ..., stats: _Optional[_Union[CleanStats, _Mapping]] = ..., map: _Optional[_Iterable[_Union[MappedKey, _Mapping]]] = ..., failure: _Optional[str] = ...) -> None: ...

class MappedKey(_message.Message):
    __slots__ = ("key", "offset")
    KEY_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    offset: int
    def __init__(self, key: _Optional[bytes] = ..., offset: _Optional[int] = ...) -> None: ...

class CleanedGroup(_message.Message):
    __slots__ = ("ledger_id", "base_offset", "source_segments", "files", "size_bytes", "batches", "next_offset", "max_timestamp_ms", "max_timestamp_offset", "first_batch_timestamp_ms", "offset_index_bytes", "time_index_bytes", "aborted")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SOURCE_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FIRST_BATCH_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_INDEX_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIME_INDEX_BYTES_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    base_offset: int
    source_segments: int
    files: _containers.RepeatedCompositeFieldContainer[_records_pb2.SegmentRecord]
    size_bytes: int
    batches: int
    next_offset: int
    max_timestamp_ms: int
    max_timestamp_offset: int
    first_batch_timestamp_ms: int
    offset_index_bytes: int
    time_index_bytes: int
    aborted: _containers.RepeatedCompositeFieldContainer[_records_pb2.AbortedTransaction]
    def __init__(self, ledger_id: _Optional[int] = ..., base_offset: _Optional[int] = ..., source_segments: _Optional[int] = ..., files: _Optional[_Iterable[_Union[_records_pb2.SegmentRecord, _Mapping]]] = ..., size_bytes: _Optional[int] = ..., batches: _Optional[int] = ..., next_offset: _Optional[int] = ..., max_timestamp_ms: _Optional[int] = ..., max_timestamp_offset: _Optional[int] = ..., first_batch_timestamp_ms: _Optional[int] = ..., offset_index_bytes: _Optional[int] = ..., time_index_bytes: _Optional[int] = ..., aborted: _Optional[_Iterable[_Union[_records_pb2.AbortedTransaction, _Mapping]]] = ...) -> None: ...

class CleanStats(_message.Message):
    __slots__ = ("map_keys", "map_messages_read", "messages_read", "messages_written", "bytes_read", "bytes_written", "invalid_messages_read", "map_ms", "copy_ms", "worker_peak_bytes")
    MAP_KEYS_FIELD_NUMBER: _ClassVar[int]
    MAP_MESSAGES_READ_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_READ_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    BYTES_READ_FIELD_NUMBER: _ClassVar[int]
    BYTES_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    INVALID_MESSAGES_READ_FIELD_NUMBER: _ClassVar[int]
    MAP_MS_FIELD_NUMBER: _ClassVar[int]
    COPY_MS_FIELD_NUMBER: _ClassVar[int]
    WORKER_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    map_keys: int
    map_messages_read: int
    messages_read: int
    messages_written: int
    bytes_read: int
    bytes_written: int
    invalid_messages_read: int
    map_ms: int
    copy_ms: int
    worker_peak_bytes: int
    def __init__(self, map_keys: _Optional[int] = ..., map_messages_read: _Optional[int] = ..., messages_read: _Optional[int] = ..., messages_written: _Optional[int] = ..., bytes_read: _Optional[int] = ..., bytes_written: _Optional[int] = ..., invalid_messages_read: _Optional[int] = ..., map_ms: _Optional[int] = ..., copy_ms: _Optional[int] = ..., worker_peak_bytes: _Optional[int] = ...) -> None: ...

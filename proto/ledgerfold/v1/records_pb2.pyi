from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LedgerKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEDGER_KIND_UNSPECIFIED: _ClassVar[LedgerKind]
    LEDGER_KIND_RAW: _ClassVar[LedgerKind]
    LEDGER_KIND_COMPACTED: _ClassVar[LedgerKind]

class LedgerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEDGER_STATE_UNSPECIFIED: _ClassVar[LedgerState]
    LEDGER_STATE_OPEN: _ClassVar[LedgerState]
    LEDGER_STATE_CLOSED: _ClassVar[LedgerState]
    LEDGER_STATE_DELETING: _ClassVar[LedgerState]

class SchemaCompatibilityStrategy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCHEMA_COMPATIBILITY_STRATEGY_UNSPECIFIED: _ClassVar[SchemaCompatibilityStrategy]
    SCHEMA_COMPATIBILITY_STRATEGY_ALWAYS_INCOMPATIBLE: _ClassVar[SchemaCompatibilityStrategy]
    SCHEMA_COMPATIBILITY_STRATEGY_ALWAYS_COMPATIBLE: _ClassVar[SchemaCompatibilityStrategy]
    SCHEMA_COMPATIBILITY_STRATEGY_BACKWARD: _ClassVar[SchemaCompatibilityStrategy]
    SCHEMA_COMPATIBILITY_STRATEGY_FORWARD: _ClassVar[SchemaCompatibilityStrategy]
    SCHEMA_COMPATIBILITY_STRATEGY_FULL: _ClassVar[SchemaCompatibilityStrategy]
    SCHEMA_COMPATIBILITY_STRATEGY_BACKWARD_TRANSITIVE: _ClassVar[SchemaCompatibilityStrategy]
    SCHEMA_COMPATIBILITY_STRATEGY_FORWARD_TRANSITIVE: _ClassVar[SchemaCompatibilityStrategy]
    SCHEMA_COMPATIBILITY_STRATEGY_FULL_TRANSITIVE: _ClassVar[SchemaCompatibilityStrategy]

class SchemaType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCHEMA_TYPE_NONE: _ClassVar[SchemaType]
    SCHEMA_TYPE_STRING: _ClassVar[SchemaType]
    SCHEMA_TYPE_JSON: _ClassVar[SchemaType]
    SCHEMA_TYPE_PROTOBUF: _ClassVar[SchemaType]
    SCHEMA_TYPE_AVRO: _ClassVar[SchemaType]
    SCHEMA_TYPE_BOOLEAN: _ClassVar[SchemaType]
    SCHEMA_TYPE_INT8: _ClassVar[SchemaType]
    SCHEMA_TYPE_INT16: _ClassVar[SchemaType]
    SCHEMA_TYPE_INT32: _ClassVar[SchemaType]
    SCHEMA_TYPE_INT64: _ClassVar[SchemaType]
    SCHEMA_TYPE_FLOAT: _ClassVar[SchemaType]
    SCHEMA_TYPE_DOUBLE: _ClassVar[SchemaType]
    SCHEMA_TYPE_DATE: _ClassVar[SchemaType]
    SCHEMA_TYPE_TIME: _ClassVar[SchemaType]
    SCHEMA_TYPE_TIMESTAMP: _ClassVar[SchemaType]
    SCHEMA_TYPE_KEY_VALUE: _ClassVar[SchemaType]
    SCHEMA_TYPE_INSTANT: _ClassVar[SchemaType]
    SCHEMA_TYPE_LOCAL_DATE: _ClassVar[SchemaType]
    SCHEMA_TYPE_LOCAL_TIME: _ClassVar[SchemaType]
    SCHEMA_TYPE_LOCAL_DATE_TIME: _ClassVar[SchemaType]
    SCHEMA_TYPE_PROTOBUF_NATIVE: _ClassVar[SchemaType]

class BacklogPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BACKLOG_POLICY_PRODUCER_REQUEST_HOLD: _ClassVar[BacklogPolicy]
    BACKLOG_POLICY_PRODUCER_EXCEPTION: _ClassVar[BacklogPolicy]
    BACKLOG_POLICY_CONSUMER_BACKLOG_EVICTION: _ClassVar[BacklogPolicy]

class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTION_UNSPECIFIED: _ClassVar[Action]
    ACTION_PRODUCE: _ClassVar[Action]
    ACTION_CONSUME: _ClassVar[Action]

class RunState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_STATE_UNSPECIFIED: _ClassVar[RunState]
    RUN_STATE_QUEUED: _ClassVar[RunState]
    RUN_STATE_RUNNING: _ClassVar[RunState]
    RUN_STATE_SUCCESS: _ClassVar[RunState]
    RUN_STATE_ERROR: _ClassVar[RunState]
    RUN_STATE_CANCELLED: _ClassVar[RunState]

class RunTrigger(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_TRIGGER_UNSPECIFIED: _ClassVar[RunTrigger]
    RUN_TRIGGER_ADMIN: _ClassVar[RunTrigger]
    RUN_TRIGGER_THRESHOLD: _ClassVar[RunTrigger]
LEDGER_KIND_UNSPECIFIED: LedgerKind
LEDGER_KIND_RAW: LedgerKind
LEDGER_KIND_COMPACTED: LedgerKind
LEDGER_STATE_UNSPECIFIED: LedgerState
LEDGER_STATE_OPEN: LedgerState
LEDGER_STATE_CLOSED: LedgerState
LEDGER_STATE_DELETING: LedgerState
SCHEMA_COMPATIBILITY_STRATEGY_UNSPECIFIED: SchemaCompatibilityStrategy
SCHEMA_COMPATIBILITY_STRATEGY_ALWAYS_INCOMPATIBLE: SchemaCompatibilityStrategy
SCHEMA_COMPATIBILITY_STRATEGY_ALWAYS_COMPATIBLE: SchemaCompatibilityStrategy
SCHEMA_COMPATIBILITY_STRATEGY_BACKWARD: SchemaCompatibilityStrategy
SCHEMA_COMPATIBILITY_STRATEGY_FORWARD: SchemaCompatibilityStrategy
SCHEMA_COMPATIBILITY_STRATEGY_FULL: SchemaCompatibilityStrategy
SCHEMA_COMPATIBILITY_STRATEGY_BACKWARD_TRANSITIVE: SchemaCompatibilityStrategy
SCHEMA_COMPATIBILITY_STRATEGY_FORWARD_TRANSITIVE: SchemaCompatibilityStrategy
SCHEMA_COMPATIBILITY_STRATEGY_FULL_TRANSITIVE: SchemaCompatibilityStrategy
SCHEMA_TYPE_NONE: SchemaType
SCHEMA_TYPE_STRING: SchemaType
SCHEMA_TYPE_JSON: SchemaType
SCHEMA_TYPE_PROTOBUF: SchemaType
SCHEMA_TYPE_AVRO: SchemaType
SCHEMA_TYPE_BOOLEAN: SchemaType
SCHEMA_TYPE_INT8: SchemaType
SCHEMA_TYPE_INT16: SchemaType
SCHEMA_TYPE_INT32: SchemaType
SCHEMA_TYPE_INT64: SchemaType
SCHEMA_TYPE_FLOAT: SchemaType
SCHEMA_TYPE_DOUBLE: SchemaType
SCHEMA_TYPE_DATE: SchemaType
SCHEMA_TYPE_TIME: SchemaType
SCHEMA_TYPE_TIMESTAMP: SchemaType
SCHEMA_TYPE_KEY_VALUE: SchemaType
SCHEMA_TYPE_INSTANT: SchemaType
SCHEMA_TYPE_LOCAL_DATE: SchemaType
SCHEMA_TYPE_LOCAL_TIME: SchemaType
SCHEMA_TYPE_LOCAL_DATE_TIME: SchemaType
SCHEMA_TYPE_PROTOBUF_NATIVE: SchemaType
BACKLOG_POLICY_PRODUCER_REQUEST_HOLD: BacklogPolicy
BACKLOG_POLICY_PRODUCER_EXCEPTION: BacklogPolicy
BACKLOG_POLICY_CONSUMER_BACKLOG_EVICTION: BacklogPolicy
ACTION_UNSPECIFIED: Action
ACTION_PRODUCE: Action
ACTION_CONSUME: Action
RUN_STATE_UNSPECIFIED: RunState
RUN_STATE_QUEUED: RunState
RUN_STATE_RUNNING: RunState
RUN_STATE_SUCCESS: RunState
RUN_STATE_ERROR: RunState
RUN_STATE_CANCELLED: RunState
RUN_TRIGGER_UNSPECIFIED: RunTrigger
RUN_TRIGGER_ADMIN: RunTrigger
RUN_TRIGGER_THRESHOLD: RunTrigger

class Position(_message.Message):
    __slots__ = ("ledger_id", "entry_id")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entry_id: int
    def __init__(self, ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ...) -> None: ...

class MessageId(_message.Message):
    __slots__ = ("ledger_id", "entry_id", "batch_index", "partition")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_INDEX_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entry_id: int
    batch_index: int
    partition: int
    def __init__(self, ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ..., batch_index: _Optional[int] = ..., partition: _Optional[int] = ...) -> None: ...

class StoreRecord(_message.Message):
    __slots__ = ("next_ledger_id", "store_version", "next_producer_id", "features", "is_incomplete")
    NEXT_LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_VERSION_FIELD_NUMBER: _ClassVar[int]
    NEXT_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    IS_INCOMPLETE_FIELD_NUMBER: _ClassVar[int]
    next_ledger_id: int
    store_version: int
    next_producer_id: int
    features: _containers.RepeatedScalarFieldContainer[str]
    is_incomplete: bool
    def __init__(self, next_ledger_id: _Optional[int] = ..., store_version: _Optional[int] = ..., next_producer_id: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., is_incomplete: _Optional[bool] = ...) -> None: ...

class WriteCountRecord(_message.Message):
    __slots__ = ("writes",)
    WRITES_FIELD_NUMBER: _ClassVar[int]
    writes: int
    def __init__(self, writes: _Optional[int] = ...) -> None: ...

class SegmentRecord(_message.Message):
    __slots__ = ("path", "sealed", "size_bytes", "entries", "messages", "key_bytes", "first", "last", "publish_time_min_ms", "publish_time_max_ms", "checksum", "append_time_max_ms", "key_index", "dead")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    KEY_BYTES_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_MIN_MS_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_MAX_MS_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIME_MAX_MS_FIELD_NUMBER: _ClassVar[int]
    KEY_INDEX_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    path: str
    sealed: bool
    size_bytes: int
    entries: int
    messages: int
    key_bytes: int
    first: Position
    last: Position
    publish_time_min_ms: int
    publish_time_max_ms: int
    checksum: int
    append_time_max_ms: int
    key_index: KeyIndexRecord
    dead: DeletionVectorRecord
    def __init__(self, path: _Optional[str] = ..., sealed: _Optional[bool] = ..., size_bytes: _Optional[int] = ..., entries: _Optional[int] = ..., messages: _Optional[int] = ..., key_bytes: _Optional[int] = ..., first: _Optional[_Union[Position, _Mapping]] = ..., last: _Optional[_Union[Position, _Mapping]] = ..., publish_time_min_ms: _Optional[int] = ..., publish_time_max_ms: _Optional[int] = ..., checksum: _Optional[int] = ..., append_time_max_ms: _Optional[int] = ..., key_index: _Optional[_Union[KeyIndexRecord, _Mapping]] = ..., dead: _Optional[_Union[DeletionVectorRecord, _Mapping]] = ...) -> None: ...

class KeyIndexRecord(_message.Message):
    __slots__ = ("size_bytes", "checksum", "keyed_messages")
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    KEYED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    checksum: int
    keyed_messages: int
    def __init__(self, size_bytes: _Optional[int] = ..., checksum: _Optional[int] = ..., keyed_messages: _Optional[int] = ...) -> None: ...

class DeletionVectorRecord(_message.Message):
    __slots__ = ("size_bytes", "checksum", "messages", "entries", "bytes", "first", "last")
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    checksum: int
    messages: int
    entries: int
    bytes: int
    first: Position
    last: Position
    def __init__(self, size_bytes: _Optional[int] = ..., checksum: _Optional[int] = ..., messages: _Optional[int] = ..., entries: _Optional[int] = ..., bytes: _Optional[int] = ..., first: _Optional[_Union[Position, _Mapping]] = ..., last: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class LedgerRecord(_message.Message):
    __slots__ = ("ledger_id", "kind", "state", "topic", "segments", "created_ms", "closed_ms", "lost", "damaged", "being_made")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    CLOSED_MS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    BEING_MADE_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    kind: LedgerKind
    state: LedgerState
    topic: str
    segments: _containers.RepeatedCompositeFieldContainer[SegmentRecord]
    created_ms: int
    closed_ms: int
    lost: _containers.RepeatedCompositeFieldContainer[PositionRange]
    damaged: bool
    being_made: bool
    def __init__(self, ledger_id: _Optional[int] = ..., kind: _Optional[_Union[LedgerKind, str]] = ..., state: _Optional[_Union[LedgerState, str]] = ..., topic: _Optional[str] = ..., segments: _Optional[_Iterable[_Union[SegmentRecord, _Mapping]]] = ..., created_ms: _Optional[int] = ..., closed_ms: _Optional[int] = ..., lost: _Optional[_Iterable[_Union[PositionRange, _Mapping]]] = ..., damaged: _Optional[bool] = ..., being_made: _Optional[bool] = ...) -> None: ...

class Policies(_message.Message):
    __slots__ = ("compaction_threshold_bytes", "retention_ms", "retention_bytes", "retain_null_key", "message_ttl_ms", "compaction_strategy", "backlog_size_quota", "backlog_age_quota", "delayed_delivery", "emulation", "schema_compatibility_strategy", "schema_validation_enforced", "allow_auto_update_schema", "deduplication", "max_unacked_messages_per_consumer", "max_unacked_messages_per_subscription")
    COMPACTION_THRESHOLD_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETAIN_NULL_KEY_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    COMPACTION_STRATEGY_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_SIZE_QUOTA_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_AGE_QUOTA_FIELD_NUMBER: _ClassVar[int]
    DELAYED_DELIVERY_FIELD_NUMBER: _ClassVar[int]
    EMULATION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_COMPATIBILITY_STRATEGY_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VALIDATION_ENFORCED_FIELD_NUMBER: _ClassVar[int]
    ALLOW_AUTO_UPDATE_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATION_FIELD_NUMBER: _ClassVar[int]
    MAX_UNACKED_MESSAGES_PER_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    MAX_UNACKED_MESSAGES_PER_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    compaction_threshold_bytes: int
    retention_ms: int
    retention_bytes: int
    retain_null_key: bool
    message_ttl_ms: int
    compaction_strategy: CompactionStrategy
    backlog_size_quota: BacklogQuota
    backlog_age_quota: BacklogQuota
    delayed_delivery: bool
    emulation: Emulation
    schema_compatibility_strategy: SchemaCompatibilityStrategy
    schema_validation_enforced: bool
    allow_auto_update_schema: bool
    deduplication: bool
    max_unacked_messages_per_consumer: int
    max_unacked_messages_per_subscription: int
    def __init__(self, compaction_threshold_bytes: _Optional[int] = ..., retention_ms: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., retain_null_key: _Optional[bool] = ..., message_ttl_ms: _Optional[int] = ..., compaction_strategy: _Optional[_Union[CompactionStrategy, _Mapping]] = ..., backlog_size_quota: _Optional[_Union[BacklogQuota, _Mapping]] = ..., backlog_age_quota: _Optional[_Union[BacklogQuota, _Mapping]] = ..., delayed_delivery: _Optional[bool] = ..., emulation: _Optional[_Union[Emulation, _Mapping]] = ..., schema_compatibility_strategy: _Optional[_Union[SchemaCompatibilityStrategy, str]] = ..., schema_validation_enforced: _Optional[bool] = ..., allow_auto_update_schema: _Optional[bool] = ..., deduplication: _Optional[bool] = ..., max_unacked_messages_per_consumer: _Optional[int] = ..., max_unacked_messages_per_subscription: _Optional[int] = ...) -> None: ...

class SchemaDefinition(_message.Message):
    __slots__ = ("type", "data", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    type: SchemaType
    data: bytes
    properties: _containers.ScalarMap[str, str]
    def __init__(self, type: _Optional[_Union[SchemaType, str]] = ..., data: _Optional[bytes] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SchemaRecord(_message.Message):
    __slots__ = ("topic", "version", "definition", "created_ms", "deleted")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    version: int
    definition: SchemaDefinition
    created_ms: int
    deleted: bool
    def __init__(self, topic: _Optional[str] = ..., version: _Optional[int] = ..., definition: _Optional[_Union[SchemaDefinition, _Mapping]] = ..., created_ms: _Optional[int] = ..., deleted: _Optional[bool] = ...) -> None: ...

class BacklogQuota(_message.Message):
    __slots__ = ("limit_bytes", "limit_ms", "policy")
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_MS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    limit_bytes: int
    limit_ms: int
    policy: BacklogPolicy
    def __init__(self, limit_bytes: _Optional[int] = ..., limit_ms: _Optional[int] = ..., policy: _Optional[_Union[BacklogPolicy, str]] = ...) -> None: ...

class CompactionStrategy(_message.Message):
    __slots__ = ("name", "settings")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Emulation(_message.Message):
    __slots__ = ("profile", "retention_hides_compacted", "lagging_readers_get_tombstones", "skip_run_without_new_data", "seek_by_time_reads_view", "failed_run_blocks_disabling", "trim_without_cursor", "acks_pass_compacted_out", "truncate_drops_compacted", "status_survives_unload", "partitioned_status", "exact_backlog", "compaction_cursor_moves", "strategic_renumbers", "map_reopens_aborted", "full_index_fails_round", "gauges_with_defects", "resends_by_record_time", "unsized_empties_survive")
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    RETENTION_HIDES_COMPACTED_FIELD_NUMBER: _ClassVar[int]
    LAGGING_READERS_GET_TOMBSTONES_FIELD_NUMBER: _ClassVar[int]
    SKIP_RUN_WITHOUT_NEW_DATA_FIELD_NUMBER: _ClassVar[int]
    SEEK_BY_TIME_READS_VIEW_FIELD_NUMBER: _ClassVar[int]
    FAILED_RUN_BLOCKS_DISABLING_FIELD_NUMBER: _ClassVar[int]
    TRIM_WITHOUT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    ACKS_PASS_COMPACTED_OUT_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_DROPS_COMPACTED_FIELD_NUMBER: _ClassVar[int]
    STATUS_SURVIVES_UNLOAD_FIELD_NUMBER: _ClassVar[int]
    PARTITIONED_STATUS_FIELD_NUMBER: _ClassVar[int]
    EXACT_BACKLOG_FIELD_NUMBER: _ClassVar[int]
    COMPACTION_CURSOR_MOVES_FIELD_NUMBER: _ClassVar[int]
    STRATEGIC_RENUMBERS_FIELD_NUMBER: _ClassVar[int]
    MAP_REOPENS_ABORTED_FIELD_NUMBER: _ClassVar[int]
    FULL_INDEX_FAILS_ROUND_FIELD_NUMBER: _ClassVar[int]
    GAUGES_WITH_DEFECTS_FIELD_NUMBER: _ClassVar[int]
    RESENDS_BY_RECORD_TIME_FIELD_NUMBER: _ClassVar[int]
    UNSIZED_EMPTIES_SURVIVE_FIELD_NUMBER: _ClassVar[int]
    profile: str
    retention_hides_compacted: bool
    lagging_readers_get_tombstones: bool
    skip_run_without_new_data: bool
    seek_by_time_reads_view: bool
    failed_run_blocks_disabling: bool
    trim_without_cursor: bool
    acks_pass_compacted_out: bool
    truncate_drops_compacted: bool
    status_survives_unload: bool
    partitioned_status: bool
    exact_backlog: bool
    compaction_cursor_moves: bool
    strategic_renumbers: bool
    map_reopens_aborted: bool
    full_index_fails_round: bool
    gauges_with_defects: bool
    resends_by_record_time: bool
    unsized_empties_survive: bool
    def __init__(self, profile: _Optional[str] = ..., retention_hides_compacted: _Optional[bool] = ..., lagging_readers_get_tombstones: _Optional[bool] = ..., skip_run_without_new_data: _Optional[bool] = ..., seek_by_time_reads_view: _Optional[bool] = ..., failed_run_blocks_disabling: _Optional[bool] = ..., trim_without_cursor: _Optional[bool] = ..., acks_pass_compacted_out: _Optional[bool] = ..., truncate_drops_compacted: _Optional[bool] = ..., status_survives_unload: _Optional[bool] = ..., partitioned_status: _Optional[bool] = ..., exact_backlog: _Optional[bool] = ..., compaction_cursor_moves: _Optional[bool] = ..., strategic_renumbers: _Optional[bool] = ..., map_reopens_aborted: _Optional[bool] = ..., full_index_fails_round: _Optional[bool] = ..., gauges_with_defects: _Optional[bool] = ..., resends_by_record_time: _Optional[bool] = ..., unsized_empties_survive: _Optional[bool] = ...) -> None: ...

class CompactedView(_message.Message):
    __slots__ = ("ledger_id", "horizon", "run_number")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    RUN_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    horizon: Position
    run_number: int
    def __init__(self, ledger_id: _Optional[int] = ..., horizon: _Optional[_Union[Position, _Mapping]] = ..., run_number: _Optional[int] = ...) -> None: ...

class TopicRecord(_message.Message):
    __slots__ = ("name", "created_ms", "ledger_ids", "compacted", "policies", "compaction_cursor", "last_run_number", "epoch", "last_producer_number", "retention_floor", "truncated_upto", "terminated_at", "compaction_moved_to", "kafka", "topic_epoch", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_IDS_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    COMPACTION_CURSOR_FIELD_NUMBER: _ClassVar[int]
    LAST_RUN_NUMBER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_PRODUCER_NUMBER_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FLOOR_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_UPTO_FIELD_NUMBER: _ClassVar[int]
    TERMINATED_AT_FIELD_NUMBER: _ClassVar[int]
    COMPACTION_MOVED_TO_FIELD_NUMBER: _ClassVar[int]
    KAFKA_FIELD_NUMBER: _ClassVar[int]
    TOPIC_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    name: str
    created_ms: int
    ledger_ids: _containers.RepeatedScalarFieldContainer[int]
    compacted: CompactedView
    policies: Policies
    compaction_cursor: bool
    last_run_number: int
    epoch: int
    last_producer_number: int
    retention_floor: Position
    truncated_upto: Position
    terminated_at: Position
    compaction_moved_to: Position
    kafka: KafkaLog
    topic_epoch: int
    properties: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., created_ms: _Optional[int] = ..., ledger_ids: _Optional[_Iterable[int]] = ..., compacted: _Optional[_Union[CompactedView, _Mapping]] = ..., policies: _Optional[_Union[Policies, _Mapping]] = ..., compaction_cursor: _Optional[bool] = ..., last_run_number: _Optional[int] = ..., epoch: _Optional[int] = ..., last_producer_number: _Optional[int] = ..., retention_floor: _Optional[_Union[Position, _Mapping]] = ..., truncated_upto: _Optional[_Union[Position, _Mapping]] = ..., terminated_at: _Optional[_Union[Position, _Mapping]] = ..., compaction_moved_to: _Optional[_Union[Position, _Mapping]] = ..., kafka: _Optional[_Union[KafkaLog, _Mapping]] = ..., topic_epoch: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class KafkaLog(_message.Message):
    __slots__ = ("config", "log_start_offset", "first_dirty_offset", "segments", "closed", "rolled", "truncated_to", "loaded", "pauses", "leader_epoch")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FIRST_DIRTY_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    ROLLED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_TO_FIELD_NUMBER: _ClassVar[int]
    LOADED_FIELD_NUMBER: _ClassVar[int]
    PAUSES_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    config: _containers.ScalarMap[str, str]
    log_start_offset: int
    first_dirty_offset: int
    segments: _containers.RepeatedCompositeFieldContainer[KafkaSegment]
    closed: KafkaProducers
    rolled: KafkaProducers
    truncated_to: int
    loaded: KafkaProducers
    pauses: int
    leader_epoch: int
    def __init__(self, config: _Optional[_Mapping[str, str]] = ..., log_start_offset: _Optional[int] = ..., first_dirty_offset: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[KafkaSegment, _Mapping]]] = ..., closed: _Optional[_Union[KafkaProducers, _Mapping]] = ..., rolled: _Optional[_Union[KafkaProducers, _Mapping]] = ..., truncated_to: _Optional[int] = ..., loaded: _Optional[_Union[KafkaProducers, _Mapping]] = ..., pauses: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class KafkaProducers(_message.Message):
    __slots__ = ("end_offset", "producers", "aborted")
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    end_offset: int
    producers: _containers.RepeatedCompositeFieldContainer[KafkaProducer]
    aborted: _containers.RepeatedCompositeFieldContainer[AbortedTransaction]
    def __init__(self, end_offset: _Optional[int] = ..., producers: _Optional[_Iterable[_Union[KafkaProducer, _Mapping]]] = ..., aborted: _Optional[_Iterable[_Union[AbortedTransaction, _Mapping]]] = ...) -> None: ...

class KafkaProducer(_message.Message):
    __slots__ = ("producer_id", "epoch", "last_sequence", "last_data_offset", "offset_delta", "last_timestamp_ms", "coordinator_epoch", "transaction_first_offset", "last_append_time_ms")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_DATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    OFFSET_DELTA_FIELD_NUMBER: _ClassVar[int]
    LAST_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_APPEND_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    last_sequence: int
    last_data_offset: int
    offset_delta: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int
    last_append_time_ms: int
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., last_sequence: _Optional[int] = ..., last_data_offset: _Optional[int] = ..., offset_delta: _Optional[int] = ..., last_timestamp_ms: _Optional[int] = ..., coordinator_epoch: _Optional[int] = ..., transaction_first_offset: _Optional[int] = ..., last_append_time_ms: _Optional[int] = ...) -> None: ...

class KafkaSegment(_message.Message):
    __slots__ = ("base_offset", "ledger_ids", "is_cleaned", "figures", "reserved_upto", "producers", "closed_behind", "cut_behind", "begun_ms")
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEDGER_IDS_FIELD_NUMBER: _ClassVar[int]
    IS_CLEANED_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    RESERVED_UPTO_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    CLOSED_BEHIND_FIELD_NUMBER: _ClassVar[int]
    CUT_BEHIND_FIELD_NUMBER: _ClassVar[int]
    BEGUN_MS_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    ledger_ids: _containers.RepeatedScalarFieldContainer[int]
    is_cleaned: bool
    figures: KafkaSegmentFigures
    reserved_upto: int
    producers: KafkaProducers
    closed_behind: _containers.RepeatedScalarFieldContainer[int]
    cut_behind: _containers.RepeatedScalarFieldContainer[int]
    begun_ms: int
    def __init__(self, base_offset: _Optional[int] = ..., ledger_ids: _Optional[_Iterable[int]] = ..., is_cleaned: _Optional[bool] = ..., figures: _Optional[_Union[KafkaSegmentFigures, _Mapping]] = ..., reserved_upto: _Optional[int] = ..., producers: _Optional[_Union[KafkaProducers, _Mapping]] = ..., closed_behind: _Optional[_Iterable[int]] = ..., cut_behind: _Optional[_Iterable[int]] = ..., begun_ms: _Optional[int] = ...) -> None: ...

class KafkaSegmentFigures(_message.Message):
    __slots__ = ("next_offset", "size_bytes", "batches", "offset_index_bytes", "time_index_bytes", "first_batch_timestamp_ms", "largest_timestamp_ms", "largest_timestamp_offset", "modified_ms", "aborted", "last_time_entry_ms")
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    OFFSET_INDEX_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIME_INDEX_BYTES_FIELD_NUMBER: _ClassVar[int]
    FIRST_BATCH_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    LARGEST_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    LARGEST_TIMESTAMP_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_MS_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    LAST_TIME_ENTRY_MS_FIELD_NUMBER: _ClassVar[int]
    next_offset: int
    size_bytes: int
    batches: int
    offset_index_bytes: int
    time_index_bytes: int
    first_batch_timestamp_ms: int
    largest_timestamp_ms: int
    largest_timestamp_offset: int
    modified_ms: int
    aborted: _containers.RepeatedCompositeFieldContainer[AbortedTransaction]
    last_time_entry_ms: int
    def __init__(self, next_offset: _Optional[int] = ..., size_bytes: _Optional[int] = ..., batches: _Optional[int] = ..., offset_index_bytes: _Optional[int] = ..., time_index_bytes: _Optional[int] = ..., first_batch_timestamp_ms: _Optional[int] = ..., largest_timestamp_ms: _Optional[int] = ..., largest_timestamp_offset: _Optional[int] = ..., modified_ms: _Optional[int] = ..., aborted: _Optional[_Iterable[_Union[AbortedTransaction, _Mapping]]] = ..., last_time_entry_ms: _Optional[int] = ...) -> None: ...

class PartitionedTopicRecord(_message.Message):
    __slots__ = ("name", "partitions", "created_ms", "policies", "kafka", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    KAFKA_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    created_ms: int
    policies: Policies
    kafka: KafkaPartitions
    properties: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., created_ms: _Optional[int] = ..., policies: _Optional[_Union[Policies, _Mapping]] = ..., kafka: _Optional[_Union[KafkaPartitions, _Mapping]] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class KafkaPartitions(_message.Message):
    __slots__ = ("config",)
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    config: _containers.ScalarMap[str, str]
    def __init__(self, config: _Optional[_Mapping[str, str]] = ...) -> None: ...

class TenantRecord(_message.Message):
    __slots__ = ("name", "admin_roles")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADMIN_ROLES_FIELD_NUMBER: _ClassVar[int]
    name: str
    admin_roles: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., admin_roles: _Optional[_Iterable[str]] = ...) -> None: ...

class NamespaceRecord(_message.Message):
    __slots__ = ("name", "policies", "grants")
    NAME_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    policies: Policies
    grants: _containers.RepeatedCompositeFieldContainer[Grant]
    def __init__(self, name: _Optional[str] = ..., policies: _Optional[_Union[Policies, _Mapping]] = ..., grants: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("role", "actions", "topic")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    role: str
    actions: _containers.RepeatedScalarFieldContainer[Action]
    topic: str
    def __init__(self, role: _Optional[str] = ..., actions: _Optional[_Iterable[_Union[Action, str]]] = ..., topic: _Optional[str] = ...) -> None: ...

class PositionRange(_message.Message):
    __slots__ = ("ledger_id", "first_entry_id", "last_entry_id")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    def __init__(self, ledger_id: _Optional[int] = ..., first_entry_id: _Optional[int] = ..., last_entry_id: _Optional[int] = ...) -> None: ...

class PositionSpan(_message.Message):
    __slots__ = ("after", "upto")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    after: Position
    upto: Position
    def __init__(self, after: _Optional[_Union[Position, _Mapping]] = ..., upto: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class CursorRecord(_message.Message):
    __slots__ = ("topic", "subscription", "mark_delete", "acknowledged", "created_ms", "incarnation", "spans", "subscription_properties")
    class SubscriptionPropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    MARK_DELETE_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    mark_delete: Position
    acknowledged: _containers.RepeatedCompositeFieldContainer[PositionRange]
    created_ms: int
    incarnation: int
    spans: _containers.RepeatedCompositeFieldContainer[PositionSpan]
    subscription_properties: _containers.ScalarMap[str, str]
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., mark_delete: _Optional[_Union[Position, _Mapping]] = ..., acknowledged: _Optional[_Iterable[_Union[PositionRange, _Mapping]]] = ..., created_ms: _Optional[int] = ..., incarnation: _Optional[int] = ..., spans: _Optional[_Iterable[_Union[PositionSpan, _Mapping]]] = ..., subscription_properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ProducerRecord(_message.Message):
    __slots__ = ("topic", "name", "number", "last_sequence_id", "position")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    number: int
    last_sequence_id: int
    position: Position
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., number: _Optional[int] = ..., last_sequence_id: _Optional[int] = ..., position: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class RunCounts(_message.Message):
    __slots__ = ("messages_in", "messages_out", "entries_in", "entries_out", "bytes_in", "bytes_out", "keys", "tombstones", "null_keys", "removed_events", "phase_one_ms", "phase_two_ms", "worker_peak_bytes", "write_latency_counts", "write_latency_us", "bytes_kept", "garbage_bytes", "vector_bytes", "bytes_new")
    MESSAGES_IN_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_OUT_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_IN_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_OUT_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_FIELD_NUMBER: _ClassVar[int]
    NULL_KEYS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_EVENTS_FIELD_NUMBER: _ClassVar[int]
    PHASE_ONE_MS_FIELD_NUMBER: _ClassVar[int]
    PHASE_TWO_MS_FIELD_NUMBER: _ClassVar[int]
    WORKER_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    WRITE_LATENCY_COUNTS_FIELD_NUMBER: _ClassVar[int]
    WRITE_LATENCY_US_FIELD_NUMBER: _ClassVar[int]
    BYTES_KEPT_FIELD_NUMBER: _ClassVar[int]
    GARBAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    VECTOR_BYTES_FIELD_NUMBER: _ClassVar[int]
    BYTES_NEW_FIELD_NUMBER: _ClassVar[int]
    messages_in: int
    messages_out: int
    entries_in: int
    entries_out: int
    bytes_in: int
    bytes_out: int
    keys: int
    tombstones: int
    null_keys: int
    removed_events: int
    phase_one_ms: int
    phase_two_ms: int
    worker_peak_bytes: int
    write_latency_counts: _containers.RepeatedScalarFieldContainer[int]
    write_latency_us: int
    bytes_kept: int
    garbage_bytes: int
    vector_bytes: int
    bytes_new: int
    def __init__(self, messages_in: _Optional[int] = ..., messages_out: _Optional[int] = ..., entries_in: _Optional[int] = ..., entries_out: _Optional[int] = ..., bytes_in: _Optional[int] = ..., bytes_out: _Optional[int] = ..., keys: _Optional[int] = ..., tombstones: _Optional[int] = ..., null_keys: _Optional[int] = ..., removed_events: _Optional[int] = ..., phase_one_ms: _Optional[int] = ..., phase_two_ms: _Optional[int] = ..., worker_peak_bytes: _Optional[int] = ..., write_latency_counts: _Optional[_Iterable[int]] = ..., write_latency_us: _Optional[int] = ..., bytes_kept: _Optional[int] = ..., garbage_bytes: _Optional[int] = ..., vector_bytes: _Optional[int] = ..., bytes_new: _Optional[int] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("name", "created_ms", "topics", "size_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    created_ms: int
    topics: int
    size_bytes: int
    def __init__(self, name: _Optional[str] = ..., created_ms: _Optional[int] = ..., topics: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class SnapshotRecords(_message.Message):
    __slots__ = ("name", "created_ms", "pairs")
    class Pair(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: bytes
        value: bytes
        def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    name: str
    created_ms: int
    pairs: _containers.RepeatedCompositeFieldContainer[SnapshotRecords.Pair]
    def __init__(self, name: _Optional[str] = ..., created_ms: _Optional[int] = ..., pairs: _Optional[_Iterable[_Union[SnapshotRecords.Pair, _Mapping]]] = ...) -> None: ...

class RunRecord(_message.Message):
    __slots__ = ("topic", "number", "state", "trigger", "strategy", "queued_ms", "started_ms", "ended_ms", "ledger_id", "previous_ledger_id", "horizon", "counts", "error_reason", "error_message", "retain_null_key", "strategy_settings", "strategy_version", "plan_time_ms", "retention_floor", "unsized_empties_survive", "engine")
    class StrategySettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    QUEUED_MS_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETAIN_NULL_KEY_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_SETTINGS_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_VERSION_FIELD_NUMBER: _ClassVar[int]
    PLAN_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FLOOR_FIELD_NUMBER: _ClassVar[int]
    UNSIZED_EMPTIES_SURVIVE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    number: int
    state: RunState
    trigger: RunTrigger
    strategy: str
    queued_ms: int
    started_ms: int
    ended_ms: int
    ledger_id: int
    previous_ledger_id: int
    horizon: Position
    counts: RunCounts
    error_reason: str
    error_message: str
    retain_null_key: bool
    strategy_settings: _containers.ScalarMap[str, str]
    strategy_version: str
    plan_time_ms: int
    retention_floor: Position
    unsized_empties_survive: bool
    engine: str
    def __init__(self, topic: _Optional[str] = ..., number: _Optional[int] = ..., state: _Optional[_Union[RunState, str]] = ..., trigger: _Optional[_Union[RunTrigger, str]] = ..., strategy: _Optional[str] = ..., queued_ms: _Optional[int] = ..., started_ms: _Optional[int] = ..., ended_ms: _Optional[int] = ..., ledger_id: _Optional[int] = ..., previous_ledger_id: _Optional[int] = ..., horizon: _Optional[_Union[Position, _Mapping]] = ..., counts: _Optional[_Union[RunCounts, _Mapping]] = ..., error_reason: _Optional[str] = ..., error_message: _Optional[str] = ..., retain_null_key: _Optional[bool] = ..., strategy_settings: _Optional[_Mapping[str, str]] = ..., strategy_version: _Optional[str] = ..., plan_time_ms: _Optional[int] = ..., retention_floor: _Optional[_Union[Position, _Mapping]] = ..., unsized_empties_survive: _Optional[bool] = ..., engine: _Optional[str] = ...) -> None: ...

class AbortedTransaction(_message.Message):
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

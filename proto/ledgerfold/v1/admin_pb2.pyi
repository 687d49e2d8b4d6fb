from ledgerfold.v1 import data_pb2 as _data_pb2
from ledgerfold.v1 import explain_pb2 as _explain_pb2
from ledgerfold.v1 import records_pb2 as _records_pb2
from ledgerfold.v1 import what_if_pb2 as _what_if_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CompactorState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPACTOR_STATE_UNSPECIFIED: _ClassVar[CompactorState]
    COMPACTOR_STATE_STARTING: _ClassVar[CompactorState]
    COMPACTOR_STATE_READY: _ClassVar[CompactorState]
    COMPACTOR_STATE_RESTARTING: _ClassVar[CompactorState]
    COMPACTOR_STATE_UNAVAILABLE: _ClassVar[CompactorState]
    COMPACTOR_STATE_DISABLED: _ClassVar[CompactorState]

class FaultKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAULT_KIND_UNSPECIFIED: _ClassVar[FaultKind]
    FAULT_KIND_FAIL: _ClassVar[FaultKind]
    FAULT_KIND_DISCONNECT: _ClassVar[FaultKind]
    FAULT_KIND_DELAY: _ClassVar[FaultKind]
    FAULT_KIND_LOSE_RECEIPT: _ClassVar[FaultKind]
    FAULT_KIND_DISK_FULL: _ClassVar[FaultKind]
    FAULT_KIND_FAIL_COMPACTION: _ClassVar[FaultKind]

class FaultOperation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAULT_OPERATION_UNSPECIFIED: _ClassVar[FaultOperation]
    FAULT_OPERATION_CREATE_PRODUCER: _ClassVar[FaultOperation]
    FAULT_OPERATION_PUBLISH: _ClassVar[FaultOperation]
    FAULT_OPERATION_SUBSCRIBE: _ClassVar[FaultOperation]
    FAULT_OPERATION_READ: _ClassVar[FaultOperation]
    FAULT_OPERATION_LOOKUP: _ClassVar[FaultOperation]

class CompactionStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPACTION_STATUS_UNSPECIFIED: _ClassVar[CompactionStatus]
    COMPACTION_STATUS_NOT_RUN: _ClassVar[CompactionStatus]
    COMPACTION_STATUS_RUNNING: _ClassVar[CompactionStatus]
    COMPACTION_STATUS_SUCCESS: _ClassVar[CompactionStatus]
    COMPACTION_STATUS_ERROR: _ClassVar[CompactionStatus]

class CompactionPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPACTION_PHASE_UNSPECIFIED: _ClassVar[CompactionPhase]
    COMPACTION_PHASE_QUEUED: _ClassVar[CompactionPhase]
    COMPACTION_PHASE_ONE: _ClassVar[CompactionPhase]
    COMPACTION_PHASE_TWO: _ClassVar[CompactionPhase]
    COMPACTION_PHASE_COMMIT: _ClassVar[CompactionPhase]
COMPACTOR_STATE_UNSPECIFIED: CompactorState
COMPACTOR_STATE_STARTING: CompactorState
COMPACTOR_STATE_READY: CompactorState
COMPACTOR_STATE_RESTARTING: CompactorState
COMPACTOR_STATE_UNAVAILABLE: CompactorState
COMPACTOR_STATE_DISABLED: CompactorState
FAULT_KIND_UNSPECIFIED: FaultKind
FAULT_KIND_FAIL: FaultKind
FAULT_KIND_DISCONNECT: FaultKind
FAULT_KIND_DELAY: FaultKind
FAULT_KIND_LOSE_RECEIPT: FaultKind
FAULT_KIND_DISK_FULL: FaultKind
FAULT_KIND_FAIL_COMPACTION: FaultKind
FAULT_OPERATION_UNSPECIFIED: FaultOperation
FAULT_OPERATION_CREATE_PRODUCER: FaultOperation
FAULT_OPERATION_PUBLISH: FaultOperation
FAULT_OPERATION_SUBSCRIBE: FaultOperation
FAULT_OPERATION_READ: FaultOperation
FAULT_OPERATION_LOOKUP: FaultOperation
COMPACTION_STATUS_UNSPECIFIED: CompactionStatus
COMPACTION_STATUS_NOT_RUN: CompactionStatus
COMPACTION_STATUS_RUNNING: CompactionStatus
COMPACTION_STATUS_SUCCESS: CompactionStatus
COMPACTION_STATUS_ERROR: CompactionStatus
COMPACTION_PHASE_UNSPECIFIED: CompactionPhase
COMPACTION_PHASE_QUEUED: CompactionPhase
COMPACTION_PHASE_ONE: CompactionPhase
COMPACTION_PHASE_TWO: CompactionPhase
COMPACTION_PHASE_COMMIT: CompactionPhase

class GetSchemaRequest(_message.Message):
    __slots__ = ("topic", "version")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    version: int
    def __init__(self, topic: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class GetSchemaResponse(_message.Message):
    __slots__ = ("schema",)
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    schema: _records_pb2.SchemaRecord
    def __init__(self, schema: _Optional[_Union[_records_pb2.SchemaRecord, _Mapping]] = ...) -> None: ...

class ListSchemasRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class ListSchemasResponse(_message.Message):
    __slots__ = ("schemas",)
    SCHEMAS_FIELD_NUMBER: _ClassVar[int]
    schemas: _containers.RepeatedCompositeFieldContainer[_records_pb2.SchemaRecord]
    def __init__(self, schemas: _Optional[_Iterable[_Union[_records_pb2.SchemaRecord, _Mapping]]] = ...) -> None: ...

class PutSchemaRequest(_message.Message):
    __slots__ = ("topic", "definition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    definition: _records_pb2.SchemaDefinition
    def __init__(self, topic: _Optional[str] = ..., definition: _Optional[_Union[_records_pb2.SchemaDefinition, _Mapping]] = ...) -> None: ...

class PutSchemaResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class DeleteSchemaRequest(_message.Message):
    __slots__ = ("topic", "force")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    force: bool
    def __init__(self, topic: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class DeleteSchemaResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class CheckSchemaRequest(_message.Message):
    __slots__ = ("topic", "definition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    definition: _records_pb2.SchemaDefinition
    def __init__(self, topic: _Optional[str] = ..., definition: _Optional[_Union[_records_pb2.SchemaDefinition, _Mapping]] = ...) -> None: ...

class CheckSchemaResponse(_message.Message):
    __slots__ = ("is_compatible", "reason", "strategy", "version")
    IS_COMPATIBLE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    is_compatible: bool
    reason: str
    strategy: _records_pb2.SchemaCompatibilityStrategy
    version: int
    def __init__(self, is_compatible: _Optional[bool] = ..., reason: _Optional[str] = ..., strategy: _Optional[_Union[_records_pb2.SchemaCompatibilityStrategy, str]] = ..., version: _Optional[int] = ...) -> None: ...

class GetBrokerInfoRequest(_message.Message):
    __slots__ = ("await_compactor",)
    AWAIT_COMPACTOR_FIELD_NUMBER: _ClassVar[int]
    await_compactor: bool
    def __init__(self, await_compactor: _Optional[bool] = ...) -> None: ...

class GetBrokerInfoResponse(_message.Message):
    __slots__ = ("version", "data_dir", "durability", "pid", "started_ms", "compactor_state", "compactor_message", "compactor_pid", "streams", "streams_max", "unsent_bytes", "unsent_bytes_max", "streams_refused", "streams_ended")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DATA_DIR_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    COMPACTOR_STATE_FIELD_NUMBER: _ClassVar[int]
    COMPACTOR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    COMPACTOR_PID_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    STREAMS_MAX_FIELD_NUMBER: _ClassVar[int]
    UNSENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNSENT_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    STREAMS_REFUSED_FIELD_NUMBER: _ClassVar[int]
    STREAMS_ENDED_FIELD_NUMBER: _ClassVar[int]
    version: str
    data_dir: str
    durability: str
    pid: int
    started_ms: int
    compactor_state: CompactorState
    compactor_message: str
    compactor_pid: int
    streams: int
    streams_max: int
    unsent_bytes: int
    unsent_bytes_max: int
    streams_refused: int
    streams_ended: int
    def __init__(self, version: _Optional[str] = ..., data_dir: _Optional[str] = ..., durability: _Optional[str] = ..., pid: _Optional[int] = ..., started_ms: _Optional[int] = ..., compactor_state: _Optional[_Union[CompactorState, str]] = ..., compactor_message: _Optional[str] = ..., compactor_pid: _Optional[int] = ..., streams: _Optional[int] = ..., streams_max: _Optional[int] = ..., unsent_bytes: _Optional[int] = ..., unsent_bytes_max: _Optional[int] = ..., streams_refused: _Optional[int] = ..., streams_ended: _Optional[int] = ...) -> None: ...

class GetClockRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetClockResponse(_message.Message):
    __slots__ = ("now_ms", "is_manual")
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    IS_MANUAL_FIELD_NUMBER: _ClassVar[int]
    now_ms: int
    is_manual: bool
    def __init__(self, now_ms: _Optional[int] = ..., is_manual: _Optional[bool] = ...) -> None: ...

class ResetRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResetResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: int
    def __init__(self, topics: _Optional[int] = ...) -> None: ...

class SaveSnapshotRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class SaveSnapshotResponse(_message.Message):
    __slots__ = ("snapshot",)
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    snapshot: _records_pb2.Snapshot
    def __init__(self, snapshot: _Optional[_Union[_records_pb2.Snapshot, _Mapping]] = ...) -> None: ...

class ListSnapshotsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSnapshotsResponse(_message.Message):
    __slots__ = ("snapshots",)
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    snapshots: _containers.RepeatedCompositeFieldContainer[_records_pb2.Snapshot]
    def __init__(self, snapshots: _Optional[_Iterable[_Union[_records_pb2.Snapshot, _Mapping]]] = ...) -> None: ...

class RestoreSnapshotRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class RestoreSnapshotResponse(_message.Message):
    __slots__ = ("snapshot",)
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    snapshot: _records_pb2.Snapshot
    def __init__(self, snapshot: _Optional[_Union[_records_pb2.Snapshot, _Mapping]] = ...) -> None: ...

class DeleteSnapshotRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteSnapshotResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Fault(_message.Message):
    __slots__ = ("id", "kind", "operation", "error", "delay_ms", "keeps_connection", "phase", "topic", "namespace", "producer", "subscription", "consumer", "next", "every", "hits", "probability", "seed")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    KEEPS_CONNECTION_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    EVERY_FIELD_NUMBER: _ClassVar[int]
    HITS_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    id: int
    kind: FaultKind
    operation: FaultOperation
    error: str
    delay_ms: int
    keeps_connection: bool
    phase: CompactionPhase
    topic: str
    namespace: str
    producer: str
    subscription: str
    consumer: str
    next: int
    every: int
    hits: int
    probability: float
    seed: int
    def __init__(self, id: _Optional[int] = ..., kind: _Optional[_Union[FaultKind, str]] = ..., operation: _Optional[_Union[FaultOperation, str]] = ..., error: _Optional[str] = ..., delay_ms: _Optional[int] = ..., keeps_connection: _Optional[bool] = ..., phase: _Optional[_Union[CompactionPhase, str]] = ..., topic: _Optional[str] = ..., namespace: _Optional[str] = ..., producer: _Optional[str] = ..., subscription: _Optional[str] = ..., consumer: _Optional[str] = ..., next: _Optional[int] = ..., every: _Optional[int] = ..., hits: _Optional[int] = ..., probability: _Optional[float] = ..., seed: _Optional[int] = ...) -> None: ...

class AddFaultRequest(_message.Message):
    __slots__ = ("fault",)
    FAULT_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ...) -> None: ...

class AddFaultResponse(_message.Message):
    __slots__ = ("fault",)
    FAULT_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ...) -> None: ...

class ListFaultsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListFaultsResponse(_message.Message):
    __slots__ = ("faults",)
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    faults: _containers.RepeatedCompositeFieldContainer[Fault]
    def __init__(self, faults: _Optional[_Iterable[_Union[Fault, _Mapping]]] = ...) -> None: ...

class RemoveFaultRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    def __init__(self, id: _Optional[int] = ...) -> None: ...

class RemoveFaultResponse(_message.Message):
    __slots__ = ("fault",)
    FAULT_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ...) -> None: ...

class ClearFaultsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClearFaultsResponse(_message.Message):
    __slots__ = ("faults",)
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    faults: int
    def __init__(self, faults: _Optional[int] = ...) -> None: ...

class MoveClockRequest(_message.Message):
    __slots__ = ("advance_ms", "to_ms")
    ADVANCE_MS_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    advance_ms: int
    to_ms: int
    def __init__(self, advance_ms: _Optional[int] = ..., to_ms: _Optional[int] = ...) -> None: ...

class MoveClockResponse(_message.Message):
    __slots__ = ("now_ms",)
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    now_ms: int
    def __init__(self, now_ms: _Optional[int] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("topic", "kafka", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KAFKA_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    kafka: KafkaConfig
    properties: _containers.ScalarMap[str, str]
    def __init__(self, topic: _Optional[str] = ..., kafka: _Optional[_Union[KafkaConfig, _Mapping]] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class KafkaConfig(_message.Message):
    __slots__ = ("values",)
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.ScalarMap[str, str]
    def __init__(self, values: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("topic", "force")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    force: bool
    def __init__(self, topic: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("namespace", "in_pages", "after")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    IN_PAGES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    in_pages: bool
    after: str
    def __init__(self, namespace: _Optional[str] = ..., in_pages: _Optional[bool] = ..., after: _Optional[str] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics", "has_more")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    has_more: bool
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., has_more: _Optional[bool] = ...) -> None: ...

class CreatePartitionedTopicRequest(_message.Message):
    __slots__ = ("topic", "partitions", "kafka", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    KAFKA_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: int
    kafka: KafkaConfig
    properties: _containers.ScalarMap[str, str]
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[int] = ..., kafka: _Optional[_Union[KafkaConfig, _Mapping]] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CreatePartitionedTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UpdatePartitionedTopicRequest(_message.Message):
    __slots__ = ("topic", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: int
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[int] = ...) -> None: ...

class UpdatePartitionedTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetPartitionedTopicMetadataRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class GetPartitionedTopicMetadataResponse(_message.Message):
    __slots__ = ("partitions", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    partitions: int
    properties: _containers.ScalarMap[str, str]
    def __init__(self, partitions: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ListPartitionedTopicsRequest(_message.Message):
    __slots__ = ("namespace", "in_pages", "after")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    IN_PAGES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    in_pages: bool
    after: str
    def __init__(self, namespace: _Optional[str] = ..., in_pages: _Optional[bool] = ..., after: _Optional[str] = ...) -> None: ...

class ListPartitionedTopicsResponse(_message.Message):
    __slots__ = ("topics", "has_more")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    has_more: bool
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., has_more: _Optional[bool] = ...) -> None: ...

class DeletePartitionedTopicRequest(_message.Message):
    __slots__ = ("topic", "force")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    force: bool
    def __init__(self, topic: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class DeletePartitionedTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetPartitionedTopicStatsRequest(_message.Message):
    __slots__ = ("topic", "per_partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PER_PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    per_partition: bool
    def __init__(self, topic: _Optional[str] = ..., per_partition: _Optional[bool] = ...) -> None: ...

class GetPartitionedTopicStatsResponse(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class GetTopicStatsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class GetTopicStatsResponse(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class GetTopicInternalStatsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class GetTopicInternalStatsResponse(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class GetTopicPropertiesRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class GetTopicPropertiesResponse(_message.Message):
    __slots__ = ("properties",)
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    properties: _containers.ScalarMap[str, str]
    def __init__(self, properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class UpdateTopicPropertiesRequest(_message.Message):
    __slots__ = ("topic", "set", "remove")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    set: _containers.ScalarMap[str, str]
    remove: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., set: _Optional[_Mapping[str, str]] = ..., remove: _Optional[_Iterable[str]] = ...) -> None: ...

class UpdateTopicPropertiesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UnloadTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class UnloadTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TrimTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class TrimTopicResponse(_message.Message):
    __slots__ = ("ledgers_removed",)
    LEDGERS_REMOVED_FIELD_NUMBER: _ClassVar[int]
    ledgers_removed: int
    def __init__(self, ledgers_removed: _Optional[int] = ...) -> None: ...

class TruncateTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class TruncateTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TerminateTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class TerminateTopicResponse(_message.Message):
    __slots__ = ("last_message_id",)
    LAST_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    last_message_id: _records_pb2.MessageId
    def __init__(self, last_message_id: _Optional[_Union[_records_pb2.MessageId, _Mapping]] = ...) -> None: ...

class GetMessageIdByTimestampRequest(_message.Message):
    __slots__ = ("topic", "publish_time_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    publish_time_ms: int
    def __init__(self, topic: _Optional[str] = ..., publish_time_ms: _Optional[int] = ...) -> None: ...

class GetMessageIdByTimestampResponse(_message.Message):
    __slots__ = ("message_id",)
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    message_id: _records_pb2.MessageId
    def __init__(self, message_id: _Optional[_Union[_records_pb2.MessageId, _Mapping]] = ...) -> None: ...

class PeekMessagesRequest(_message.Message):
    __slots__ = ("topic", "subscription", "position", "messages")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    position: int
    messages: int
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., position: _Optional[int] = ..., messages: _Optional[int] = ...) -> None: ...

class PeekMessagesResponse(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, entries: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ExamineMessagesRequest(_message.Message):
    __slots__ = ("topic", "position", "from_earliest")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    FROM_EARLIEST_FIELD_NUMBER: _ClassVar[int]
    topic: str
    position: int
    from_earliest: bool
    def __init__(self, topic: _Optional[str] = ..., position: _Optional[int] = ..., from_earliest: _Optional[bool] = ...) -> None: ...

class ExamineMessagesResponse(_message.Message):
    __slots__ = ("entry",)
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    entry: bytes
    def __init__(self, entry: _Optional[bytes] = ...) -> None: ...

class GetMessageByIdRequest(_message.Message):
    __slots__ = ("topic", "ledger_id", "entry_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    ledger_id: int
    entry_id: int
    def __init__(self, topic: _Optional[str] = ..., ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ...) -> None: ...

class GetMessageByIdResponse(_message.Message):
    __slots__ = ("entry",)
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    entry: bytes
    def __init__(self, entry: _Optional[bytes] = ...) -> None: ...

class CreateSubscriptionRequest(_message.Message):
    __slots__ = ("topic", "subscription", "start", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    start: _data_pb2.StartPosition
    properties: _containers.ScalarMap[str, str]
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., start: _Optional[_Union[_data_pb2.StartPosition, _Mapping]] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CreateSubscriptionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetSubscriptionPropertiesRequest(_message.Message):
    __slots__ = ("topic", "subscription")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ...) -> None: ...

class GetSubscriptionPropertiesResponse(_message.Message):
    __slots__ = ("properties",)
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    properties: _containers.ScalarMap[str, str]
    def __init__(self, properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SetSubscriptionPropertiesRequest(_message.Message):
    __slots__ = ("topic", "subscription", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    properties: _containers.ScalarMap[str, str]
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SetSubscriptionPropertiesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSubscriptionsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class ListSubscriptionsResponse(_message.Message):
    __slots__ = ("subscriptions",)
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    subscriptions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, subscriptions: _Optional[_Iterable[str]] = ...) -> None: ...

class ExpireMessagesRequest(_message.Message):
    __slots__ = ("topic", "subscription", "older_than_ms", "through")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    OLDER_THAN_MS_FIELD_NUMBER: _ClassVar[int]
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    older_than_ms: int
    through: _records_pb2.MessageId
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., older_than_ms: _Optional[int] = ..., through: _Optional[_Union[_records_pb2.MessageId, _Mapping]] = ...) -> None: ...

class ExpireMessagesResponse(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: int
    def __init__(self, entries: _Optional[int] = ...) -> None: ...

class ResetCursorRequest(_message.Message):
    __slots__ = ("topic", "subscription", "start", "ago_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    AGO_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    start: _data_pb2.StartPosition
    ago_ms: int
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., start: _Optional[_Union[_data_pb2.StartPosition, _Mapping]] = ..., ago_ms: _Optional[int] = ...) -> None: ...

class ResetCursorResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SkipMessagesRequest(_message.Message):
    __slots__ = ("topic", "subscription", "entries")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    entries: int
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., entries: _Optional[int] = ...) -> None: ...

class SkipMessagesResponse(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: int
    def __init__(self, entries: _Optional[int] = ...) -> None: ...

class ClearBacklogRequest(_message.Message):
    __slots__ = ("topic", "subscription")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ...) -> None: ...

class ClearBacklogResponse(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: int
    def __init__(self, entries: _Optional[int] = ...) -> None: ...

class TriggerCompactionRequest(_message.Message):
    __slots__ = ("topic", "strategy")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    strategy: _records_pb2.CompactionStrategy
    def __init__(self, topic: _Optional[str] = ..., strategy: _Optional[_Union[_records_pb2.CompactionStrategy, _Mapping]] = ...) -> None: ...

class TriggerCompactionResponse(_message.Message):
    __slots__ = ("run_number",)
    RUN_NUMBER_FIELD_NUMBER: _ClassVar[int]
    run_number: int
    def __init__(self, run_number: _Optional[int] = ...) -> None: ...

class GetCompactionStatusRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class GetCompactionStatusResponse(_message.Message):
    __slots__ = ("status", "last_error", "run", "progress", "partitions", "strategy", "threshold_check")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_CHECK_FIELD_NUMBER: _ClassVar[int]
    status: CompactionStatus
    last_error: str
    run: _records_pb2.RunRecord
    progress: CompactionProgress
    partitions: _containers.RepeatedCompositeFieldContainer[GetCompactionStatusResponse]
    strategy: _records_pb2.CompactionStrategy
    threshold_check: ThresholdCheck
    def __init__(self, status: _Optional[_Union[CompactionStatus, str]] = ..., last_error: _Optional[str] = ..., run: _Optional[_Union[_records_pb2.RunRecord, _Mapping]] = ..., progress: _Optional[_Union[CompactionProgress, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[GetCompactionStatusResponse, _Mapping]]] = ..., strategy: _Optional[_Union[_records_pb2.CompactionStrategy, _Mapping]] = ..., threshold_check: _Optional[_Union[ThresholdCheck, _Mapping]] = ...) -> None: ...

class ThresholdCheck(_message.Message):
    __slots__ = ("checked_ms", "fired", "why", "backlog_bytes", "threshold_bytes", "level")
    CHECKED_MS_FIELD_NUMBER: _ClassVar[int]
    FIRED_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    checked_ms: int
    fired: bool
    why: str
    backlog_bytes: int
    threshold_bytes: int
    level: str
    def __init__(self, checked_ms: _Optional[int] = ..., fired: _Optional[bool] = ..., why: _Optional[str] = ..., backlog_bytes: _Optional[int] = ..., threshold_bytes: _Optional[int] = ..., level: _Optional[str] = ...) -> None: ...

class CompactionProgress(_message.Message):
    __slots__ = ("phase", "tasks_done", "tasks_total", "messages", "bytes", "messages_total", "bytes_total", "left_ms")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    TASKS_DONE_FIELD_NUMBER: _ClassVar[int]
    TASKS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    phase: CompactionPhase
    tasks_done: int
    tasks_total: int
    messages: int
    bytes: int
    messages_total: int
    bytes_total: int
    left_ms: int
    def __init__(self, phase: _Optional[_Union[CompactionPhase, str]] = ..., tasks_done: _Optional[int] = ..., tasks_total: _Optional[int] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ..., messages_total: _Optional[int] = ..., bytes_total: _Optional[int] = ..., left_ms: _Optional[int] = ...) -> None: ...

class WatchCompactionRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class WatchCompactionResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: GetCompactionStatusResponse
    def __init__(self, status: _Optional[_Union[GetCompactionStatusResponse, _Mapping]] = ...) -> None: ...

class CancelCompactionRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class CancelCompactionResponse(_message.Message):
    __slots__ = ("run_number",)
    RUN_NUMBER_FIELD_NUMBER: _ClassVar[int]
    run_number: int
    def __init__(self, run_number: _Optional[int] = ...) -> None: ...

class ListRunsRequest(_message.Message):
    __slots__ = ("topic", "limit", "in_pages", "after")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    IN_PAGES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    limit: int
    in_pages: bool
    after: RunPlace
    def __init__(self, topic: _Optional[str] = ..., limit: _Optional[int] = ..., in_pages: _Optional[bool] = ..., after: _Optional[_Union[RunPlace, _Mapping]] = ...) -> None: ...

class RunPlace(_message.Message):
    __slots__ = ("topic", "number", "queued_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    QUEUED_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    number: int
    queued_ms: int
    def __init__(self, topic: _Optional[str] = ..., number: _Optional[int] = ..., queued_ms: _Optional[int] = ...) -> None: ...

class ListRunsResponse(_message.Message):
    __slots__ = ("runs", "has_more")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[_records_pb2.RunRecord]
    has_more: bool
    def __init__(self, runs: _Optional[_Iterable[_Union[_records_pb2.RunRecord, _Mapping]]] = ..., has_more: _Optional[bool] = ...) -> None: ...

class ListTenantsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTenantsResponse(_message.Message):
    __slots__ = ("tenants",)
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    tenants: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tenants: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateTenantRequest(_message.Message):
    __slots__ = ("tenant", "admin_roles")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ADMIN_ROLES_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    admin_roles: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tenant: _Optional[str] = ..., admin_roles: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateTenantResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UpdateTenantRequest(_message.Message):
    __slots__ = ("tenant", "admin_roles")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ADMIN_ROLES_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    admin_roles: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tenant: _Optional[str] = ..., admin_roles: _Optional[_Iterable[str]] = ...) -> None: ...

class UpdateTenantResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetPermissionsRequest(_message.Message):
    __slots__ = ("scope",)
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    scope: PolicyScope
    def __init__(self, scope: _Optional[_Union[PolicyScope, _Mapping]] = ...) -> None: ...

class GetPermissionsResponse(_message.Message):
    __slots__ = ("grants",)
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    grants: _containers.RepeatedCompositeFieldContainer[_records_pb2.Grant]
    def __init__(self, grants: _Optional[_Iterable[_Union[_records_pb2.Grant, _Mapping]]] = ...) -> None: ...

class GrantPermissionRequest(_message.Message):
    __slots__ = ("scope", "role", "actions")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    scope: PolicyScope
    role: str
    actions: _containers.RepeatedScalarFieldContainer[_records_pb2.Action]
    def __init__(self, scope: _Optional[_Union[PolicyScope, _Mapping]] = ..., role: _Optional[str] = ..., actions: _Optional[_Iterable[_Union[_records_pb2.Action, str]]] = ...) -> None: ...

class GrantPermissionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RevokePermissionRequest(_message.Message):
    __slots__ = ("scope", "role")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    scope: PolicyScope
    role: str
    def __init__(self, scope: _Optional[_Union[PolicyScope, _Mapping]] = ..., role: _Optional[str] = ...) -> None: ...

class RevokePermissionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteTenantRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class DeleteTenantResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListNamespacesRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class ListNamespacesResponse(_message.Message):
    __slots__ = ("namespaces",)
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    namespaces: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, namespaces: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateNamespaceRequest(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    def __init__(self, namespace: _Optional[str] = ...) -> None: ...

class CreateNamespaceResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteNamespaceRequest(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    def __init__(self, namespace: _Optional[str] = ...) -> None: ...

class DeleteNamespaceResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PolicyScope(_message.Message):
    __slots__ = ("topic", "namespace")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    namespace: str
    def __init__(self, topic: _Optional[str] = ..., namespace: _Optional[str] = ...) -> None: ...

class GetPoliciesRequest(_message.Message):
    __slots__ = ("scope", "applied")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    scope: PolicyScope
    applied: bool
    def __init__(self, scope: _Optional[_Union[PolicyScope, _Mapping]] = ..., applied: _Optional[bool] = ...) -> None: ...

class GetPoliciesResponse(_message.Message):
    __slots__ = ("policies",)
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    policies: _records_pb2.Policies
    def __init__(self, policies: _Optional[_Union[_records_pb2.Policies, _Mapping]] = ...) -> None: ...

class UpdatePoliciesRequest(_message.Message):
    __slots__ = ("scope", "set", "remove")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    scope: PolicyScope
    set: _records_pb2.Policies
    remove: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, scope: _Optional[_Union[PolicyScope, _Mapping]] = ..., set: _Optional[_Union[_records_pb2.Policies, _Mapping]] = ..., remove: _Optional[_Iterable[str]] = ...) -> None: ...

class UpdatePoliciesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

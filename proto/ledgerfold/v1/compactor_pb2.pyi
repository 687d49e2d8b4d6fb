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
    __slots__ = ("run_id", "topic", "strategy", "strategy_version", "strategy_settings", "time_ms", "renumber_batches", "retain_null_key", "ledgers_dir", "segments", "compacted_segments", "ledger_id", "horizon_previous", "horizon", "segment_bytes_max")
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
    def __init__(self, run_id: _Optional[str] = ..., topic: _Optional[str] = ..., strategy: _Optional[str] = ..., strategy_version: _Optional[int] = ..., strategy_settings: _Optional[_Mapping[str, str]] = ..., time_ms: _Optional[int] = ..., renumber_batches: _Optional[bool] = ..., retain_null_key: _Optional[bool] = ..., ledgers_dir: _Optional[str] = ..., segments: _Optional[_Iterable[_Union[_records_pb2.SegmentRecord, _Mapping]]] = ..., compacted_segments: _Optional[int] = ..., ledger_id: _Optional[int] = ..., horizon_previous: _Optional[_Union[_records_pb2.Position, _Mapping]] = ..., horizon: _Optional[_Union[_records_pb2.Position, _Mapping]] = ..., segment_bytes_max: _Optional[int] = ...) -> None: ...

class RunRequest(_message.Message):
    __slots__ = ("plan",)
    PLAN_FIELD_NUMBER: _ClassVar[int]
    plan: CompactionPlan
    def __init__(self, plan: _Optional[_Union[CompactionPlan, _Mapping]] = ...) -> None: ...

class RunResponse(_message.Message):
    __slots__ = ("progress", "manifest")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    progress: _admin_pb2.CompactionProgress
    manifest: Manifest
    def __init__(self, progress: _Optional[_Union[_admin_pb2.CompactionProgress, _Mapping]] = ..., manifest: _Optional[_Union[Manifest, _Mapping]] = ...) -> None: ...

class Manifest(_message.Message):
    __slots__ = ("run_id", "ledger_id", "horizon", "segments", "counts", "strategy_version")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_VERSION_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    ledger_id: int
    horizon: _records_pb2.Position
    segments: _containers.RepeatedCompositeFieldContainer[_records_pb2.SegmentRecord]
    counts: _records_pb2.RunCounts
    strategy_version: str
    def __init__(self, run_id: _Optional[str] = ..., ledger_id: _Optional[int] = ..., horizon: _Optional[_Union[_records_pb2.Position, _Mapping]] = ..., segments: _Optional[_Iterable[_Union[_records_pb2.SegmentRecord, _Mapping]]] = ..., counts: _Optional[_Union[_records_pb2.RunCounts, _Mapping]] = ..., strategy_version: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("version", "spark_version", "java_version", "spark_master", "pid")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SPARK_VERSION_FIELD_NUMBER: _ClassVar[int]
    JAVA_VERSION_FIELD_NUMBER: _ClassVar[int]
    SPARK_MASTER_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    version: str
    spark_version: str
    java_version: str
    spark_master: str
    pid: int
    def __init__(self, version: _Optional[str] = ..., spark_version: _Optional[str] = ..., java_version: _Optional[str] = ..., spark_master: _Optional[str] = ..., pid: _Optional[int] = ...) -> None: ...

class AnalyzeRequest(_message.Message):
    __slots__ = ("plan", "strategies", "differences_max", "history", "replays")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    STRATEGIES_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_MAX_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    REPLAYS_FIELD_NUMBER: _ClassVar[int]
    plan: CompactionPlan
    strategies: _containers.RepeatedCompositeFieldContainer[_records_pb2.CompactionStrategy]
    differences_max: int
    history: CompactionPlan
    replays: _containers.RepeatedCompositeFieldContainer[_what_if_pb2.ReplaySetting]
    def __init__(self, plan: _Optional[_Union[CompactionPlan, _Mapping]] = ..., strategies: _Optional[_Iterable[_Union[_records_pb2.CompactionStrategy, _Mapping]]] = ..., differences_max: _Optional[int] = ..., history: _Optional[_Union[CompactionPlan, _Mapping]] = ..., replays: _Optional[_Iterable[_Union[_what_if_pb2.ReplaySetting, _Mapping]]] = ...) -> None: ...

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

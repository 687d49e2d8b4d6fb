from ledgerfold.v1 import records_pb2 as _records_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WhatIfRequest(_message.Message):
    __slots__ = ("topic", "strategies", "differences_max", "replays", "trials")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    STRATEGIES_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_MAX_FIELD_NUMBER: _ClassVar[int]
    REPLAYS_FIELD_NUMBER: _ClassVar[int]
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    strategies: _containers.RepeatedCompositeFieldContainer[_records_pb2.CompactionStrategy]
    differences_max: int
    replays: _containers.RepeatedCompositeFieldContainer[ReplaySetting]
    trials: _containers.RepeatedCompositeFieldContainer[CleaningTrial]
    def __init__(self, topic: _Optional[str] = ..., strategies: _Optional[_Iterable[_Union[_records_pb2.CompactionStrategy, _Mapping]]] = ..., differences_max: _Optional[int] = ..., replays: _Optional[_Iterable[_Union[ReplaySetting, _Mapping]]] = ..., trials: _Optional[_Iterable[_Union[CleaningTrial, _Mapping]]] = ...) -> None: ...

class CleaningTrial(_message.Message):
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

class WhatIfResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicWhatIf]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicWhatIf, _Mapping]]] = ...) -> None: ...

class TopicWhatIf(_message.Message):
    __slots__ = ("topic", "input", "forecasts", "differences", "replays", "cleanings")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    FORECASTS_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    REPLAYS_FIELD_NUMBER: _ClassVar[int]
    CLEANINGS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    input: WhatIfInput
    forecasts: _containers.RepeatedCompositeFieldContainer[StrategyForecast]
    differences: KeyDifferences
    replays: _containers.RepeatedCompositeFieldContainer[Replay]
    cleanings: _containers.RepeatedCompositeFieldContainer[CleaningReplay]
    def __init__(self, topic: _Optional[str] = ..., input: _Optional[_Union[WhatIfInput, _Mapping]] = ..., forecasts: _Optional[_Iterable[_Union[StrategyForecast, _Mapping]]] = ..., differences: _Optional[_Union[KeyDifferences, _Mapping]] = ..., replays: _Optional[_Iterable[_Union[Replay, _Mapping]]] = ..., cleanings: _Optional[_Iterable[_Union[CleaningReplay, _Mapping]]] = ...) -> None: ...

class WhatIfInput(_message.Message):
    __slots__ = ("messages", "entries", "bytes", "tombstones", "null_keys")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_FIELD_NUMBER: _ClassVar[int]
    NULL_KEYS_FIELD_NUMBER: _ClassVar[int]
    messages: int
    entries: int
    bytes: int
    tombstones: int
    null_keys: int
    def __init__(self, messages: _Optional[int] = ..., entries: _Optional[int] = ..., bytes: _Optional[int] = ..., tombstones: _Optional[int] = ..., null_keys: _Optional[int] = ...) -> None: ...

class StrategyForecast(_message.Message):
    __slots__ = ("strategy", "messages", "entries", "bytes", "bytes_estimated", "keys", "removed_events", "bytes_reclaimable", "garbage_ratio", "not_forecast")
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    BYTES_ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_EVENTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_RECLAIMABLE_FIELD_NUMBER: _ClassVar[int]
    GARBAGE_RATIO_FIELD_NUMBER: _ClassVar[int]
    NOT_FORECAST_FIELD_NUMBER: _ClassVar[int]
    strategy: _records_pb2.CompactionStrategy
    messages: int
    entries: int
    bytes: int
    bytes_estimated: int
    keys: int
    removed_events: int
    bytes_reclaimable: int
    garbage_ratio: float
    not_forecast: str
    def __init__(self, strategy: _Optional[_Union[_records_pb2.CompactionStrategy, _Mapping]] = ..., messages: _Optional[int] = ..., entries: _Optional[int] = ..., bytes: _Optional[int] = ..., bytes_estimated: _Optional[int] = ..., keys: _Optional[int] = ..., removed_events: _Optional[int] = ..., bytes_reclaimable: _Optional[int] = ..., garbage_ratio: _Optional[float] = ..., not_forecast: _Optional[str] = ...) -> None: ...

class KeyDifferences(_message.Message):
    __slots__ = ("keys", "listed")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    LISTED_FIELD_NUMBER: _ClassVar[int]
    keys: int
    listed: _containers.RepeatedCompositeFieldContainer[KeyDifference]
    def __init__(self, keys: _Optional[int] = ..., listed: _Optional[_Iterable[_Union[KeyDifference, _Mapping]]] = ...) -> None: ...

class KeyDifference(_message.Message):
    __slots__ = ("key", "kept")
    KEY_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    kept: _containers.RepeatedCompositeFieldContainer[KeptMessages]
    def __init__(self, key: _Optional[bytes] = ..., kept: _Optional[_Iterable[_Union[KeptMessages, _Mapping]]] = ...) -> None: ...

class KeptMessages(_message.Message):
    __slots__ = ("count", "last", "value", "value_bytes")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    VALUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    count: int
    last: _records_pb2.MessageId
    value: bytes
    value_bytes: int
    def __init__(self, count: _Optional[int] = ..., last: _Optional[_Union[_records_pb2.MessageId, _Mapping]] = ..., value: _Optional[bytes] = ..., value_bytes: _Optional[int] = ...) -> None: ...

class ReplaySetting(_message.Message):
    __slots__ = ("threshold_bytes", "interval_ms")
    THRESHOLD_BYTES_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    threshold_bytes: int
    interval_ms: int
    def __init__(self, threshold_bytes: _Optional[int] = ..., interval_ms: _Optional[int] = ...) -> None: ...

class Replay(_message.Message):
    __slots__ = ("setting", "runs", "bytes_read", "bytes_rewritten", "write_amplification", "space_peak_bytes", "space_mean_bytes", "rewind_mean_bytes", "points", "why_no_run")
    SETTING_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    BYTES_READ_FIELD_NUMBER: _ClassVar[int]
    BYTES_REWRITTEN_FIELD_NUMBER: _ClassVar[int]
    WRITE_AMPLIFICATION_FIELD_NUMBER: _ClassVar[int]
    SPACE_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    SPACE_MEAN_BYTES_FIELD_NUMBER: _ClassVar[int]
    REWIND_MEAN_BYTES_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    WHY_NO_RUN_FIELD_NUMBER: _ClassVar[int]
    setting: ReplaySetting
    runs: int
    bytes_read: int
    bytes_rewritten: int
    write_amplification: float
    space_peak_bytes: int
    space_mean_bytes: float
    rewind_mean_bytes: float
    points: _containers.RepeatedCompositeFieldContainer[SpacePoint]
    why_no_run: str
    def __init__(self, setting: _Optional[_Union[ReplaySetting, _Mapping]] = ..., runs: _Optional[int] = ..., bytes_read: _Optional[int] = ..., bytes_rewritten: _Optional[int] = ..., write_amplification: _Optional[float] = ..., space_peak_bytes: _Optional[int] = ..., space_mean_bytes: _Optional[float] = ..., rewind_mean_bytes: _Optional[float] = ..., points: _Optional[_Iterable[_Union[SpacePoint, _Mapping]]] = ..., why_no_run: _Optional[str] = ...) -> None: ...

class SpacePoint(_message.Message):
    __slots__ = ("publish_time_ms", "bytes")
    PUBLISH_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    publish_time_ms: int
    bytes: int
    def __init__(self, publish_time_ms: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class CleaningReplay(_message.Message):
    __slots__ = ("trial", "rounds", "bytes_read", "bytes_rewritten", "write_amplification", "space_peak_bytes", "space_mean_bytes", "space_end_bytes", "records_end", "tombstones_end", "segments_end", "bytes_deleted", "bytes_estimated", "begin_ms", "end_ms", "points", "why_no_round")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_READ_FIELD_NUMBER: _ClassVar[int]
    BYTES_REWRITTEN_FIELD_NUMBER: _ClassVar[int]
    WRITE_AMPLIFICATION_FIELD_NUMBER: _ClassVar[int]
    SPACE_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    SPACE_MEAN_BYTES_FIELD_NUMBER: _ClassVar[int]
    SPACE_END_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_END_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_END_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_END_FIELD_NUMBER: _ClassVar[int]
    BYTES_DELETED_FIELD_NUMBER: _ClassVar[int]
    BYTES_ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    BEGIN_MS_FIELD_NUMBER: _ClassVar[int]
    END_MS_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    WHY_NO_ROUND_FIELD_NUMBER: _ClassVar[int]
    trial: CleaningTrial
    rounds: int
    bytes_read: int
    bytes_rewritten: int
    write_amplification: float
    space_peak_bytes: int
    space_mean_bytes: float
    space_end_bytes: int
    records_end: int
    tombstones_end: int
    segments_end: int
    bytes_deleted: int
    bytes_estimated: int
    begin_ms: int
    end_ms: int
    points: _containers.RepeatedCompositeFieldContainer[SpacePoint]
    why_no_round: str
    def __init__(self, trial: _Optional[_Union[CleaningTrial, _Mapping]] = ..., rounds: _Optional[int] = ..., bytes_read: _Optional[int] = ..., bytes_rewritten: _Optional[int] = ..., write_amplification: _Optional[float] = ..., space_peak_bytes: _Optional[int] = ..., space_mean_bytes: _Optional[float] = ..., space_end_bytes: _Optional[int] = ..., records_end: _Optional[int] = ..., tombstones_end: _Optional[int] = ..., segments_end: _Optional[int] = ..., bytes_deleted: _Optional[int] = ..., bytes_estimated: _Optional[int] = ..., begin_ms: _Optional[int] = ..., end_ms: _Optional[int] = ..., points: _Optional[_Iterable[_Union[SpacePoint, _Mapping]]] = ..., why_no_round: _Optional[str] = ...) -> None: ...

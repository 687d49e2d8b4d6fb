from ledgerfold.v1 import records_pb2 as _records_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class VersionPlace(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERSION_PLACE_UNSPECIFIED: _ClassVar[VersionPlace]
    VERSION_PLACE_RAW: _ClassVar[VersionPlace]
    VERSION_PLACE_COMPACTED: _ClassVar[VersionPlace]
    VERSION_PLACE_BOTH: _ClassVar[VersionPlace]
    VERSION_PLACE_TRIMMED: _ClassVar[VersionPlace]

class VersionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERSION_STATE_UNSPECIFIED: _ClassVar[VersionState]
    VERSION_STATE_ABOVE_HORIZON: _ClassVar[VersionState]
    VERSION_STATE_KEPT: _ClassVar[VersionState]
    VERSION_STATE_DROPPED: _ClassVar[VersionState]
    VERSION_STATE_NEVER_MET: _ClassVar[VersionState]
    VERSION_STATE_INCONSISTENT: _ClassVar[VersionState]
    VERSION_STATE_UNKNOWN: _ClassVar[VersionState]

class CompactionRule(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPACTION_RULE_UNSPECIFIED: _ClassVar[CompactionRule]
    COMPACTION_RULE_NEWEST: _ClassVar[CompactionRule]
    COMPACTION_RULE_NULL_KEY_RETAINED: _ClassVar[CompactionRule]
    COMPACTION_RULE_OBSCURED: _ClassVar[CompactionRule]
    COMPACTION_RULE_DELETED: _ClassVar[CompactionRule]
    COMPACTION_RULE_TOMBSTONE: _ClassVar[CompactionRule]
    COMPACTION_RULE_NULL_KEY: _ClassVar[CompactionRule]
    COMPACTION_RULE_RETENTION: _ClassVar[CompactionRule]
    COMPACTION_RULE_LATEST_EVENT: _ClassVar[CompactionRule]
    COMPACTION_RULE_EARLIER_EVENT: _ClassVar[CompactionRule]
    COMPACTION_RULE_YOUNG: _ClassVar[CompactionRule]
    COMPACTION_RULE_LAST_N: _ClassVar[CompactionRule]
    COMPACTION_RULE_BEYOND_N: _ClassVar[CompactionRule]
    COMPACTION_RULE_CHOSEN: _ClassVar[CompactionRule]
    COMPACTION_RULE_SKIPPED: _ClassVar[CompactionRule]
    COMPACTION_RULE_OWN_CODE: _ClassVar[CompactionRule]
    COMPACTION_RULE_NULL_KEY_STRATEGIC: _ClassVar[CompactionRule]
    COMPACTION_RULE_UNREADABLE: _ClassVar[CompactionRule]
VERSION_PLACE_UNSPECIFIED: VersionPlace
VERSION_PLACE_RAW: VersionPlace
VERSION_PLACE_COMPACTED: VersionPlace
VERSION_PLACE_BOTH: VersionPlace
VERSION_PLACE_TRIMMED: VersionPlace
VERSION_STATE_UNSPECIFIED: VersionState
VERSION_STATE_ABOVE_HORIZON: VersionState
VERSION_STATE_KEPT: VersionState
VERSION_STATE_DROPPED: VersionState
VERSION_STATE_NEVER_MET: VersionState
VERSION_STATE_INCONSISTENT: VersionState
VERSION_STATE_UNKNOWN: VersionState
COMPACTION_RULE_UNSPECIFIED: CompactionRule
COMPACTION_RULE_NEWEST: CompactionRule
COMPACTION_RULE_NULL_KEY_RETAINED: CompactionRule
COMPACTION_RULE_OBSCURED: CompactionRule
COMPACTION_RULE_DELETED: CompactionRule
COMPACTION_RULE_TOMBSTONE: CompactionRule
COMPACTION_RULE_NULL_KEY: CompactionRule
COMPACTION_RULE_RETENTION: CompactionRule
COMPACTION_RULE_LATEST_EVENT: CompactionRule
COMPACTION_RULE_EARLIER_EVENT: CompactionRule
COMPACTION_RULE_YOUNG: CompactionRule
COMPACTION_RULE_LAST_N: CompactionRule
COMPACTION_RULE_BEYOND_N: CompactionRule
COMPACTION_RULE_CHOSEN: CompactionRule
COMPACTION_RULE_SKIPPED: CompactionRule
COMPACTION_RULE_OWN_CODE: CompactionRule
COMPACTION_RULE_NULL_KEY_STRATEGIC: CompactionRule
COMPACTION_RULE_UNREADABLE: CompactionRule

class ExplainRequest(_message.Message):
    __slots__ = ("topic", "key", "null_key", "message_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    NULL_KEY_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    key: bytes
    null_key: bool
    message_id: _records_pb2.MessageId
    def __init__(self, topic: _Optional[str] = ..., key: _Optional[bytes] = ..., null_key: _Optional[bool] = ..., message_id: _Optional[_Union[_records_pb2.MessageId, _Mapping]] = ...) -> None: ...

class RunSpan(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class ExplainedVersion(_message.Message):
    __slots__ = ("id", "publish_time_ms", "event_time_ms", "value_bytes", "key_is_base64", "place", "state", "rule", "by", "kept_by", "dropped_by", "is_hidden", "next_rule", "next_by", "what", "next", "strategy", "is_missed", "words", "words_left")
    ID_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    VALUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    KEY_IS_BASE64_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    KEPT_BY_FIELD_NUMBER: _ClassVar[int]
    DROPPED_BY_FIELD_NUMBER: _ClassVar[int]
    IS_HIDDEN_FIELD_NUMBER: _ClassVar[int]
    NEXT_RULE_FIELD_NUMBER: _ClassVar[int]
    NEXT_BY_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    IS_MISSED_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    WORDS_LEFT_FIELD_NUMBER: _ClassVar[int]
    id: _records_pb2.MessageId
    publish_time_ms: int
    event_time_ms: int
    value_bytes: int
    key_is_base64: bool
    place: VersionPlace
    state: VersionState
    rule: CompactionRule
    by: _records_pb2.MessageId
    kept_by: RunSpan
    dropped_by: RunSpan
    is_hidden: bool
    next_rule: CompactionRule
    next_by: _records_pb2.MessageId
    what: str
    next: str
    strategy: str
    is_missed: bool
    words: str
    words_left: _records_pb2.MessageId
    def __init__(self, id: _Optional[_Union[_records_pb2.MessageId, _Mapping]] = ..., publish_time_ms: _Optional[int] = ..., event_time_ms: _Optional[int] = ..., value_bytes: _Optional[int] = ..., key_is_base64: _Optional[bool] = ..., place: _Optional[_Union[VersionPlace, str]] = ..., state: _Optional[_Union[VersionState, str]] = ..., rule: _Optional[_Union[CompactionRule, str]] = ..., by: _Optional[_Union[_records_pb2.MessageId, _Mapping]] = ..., kept_by: _Optional[_Union[RunSpan, _Mapping]] = ..., dropped_by: _Optional[_Union[RunSpan, _Mapping]] = ..., is_hidden: _Optional[bool] = ..., next_rule: _Optional[_Union[CompactionRule, str]] = ..., next_by: _Optional[_Union[_records_pb2.MessageId, _Mapping]] = ..., what: _Optional[str] = ..., next: _Optional[str] = ..., strategy: _Optional[str] = ..., is_missed: _Optional[bool] = ..., words: _Optional[str] = ..., words_left: _Optional[_Union[_records_pb2.MessageId, _Mapping]] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("versions", "versions_older", "notes", "strategy")
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_OLDER_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedCompositeFieldContainer[ExplainedVersion]
    versions_older: int
    notes: _containers.RepeatedScalarFieldContainer[str]
    strategy: str
    def __init__(self, versions: _Optional[_Iterable[_Union[ExplainedVersion, _Mapping]]] = ..., versions_older: _Optional[int] = ..., notes: _Optional[_Iterable[str]] = ..., strategy: _Optional[str] = ...) -> None: ...

from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class NativeFlag(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NATIVE_FLAG_UNSPECIFIED: _ClassVar[NativeFlag]
    NATIVE_FLAG_HAS_KEY: _ClassVar[NativeFlag]
    NATIVE_FLAG_NULL_VALUE: _ClassVar[NativeFlag]
    NATIVE_FLAG_KEY_IS_BASE64: _ClassVar[NativeFlag]
NATIVE_FLAG_UNSPECIFIED: NativeFlag
NATIVE_FLAG_HAS_KEY: NativeFlag
NATIVE_FLAG_NULL_VALUE: NativeFlag
NATIVE_FLAG_KEY_IS_BASE64: NativeFlag

class NativeKeys(_message.Message):
    __slots__ = ("key_offsets", "keys", "flags", "value_sizes", "event_times", "batch_indexes", "batch_size", "dispatch_key", "deliver_at_ms")
    KEY_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    VALUE_SIZES_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIMES_FIELD_NUMBER: _ClassVar[int]
    BATCH_INDEXES_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_KEY_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    key_offsets: bytes
    keys: bytes
    flags: bytes
    value_sizes: bytes
    event_times: bytes
    batch_indexes: bytes
    batch_size: int
    dispatch_key: bytes
    deliver_at_ms: int
    def __init__(self, key_offsets: _Optional[bytes] = ..., keys: _Optional[bytes] = ..., flags: _Optional[bytes] = ..., value_sizes: _Optional[bytes] = ..., event_times: _Optional[bytes] = ..., batch_indexes: _Optional[bytes] = ..., batch_size: _Optional[int] = ..., dispatch_key: _Optional[bytes] = ..., deliver_at_ms: _Optional[int] = ...) -> None: ...

class NativeValues(_message.Message):
    __slots__ = ("values", "property_offsets", "property_name_offsets", "property_names", "property_value_offsets", "property_values", "sequence_ids", "ordering_key_offsets", "ordering_keys", "producer_name", "schema_version")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    PROPERTY_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    PROPERTY_NAME_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    PROPERTY_NAMES_FIELD_NUMBER: _ClassVar[int]
    PROPERTY_VALUE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    PROPERTY_VALUES_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_IDS_FIELD_NUMBER: _ClassVar[int]
    ORDERING_KEY_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    ORDERING_KEYS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    values: bytes
    property_offsets: bytes
    property_name_offsets: bytes
    property_names: bytes
    property_value_offsets: bytes
    property_values: bytes
    sequence_ids: bytes
    ordering_key_offsets: bytes
    ordering_keys: bytes
    producer_name: str
    schema_version: bytes
    def __init__(self, values: _Optional[bytes] = ..., property_offsets: _Optional[bytes] = ..., property_name_offsets: _Optional[bytes] = ..., property_names: _Optional[bytes] = ..., property_value_offsets: _Optional[bytes] = ..., property_values: _Optional[bytes] = ..., sequence_ids: _Optional[bytes] = ..., ordering_key_offsets: _Optional[bytes] = ..., ordering_keys: _Optional[bytes] = ..., producer_name: _Optional[str] = ..., schema_version: _Optional[bytes] = ...) -> None: ...

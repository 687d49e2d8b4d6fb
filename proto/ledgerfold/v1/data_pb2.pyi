from ledgerfold.v1 import records_pb2 as _records_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProducerAccessMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRODUCER_ACCESS_MODE_SHARED: _ClassVar[ProducerAccessMode]
    PRODUCER_ACCESS_MODE_EXCLUSIVE: _ClassVar[ProducerAccessMode]
    PRODUCER_ACCESS_MODE_WAIT_FOR_EXCLUSIVE: _ClassVar[ProducerAccessMode]
    PRODUCER_ACCESS_MODE_EXCLUSIVE_WITH_FENCING: _ClassVar[ProducerAccessMode]

class EntryCodec(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENTRY_CODEC_NATIVE: _ClassVar[EntryCodec]
    ENTRY_CODEC_KAFKA: _ClassVar[EntryCodec]

class SubscriptionType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SUBSCRIPTION_TYPE_UNSPECIFIED: _ClassVar[SubscriptionType]
    SUBSCRIPTION_TYPE_EXCLUSIVE: _ClassVar[SubscriptionType]
    SUBSCRIPTION_TYPE_SHARED: _ClassVar[SubscriptionType]
    SUBSCRIPTION_TYPE_FAILOVER: _ClassVar[SubscriptionType]
    SUBSCRIPTION_TYPE_KEY_SHARED: _ClassVar[SubscriptionType]
PRODUCER_ACCESS_MODE_SHARED: ProducerAccessMode
PRODUCER_ACCESS_MODE_EXCLUSIVE: ProducerAccessMode
PRODUCER_ACCESS_MODE_WAIT_FOR_EXCLUSIVE: ProducerAccessMode
PRODUCER_ACCESS_MODE_EXCLUSIVE_WITH_FENCING: ProducerAccessMode
ENTRY_CODEC_NATIVE: EntryCodec
ENTRY_CODEC_KAFKA: EntryCodec
SUBSCRIPTION_TYPE_UNSPECIFIED: SubscriptionType
SUBSCRIPTION_TYPE_EXCLUSIVE: SubscriptionType
SUBSCRIPTION_TYPE_SHARED: SubscriptionType
SUBSCRIPTION_TYPE_FAILOVER: SubscriptionType
SUBSCRIPTION_TYPE_KEY_SHARED: SubscriptionType

class PublishRequest(_message.Message):
    __slots__ = ("open", "entries")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    open: PublishOpen
    entries: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, open: _Optional[_Union[PublishOpen, _Mapping]] = ..., entries: _Optional[_Iterable[bytes]] = ...) -> None: ...

class PublishOpen(_message.Message):
    __slots__ = ("topic", "producer_name", "combines_receipts", "access_mode", "topic_epoch", "schema")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    COMBINES_RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    ACCESS_MODE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    topic: str
    producer_name: str
    combines_receipts: bool
    access_mode: ProducerAccessMode
    topic_epoch: int
    schema: _records_pb2.SchemaDefinition
    def __init__(self, topic: _Optional[str] = ..., producer_name: _Optional[str] = ..., combines_receipts: _Optional[bool] = ..., access_mode: _Optional[_Union[ProducerAccessMode, str]] = ..., topic_epoch: _Optional[int] = ..., schema: _Optional[_Union[_records_pb2.SchemaDefinition, _Mapping]] = ...) -> None: ...

class KafkaReady(_message.Message):
    __slots__ = ("batch_bytes_max", "needs_keys")
    BATCH_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    NEEDS_KEYS_FIELD_NUMBER: _ClassVar[int]
    batch_bytes_max: int
    needs_keys: bool
    def __init__(self, batch_bytes_max: _Optional[int] = ..., needs_keys: _Optional[bool] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("ready", "receipts", "is_queued")
    READY_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    IS_QUEUED_FIELD_NUMBER: _ClassVar[int]
    ready: PublishReady
    receipts: _containers.RepeatedCompositeFieldContainer[Receipt]
    is_queued: bool
    def __init__(self, ready: _Optional[_Union[PublishReady, _Mapping]] = ..., receipts: _Optional[_Iterable[_Union[Receipt, _Mapping]]] = ..., is_queued: _Optional[bool] = ...) -> None: ...

class PublishReady(_message.Message):
    __slots__ = ("producer_name", "last_sequence_id", "entry_bytes_max", "codec", "kafka", "topic_epoch", "schema_version")
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    KAFKA_FIELD_NUMBER: _ClassVar[int]
    TOPIC_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    producer_name: str
    last_sequence_id: int
    entry_bytes_max: int
    codec: EntryCodec
    kafka: KafkaReady
    topic_epoch: int
    schema_version: bytes
    def __init__(self, producer_name: _Optional[str] = ..., last_sequence_id: _Optional[int] = ..., entry_bytes_max: _Optional[int] = ..., codec: _Optional[_Union[EntryCodec, str]] = ..., kafka: _Optional[_Union[KafkaReady, _Mapping]] = ..., topic_epoch: _Optional[int] = ..., schema_version: _Optional[bytes] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("sequence_id", "ledger_id", "entry_id", "refusal", "entries")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    sequence_id: int
    ledger_id: int
    entry_id: int
    refusal: Refusal
    entries: int
    def __init__(self, sequence_id: _Optional[int] = ..., ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., entries: _Optional[int] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("reason", "message", "attributes")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    reason: str
    message: str
    attributes: _containers.ScalarMap[str, str]
    def __init__(self, reason: _Optional[str] = ..., message: _Optional[str] = ..., attributes: _Optional[_Mapping[str, str]] = ...) -> None: ...

class StartPosition(_message.Message):
    __slots__ = ("earliest", "latest", "message_id", "publish_time_ms", "inclusive")
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    INCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    earliest: bool
    latest: bool
    message_id: _records_pb2.MessageId
    publish_time_ms: int
    inclusive: bool
    def __init__(self, earliest: _Optional[bool] = ..., latest: _Optional[bool] = ..., message_id: _Optional[_Union[_records_pb2.MessageId, _Mapping]] = ..., publish_time_ms: _Optional[int] = ..., inclusive: _Optional[bool] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("open", "permits", "ack", "redeliver")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    REDELIVER_FIELD_NUMBER: _ClassVar[int]
    open: SubscribeOpen
    permits: int
    ack: Ack
    redeliver: Redeliver
    def __init__(self, open: _Optional[_Union[SubscribeOpen, _Mapping]] = ..., permits: _Optional[int] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., redeliver: _Optional[_Union[Redeliver, _Mapping]] = ...) -> None: ...

class SubscribeOpen(_message.Message):
    __slots__ = ("topic", "subscription", "type", "durable", "start", "read_compacted", "consumer_name", "priority", "properties", "key_shared", "reads_pulsar_entries", "schema", "permits", "subscription_properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class SubscriptionPropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    READ_COMPACTED_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    KEY_SHARED_FIELD_NUMBER: _ClassVar[int]
    READS_PULSAR_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    type: SubscriptionType
    durable: bool
    start: StartPosition
    read_compacted: bool
    consumer_name: str
    priority: int
    properties: _containers.ScalarMap[str, str]
    key_shared: KeyShared
    reads_pulsar_entries: bool
    schema: _records_pb2.SchemaDefinition
    permits: int
    subscription_properties: _containers.ScalarMap[str, str]
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., type: _Optional[_Union[SubscriptionType, str]] = ..., durable: _Optional[bool] = ..., start: _Optional[_Union[StartPosition, _Mapping]] = ..., read_compacted: _Optional[bool] = ..., consumer_name: _Optional[str] = ..., priority: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ..., key_shared: _Optional[_Union[KeyShared, _Mapping]] = ..., reads_pulsar_entries: _Optional[bool] = ..., schema: _Optional[_Union[_records_pb2.SchemaDefinition, _Mapping]] = ..., permits: _Optional[int] = ..., subscription_properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class KeyShared(_message.Message):
    __slots__ = ("sticky", "hash_ranges", "allow_out_of_order")
    STICKY_FIELD_NUMBER: _ClassVar[int]
    HASH_RANGES_FIELD_NUMBER: _ClassVar[int]
    ALLOW_OUT_OF_ORDER_FIELD_NUMBER: _ClassVar[int]
    sticky: bool
    hash_ranges: _containers.RepeatedCompositeFieldContainer[HashRange]
    allow_out_of_order: bool
    def __init__(self, sticky: _Optional[bool] = ..., hash_ranges: _Optional[_Iterable[_Union[HashRange, _Mapping]]] = ..., allow_out_of_order: _Optional[bool] = ...) -> None: ...

class HashRange(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("positions", "cumulative", "request_id")
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    CUMULATIVE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedCompositeFieldContainer[_records_pb2.Position]
    cumulative: bool
    request_id: int
    def __init__(self, positions: _Optional[_Iterable[_Union[_records_pb2.Position, _Mapping]]] = ..., cumulative: _Optional[bool] = ..., request_id: _Optional[int] = ...) -> None: ...

class Redeliver(_message.Message):
    __slots__ = ("positions",)
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedCompositeFieldContainer[_records_pb2.Position]
    def __init__(self, positions: _Optional[_Iterable[_Union[_records_pb2.Position, _Mapping]]] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("ready", "deliveries", "acked_request_ids", "active")
    READY_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    ACKED_REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    ready: SubscribeReady
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    acked_request_ids: _containers.RepeatedScalarFieldContainer[int]
    active: bool
    def __init__(self, ready: _Optional[_Union[SubscribeReady, _Mapping]] = ..., deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ..., acked_request_ids: _Optional[_Iterable[int]] = ..., active: _Optional[bool] = ...) -> None: ...

class SubscribeReady(_message.Message):
    __slots__ = ("consumer_name", "incarnation", "permits")
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    consumer_name: str
    incarnation: int
    permits: int
    def __init__(self, consumer_name: _Optional[str] = ..., incarnation: _Optional[int] = ..., permits: _Optional[int] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("entry", "redelivery_count")
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    REDELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    entry: bytes
    redelivery_count: int
    def __init__(self, entry: _Optional[bytes] = ..., redelivery_count: _Optional[int] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("open", "permits", "check_id", "seek")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    CHECK_ID_FIELD_NUMBER: _ClassVar[int]
    SEEK_FIELD_NUMBER: _ClassVar[int]
    open: ReadOpen
    permits: int
    check_id: int
    seek: ReadSeek
    def __init__(self, open: _Optional[_Union[ReadOpen, _Mapping]] = ..., permits: _Optional[int] = ..., check_id: _Optional[int] = ..., seek: _Optional[_Union[ReadSeek, _Mapping]] = ...) -> None: ...

class ReadOpen(_message.Message):
    __slots__ = ("topic", "start", "read_compacted", "reader_name", "is_raw", "read_committed", "subscription", "reads_pulsar_entries", "schema", "permits")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    READ_COMPACTED_FIELD_NUMBER: _ClassVar[int]
    READER_NAME_FIELD_NUMBER: _ClassVar[int]
    IS_RAW_FIELD_NUMBER: _ClassVar[int]
    READ_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    READS_PULSAR_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    start: StartPosition
    read_compacted: bool
    reader_name: str
    is_raw: bool
    read_committed: bool
    subscription: str
    reads_pulsar_entries: bool
    schema: _records_pb2.SchemaDefinition
    permits: int
    def __init__(self, topic: _Optional[str] = ..., start: _Optional[_Union[StartPosition, _Mapping]] = ..., read_compacted: _Optional[bool] = ..., reader_name: _Optional[str] = ..., is_raw: _Optional[bool] = ..., read_committed: _Optional[bool] = ..., subscription: _Optional[str] = ..., reads_pulsar_entries: _Optional[bool] = ..., schema: _Optional[_Union[_records_pb2.SchemaDefinition, _Mapping]] = ..., permits: _Optional[int] = ...) -> None: ...

class ReadSeek(_message.Message):
    __slots__ = ("start", "seek_id")
    START_FIELD_NUMBER: _ClassVar[int]
    SEEK_ID_FIELD_NUMBER: _ClassVar[int]
    start: StartPosition
    seek_id: int
    def __init__(self, start: _Optional[_Union[StartPosition, _Mapping]] = ..., seek_id: _Optional[int] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("ready", "entries", "end_of_data_check_ids", "more_check_ids", "seek_id", "is_raw", "end_of_topic", "first_offset")
    READY_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    END_OF_DATA_CHECK_IDS_FIELD_NUMBER: _ClassVar[int]
    MORE_CHECK_IDS_FIELD_NUMBER: _ClassVar[int]
    SEEK_ID_FIELD_NUMBER: _ClassVar[int]
    IS_RAW_FIELD_NUMBER: _ClassVar[int]
    END_OF_TOPIC_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ready: ReadReady
    entries: _containers.RepeatedScalarFieldContainer[bytes]
    end_of_data_check_ids: _containers.RepeatedScalarFieldContainer[int]
    more_check_ids: _containers.RepeatedScalarFieldContainer[int]
    seek_id: int
    is_raw: bool
    end_of_topic: bool
    first_offset: int
    def __init__(self, ready: _Optional[_Union[ReadReady, _Mapping]] = ..., entries: _Optional[_Iterable[bytes]] = ..., end_of_data_check_ids: _Optional[_Iterable[int]] = ..., more_check_ids: _Optional[_Iterable[int]] = ..., seek_id: _Optional[int] = ..., is_raw: _Optional[bool] = ..., end_of_topic: _Optional[bool] = ..., first_offset: _Optional[int] = ...) -> None: ...

class ReadReady(_message.Message):
    __slots__ = ("reader_name", "codec", "first_offset", "permits")
    READER_NAME_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    reader_name: str
    codec: EntryCodec
    first_offset: int
    permits: int
    def __init__(self, reader_name: _Optional[str] = ..., codec: _Optional[_Union[EntryCodec, str]] = ..., first_offset: _Optional[int] = ..., permits: _Optional[int] = ...) -> None: ...

class GetPartitionsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class GetPartitionsResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: int
    def __init__(self, partitions: _Optional[int] = ...) -> None: ...

class GetLastMessageIdRequest(_message.Message):
    __slots__ = ("topic", "read_compacted")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    READ_COMPACTED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    read_compacted: bool
    def __init__(self, topic: _Optional[str] = ..., read_compacted: _Optional[bool] = ...) -> None: ...

class GetLastMessageIdResponse(_message.Message):
    __slots__ = ("message_id", "codec")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    message_id: _records_pb2.MessageId
    codec: EntryCodec
    def __init__(self, message_id: _Optional[_Union[_records_pb2.MessageId, _Mapping]] = ..., codec: _Optional[_Union[EntryCodec, str]] = ...) -> None: ...

class SeekRequest(_message.Message):
    __slots__ = ("topic", "subscription", "start")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    start: StartPosition
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., start: _Optional[_Union[StartPosition, _Mapping]] = ...) -> None: ...

class SeekResponse(_message.Message):
    __slots__ = ("incarnation",)
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    def __init__(self, incarnation: _Optional[int] = ...) -> None: ...

class UnsubscribeRequest(_message.Message):
    __slots__ = ("topic", "subscription", "force")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    force: bool
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class UnsubscribeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

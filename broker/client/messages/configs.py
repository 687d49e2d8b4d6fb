"""The arguments of the calls that open producers, consumers, readers and table views, checked.

A class has the arguments of one call, with their names and defaults; `arguments.takes` gives the
call its signature.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from ledgerfold.broker.client.messages.argument_types import check_fields
from ledgerfold.broker.client.messages.arguments import (
    InvalidConfiguration,
    check_least,
    check_topic_argument,
    check_topics_argument,
)
from ledgerfold.broker.client.messages.declared import declared
from ledgerfold.broker.client.messages.message import Decoder
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.messages.new_message import INT64_MAX, check_properties
from ledgerfold.broker.client.messages.options import (
    BatchingType,
    CompressionType,
    ConsumerType,
    HashingScheme,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from ledgerfold.broker.client.messages.policies import (
    ConsumerBatchReceivePolicy,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
)
from ledgerfold.broker.client.messages.start import id_of_offset
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.strategies.strategic import TopicCompactionStrategy
from ledgerfold.v1 import data_pb2

# Pulsar's defaults; the second is for all partitions of a topic together.
PENDING_MESSAGES_MAX = 1000
PENDING_MESSAGES_ACROSS_PARTITIONS_MAX = 50_000
# For a producer of many small messages, which waits: batches fill while others are being stored.
BULK_SENDING: Final[dict[str, Any]] = {"max_pending_messages": 50_000, "block_if_queue_full": True}
# Queued messages of one consumer of a partitioned topic, over all partitions.
RECEIVER_QUEUE_MAX = 50_000
# Pulsar's minimum.
UNACKED_TIMEOUT_MIN_MS = 10_000
_WIRE_TYPES = {
    ConsumerType.Exclusive: data_pb2.SUBSCRIPTION_TYPE_EXCLUSIVE,
    ConsumerType.Shared: data_pb2.SUBSCRIPTION_TYPE_SHARED,
    ConsumerType.Failover: data_pb2.SUBSCRIPTION_TYPE_FAILOVER,
    ConsumerType.KeyShared: data_pb2.SUBSCRIPTION_TYPE_KEY_SHARED,
}


class Schema(Decoder, Protocol):
    """A schema, of this package or of Pulsar's Python client."""

    def encode(self, obj: Any) -> bytes: ...


def _check_schema(schema: object, *methods: str) -> None:
    """Raises InvalidRequest unless it is None or has these methods."""
    missing = [each for each in methods if not callable(getattr(schema, each, None))]
    if schema is not None and (missing or isinstance(schema, type)):
        kind = "an object" if missing else "an instance"
        raise InvalidRequest(
            f"A schema must be {kind} with {' and '.join(methods)}, not {schema!r:.100}."
        )


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """The arguments of `Client.create_producer` (see there)."""

    topic: str
    producer_name: str | None = None
    _: KW_ONLY
    initial_sequence_id: int | None = None
    send_timeout_millis: int = 30_000
    compression_type: CompressionType = CompressionType.NONE
    max_pending_messages: int = PENDING_MESSAGES_MAX
    block_if_queue_full: bool = False
    batching_enabled: bool = False
    batching_max_messages: int = 1000
    batching_max_allowed_size_in_bytes: int = 128 * 1024
    batching_max_publish_delay_ms: int = 10
    batching_type: BatchingType = BatchingType.Default
    max_pending_messages_across_partitions: int = PENDING_MESSAGES_ACROSS_PARTITIONS_MAX
    message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution
    hashing_scheme: HashingScheme = HashingScheme.Murmur3_32Hash
    access_mode: ProducerAccessMode = ProducerAccessMode.Shared
    # None: contents are bytes.
    schema: Schema | None = None

    def __post_init__(self) -> None:
        check_topic_argument(self.topic)
        check_fields(self)
        _check_schema(self.schema, "encode", "decode")
        initial = self.initial_sequence_id
        if initial is not None and not -1 <= initial <= INT64_MAX:
            raise InvalidRequest(
                f"initial_sequence_id {initial} is not from -1 to {INT64_MAX} (the first "
                "message gets the next id)."
            )
        check_least(self, 0, "send_timeout_millis", "max_pending_messages")
        check_least(
            self,
            1,
            "batching_max_messages",
            "batching_max_allowed_size_in_bytes",
            "batching_max_publish_delay_ms",
            "max_pending_messages_across_partitions",
        )


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """The arguments of `Client.subscribe` (see there)."""

    topic: str | Sequence[str] | re.Pattern[str]
    subscription_name: str
    consumer_type: ConsumerType = ConsumerType.Exclusive
    _: KW_ONLY
    receiver_queue_size: int = 1000
    consumer_name: str | None = None
    unacked_messages_timeout_ms: int | None = None
    negative_ack_redelivery_delay_ms: int = 60_000
    is_read_compacted: bool = False
    properties: dict[str, str] | None = None
    initial_position: InitialPosition = InitialPosition.Latest
    start_message_id_inclusive: bool = False
    max_total_receiver_queue_size_across_partitions: int = RECEIVER_QUEUE_MAX
    batch_receive_policy: ConsumerBatchReceivePolicy | None = None
    dead_letter_policy: ConsumerDeadLetterPolicy | None = None
    key_shared_policy: ConsumerKeySharedPolicy | None = None
    pattern_auto_discovery_period: int = 60
    regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly
    schema: Decoder | None = None
    # As of Pulsar's Java client.
    subscription_properties: dict[str, str] | None = None

    def __post_init__(self) -> None:
        _check_schema(self.schema, "decode")
        check_topics_argument(self.topic)
        check_fields(self)
        check_properties(self.properties)
        check_properties(self.subscription_properties, "subscription_properties")
        if not self.subscription_name:
            raise InvalidRequest("subscription_name must be a non-empty string.")
        check_least(
            self,
            1,
            "max_total_receiver_queue_size_across_partitions",
            "pattern_auto_discovery_period",
        )
        check_least(self, 0, "receiver_queue_size", "negative_ack_redelivery_delay_ms")
        if 0 != (self.unacked_messages_timeout_ms or 0) < UNACKED_TIMEOUT_MIN_MS:
            raise InvalidRequest(
                f"unacked_messages_timeout_ms must be None or 0 (off), or {UNACKED_TIMEOUT_MIN_MS} "
                "or more."
            )
        if self.key_shared_policy is not None and self.consumer_type != ConsumerType.KeyShared:
            raise InvalidRequest("key_shared_policy is for consumer_type=ConsumerType.KeyShared.")
        if self.is_read_compacted and self.is_shared:
            raise InvalidConfiguration(
                "is_read_compacted works with Exclusive and Failover subscriptions and with "
                "readers: a compacted view must be read in order, by one client."
            )

    @property
    def is_shared(self) -> bool:
        """True if several consumers share the messages (Shared, KeyShared)."""
        return self.consumer_type in (ConsumerType.Shared, ConsumerType.KeyShared)

    def opening(self, topic: str) -> data_pb2.SubscribeOpen:
        is_earliest = self.initial_position == InitialPosition.Earliest
        policy = self.key_shared_policy
        return data_pb2.SubscribeOpen(
            topic=topic,
            subscription=self.subscription_name,
            type=_WIRE_TYPES[self.consumer_type],
            durable=True,
            start=data_pb2.StartPosition(earliest=True)
            if is_earliest
            else data_pb2.StartPosition(latest=True),
            read_compacted=self.is_read_compacted,
            consumer_name=self.consumer_name or "",
            properties=self.properties,
            key_shared=None if policy is None else policy.on_wire,
            reads_pulsar_entries=True,
            schema=declared(self.schema),
            subscription_properties=self.subscription_properties,
        )


class Isolation(StrEnum):
    """The isolation level of a reader of a Kafka topic, named as Kafka's isolation.level."""

    READ_UNCOMMITTED = "read_uncommitted"
    # No records of aborted or open transactions, and none after the start of an open one.
    READ_COMMITTED = "read_committed"


@dataclass(frozen=True, slots=True)
class ReaderConfig:
    """The arguments of `Client.create_reader` (see there)."""

    topic: str
    start_message_id: MessageId | None = None
    _: KW_ONLY
    receiver_queue_size: int = 1000
    reader_name: str | None = None
    subscription_role_prefix: str | None = None
    # As of Pulsar's Java client.
    subscription_name: str | None = None
    is_read_compacted: bool = False
    start_message_id_inclusive: bool = False
    start_offset: int | None = None
    start_time_ms: int | None = None
    isolation: str = Isolation.READ_UNCOMMITTED
    schema: Decoder | None = None

    def __post_init__(self) -> None:
        _check_schema(self.schema, "decode")
        check_topic_argument(self.topic)
        check_fields(self)
        starts = (self.start_message_id, self.start_offset, self.start_time_ms)
        if sum(start is not None for start in starts) != 1:
            raise InvalidRequest(
                "Pass exactly one of start_message_id, start_offset and start_time_ms."
            )
        check_least(self, 0, "receiver_queue_size")
        if self.isolation not in [*Isolation]:
            raise InvalidRequest(
                f"isolation must be {' or '.join(Isolation)}, not {self.isolation!r}."
            )

    @property
    def start(self) -> MessageId | int:
        """The start: a message id, or ms since the epoch."""
        if self.start_offset is not None:
            return id_of_offset(self.start_offset)
        position = self.start_time_ms if self.start_message_id is None else self.start_message_id
        assert position is not None
        return position

    @property
    def is_start_inclusive(self) -> bool:
        return self.start_message_id_inclusive or self.start_offset is not None

    @property
    def subscription(self) -> str:
        """The name of the reader's subscription; empty: the broker generates one."""
        if self.subscription_name is None and self.subscription_role_prefix:
            return f"{self.subscription_role_prefix}-reader-{secrets.token_hex(5)}"
        return self.subscription_name or ""

    @property
    def read_committed(self) -> bool:
        return self.isolation == Isolation.READ_COMMITTED


@dataclass(frozen=True, slots=True)
class TableViewConfig:
    """The arguments of `Client.create_table_view` (see there)."""

    topic: str
    subscription_name: str | None = None
    # None: values are the contents as bytes.
    schema: Decoder | None = None
    # None: the last message of each key.
    strategy: TopicCompactionStrategy | None = None

    def __post_init__(self) -> None:
        check_topic_argument(self.topic)
        check_fields(self)
        _check_schema(self.schema, "decode")

"""The choices of the client API, named as in Apache Pulsar's Python client.

    >>> from ledgerfold.broker.client.messages.options import CompressionType, ConsumerType
    >>> CompressionType.ZSTD.value, ConsumerType.KeyShared.name
    (3, 'KeyShared')

A `send_async` callback gets a `Result`. Calls that return raise an error of storage/errors.py
instead; `result_of` maps errors to results.
"""

from __future__ import annotations

from enum import IntEnum

from ledgerfold.storage.entry import Compression
from ledgerfold.storage.errors import (
    AlreadyClosed,
    BacklogQuotaExceeded,
    IncompatibleSchema,
    InvalidRequest,
    KafkaError,
    LedgerfoldError,
    MessageTooLarge,
    NotAllowed,
    Overloaded,
    ProducerBlocked,
    ProducerBusy,
    ProducerFenced,
    StorageError,
    Timeout,
    TopicNotFound,
    TopicTerminated,
    Unavailable,
)


class CompressionType(IntEnum):
    """The compression of the values of an entry (`pulsar.CompressionType`).

    A Kafka topic accepts Kafka's: all but ZLib, and GZIP, which no other topic accepts.
    """

    NONE = Compression.NONE
    LZ4 = Compression.LZ4
    ZLib = Compression.ZLIB
    ZSTD = Compression.ZSTD
    SNAPPY = Compression.SNAPPY
    GZIP = 5


class ConsumerType(IntEnum):
    """The way a subscription shares its messages among consumers (`pulsar.ConsumerType`)."""

    Exclusive = 0
    Shared = 1
    Failover = 2
    KeyShared = 3


class InitialPosition(IntEnum):
    """The position at which a new subscription begins (`pulsar.InitialPosition`)."""

    Latest = 0
    Earliest = 1


class BatchingType(IntEnum):
    """The way messages of different keys are batched (`pulsar.BatchingType`)."""

    Default = 0
    # One batch per key. A KeyShared subscription needs it to keep keys apart.
    KeyBased = 1


class PartitionsRoutingMode(IntEnum):
    """The routing of messages without a key on a partitioned topic
    (`pulsar.PartitionsRoutingMode`).
    """

    UseSinglePartition = 0
    RoundRobinDistribution = 1


class KeySharedMode(IntEnum):
    """The way keys are shared among consumers (`pulsar.KeySharedMode`)."""

    AutoSplit = 0
    Sticky = 1


class RegexSubscriptionMode(IntEnum):
    """The topics that a pattern is matched with (`pulsar.RegexSubscriptionMode`)."""

    PersistentOnly = 0
    NonPersistentOnly = 1
    AllTopics = 2


class ProducerAccessMode(IntEnum):
    """The access of a producer to its topic (`pulsar.ProducerAccessMode`)."""

    # Any number of producers may share the topic.
    Shared = 0
    # No other producer; refused if there is one.
    Exclusive = 1
    # No other producer; waits until there is none.
    WaitForExclusive = 2
    # No other producer; ends all others.
    ExclusiveWithFencing = 3


class HashingScheme(IntEnum):
    """The hash that maps keys to partitions; Pulsar's clients map keys the same way."""

    Murmur3_32Hash = 0
    # The default of Pulsar's Java client.
    JavaStringHash = 1


class Result(IntEnum):
    """The outcome of a `send_async` (`pulsar.Result`; the values are this project's own)."""

    Ok = 0
    UnknownError = 1
    Timeout = 2
    ConnectError = 3
    AlreadyClosed = 4
    ProducerQueueIsFull = 5
    InvalidMessage = 6
    NotAllowedError = 7
    TopicNotFound = 8
    ProducerBusy = 9
    BrokerPersistenceError = 10
    ProducerFenced = 11
    IncompatibleSchema = 12
    MessageTooBig = 13
    TopicTerminated = 14
    ProducerBlockedQuotaExceededError = 15
    ProducerBlockedQuotaExceededException = 16


_RESULTS: tuple[tuple[type[LedgerfoldError], Result], ...] = (
    (MessageTooLarge, Result.MessageTooBig),
    (TopicTerminated, Result.TopicTerminated),
    (ProducerBlocked, Result.ProducerBlockedQuotaExceededError),
    (BacklogQuotaExceeded, Result.ProducerBlockedQuotaExceededException),
    (Timeout, Result.Timeout),
    (AlreadyClosed, Result.AlreadyClosed),
    (Overloaded, Result.ProducerQueueIsFull),
    (Unavailable, Result.ConnectError),
    (InvalidRequest, Result.InvalidMessage),
    (KafkaError, Result.InvalidMessage),
    (NotAllowed, Result.NotAllowedError),
    (TopicNotFound, Result.TopicNotFound),
    (ProducerBusy, Result.ProducerBusy),
    (ProducerFenced, Result.ProducerFenced),
    (IncompatibleSchema, Result.IncompatibleSchema),
    (StorageError, Result.BrokerPersistenceError),
)


def result_of(error: LedgerfoldError) -> Result:
    """Returns the result that a callback gets for `error`."""
    return next((result for cls, result in _RESULTS if isinstance(error, cls)), Result.UnknownError)

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
    AuthenticationFailed,
    AuthorizationFailed,
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


class Choice(IntEnum):
    """A choice, which is shown as by Pulsar's client.

    >>> str(ConsumerType.Shared), f"{ConsumerType.Shared}", int(ConsumerType.Shared)
    ('ConsumerType.Shared', 'ConsumerType.Shared', 1)
    """

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


class CompressionType(Choice):
    """The compression of the values of an entry (`pulsar.CompressionType`).

    A Kafka topic accepts Kafka's: all but ZLib, and GZIP, which no other topic accepts.
    """

    NONE = Compression.NONE
    LZ4 = Compression.LZ4
    ZLib = Compression.ZLIB
    ZSTD = Compression.ZSTD
    SNAPPY = Compression.SNAPPY
    GZIP = 5


class ConsumerType(Choice):
    """The way a subscription shares its messages among consumers (`pulsar.ConsumerType`)."""

    Exclusive = 0
    Shared = 1
    Failover = 2
    KeyShared = 3


class InitialPosition(Choice):
    """The position at which a new subscription begins (`pulsar.InitialPosition`)."""

    Latest = 0
    Earliest = 1


class BatchingType(Choice):
    """The way messages of different keys are batched (`pulsar.BatchingType`)."""

    Default = 0
    # One batch per key. A KeyShared subscription needs it to keep keys apart.
    KeyBased = 1


class PartitionsRoutingMode(Choice):
    """The routing of messages without a key on a partitioned topic
    (`pulsar.PartitionsRoutingMode`).
    """

    UseSinglePartition = 0
    RoundRobinDistribution = 1


class KeySharedMode(Choice):
    """The way keys are shared among consumers (`pulsar.KeySharedMode`)."""

    AutoSplit = 0
    Sticky = 1


class RegexSubscriptionMode(Choice):
    """The topics that a pattern is matched with (`pulsar.RegexSubscriptionMode`)."""

    PersistentOnly = 0
    NonPersistentOnly = 1
    AllTopics = 2


class ProducerAccessMode(Choice):
    """The access of a producer to its topic (`pulsar.ProducerAccessMode`)."""

    # Any number of producers may share the topic.
    Shared = 0
    # No other producer; refused if there is one.
    Exclusive = 1
    # No other producer; waits until there is none.
    WaitForExclusive = 2
    # No other producer; ends all others.
    ExclusiveWithFencing = 3


class HashingScheme(Choice):
    """The hash that maps keys to partitions; Pulsar's clients map keys the same way."""

    Murmur3_32Hash = 0
    # The default of Pulsar's Java client.
    JavaStringHash = 1


class Result(Choice):
    """The outcome of a `send_async` (`pulsar.Result`)."""

    Ok = 0
    UnknownError = 1
    Timeout = 3
    ConnectError = 5
    AuthenticationError = 7
    AuthorizationError = 8
    BrokerPersistenceError = 11
    AlreadyClosed = 15
    InvalidMessage = 16
    ProducerBusy = 19
    ProducerBlockedQuotaExceededError = 25
    ProducerBlockedQuotaExceededException = 26
    ProducerQueueIsFull = 27
    MessageTooBig = 28
    TopicNotFound = 29
    TopicTerminated = 33
    IncompatibleSchema = 35
    NotAllowedError = 40
    ProducerFenced = 43


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
    (AuthenticationFailed, Result.AuthenticationError),
    (AuthorizationFailed, Result.AuthorizationError),
    (StorageError, Result.BrokerPersistenceError),
)


def result_of(error: LedgerfoldError) -> Result:
    """Returns the result that a callback gets for `error`."""
    return next((result for cls, result in _RESULTS if isinstance(error, cls)), Result.UnknownError)

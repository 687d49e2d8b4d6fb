"""The choices of the client API, named as in Apache Pulsar's Python client.

    >>> from ledgerfold.broker.client.messages.options import CompressionType, ConsumerType
    >>> CompressionType.ZSTD.value, ConsumerType.KeyShared.name
    (3, 'KeyShared')

`Result` is what a `send_async` callback gets. Calls that return raise an error of storage/errors.py
instead; `result_of` tells which result stands for which error.
"""

from __future__ import annotations

from enum import IntEnum

from ledgerfold.storage.entry import Compression
from ledgerfold.storage.errors import (
    AlreadyClosed,
    InvalidRequest,
    KafkaError,
    LedgerfoldError,
    NotAllowed,
    Overloaded,
    ProducerBusy,
    StorageError,
    Timeout,
    TopicNotFound,
    Unavailable,
)


class CompressionType(IntEnum):
    """What a producer compresses the values of an entry with (`pulsar.CompressionType`).

    A Kafka topic takes what Kafka has: all but ZLib, and GZIP, which no other topic takes.
    """

    NONE = Compression.NONE
    LZ4 = Compression.LZ4
    ZLib = Compression.ZLIB
    ZSTD = Compression.ZSTD
    SNAPPY = Compression.SNAPPY
    GZIP = 5


class ConsumerType(IntEnum):
    """How a subscription shares its messages among consumers (`pulsar.ConsumerType`)."""

    Exclusive = 0
    Shared = 1
    Failover = 2
    KeyShared = 3


class InitialPosition(IntEnum):
    """Where a new subscription begins (`pulsar.InitialPosition`)."""

    Latest = 0
    Earliest = 1


class BatchingType(IntEnum):
    """Whether messages of different keys share a batch (`pulsar.BatchingType`)."""

    Default = 0
    # One batch per key: what a KeyShared subscription needs to keep keys apart.
    KeyBased = 1


class PartitionsRoutingMode(IntEnum):
    """Where messages without a key go on a partitioned topic (`pulsar.PartitionsRoutingMode`)."""

    UseSinglePartition = 0
    RoundRobinDistribution = 1


class HashingScheme(IntEnum):
    """How a key chooses its partition, the same as in Pulsar's clients that are told the same."""

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


_RESULTS: tuple[tuple[type[LedgerfoldError], Result], ...] = (
    (Timeout, Result.Timeout),
    (AlreadyClosed, Result.AlreadyClosed),
    (Overloaded, Result.ProducerQueueIsFull),
    (Unavailable, Result.ConnectError),
    (InvalidRequest, Result.InvalidMessage),
    (KafkaError, Result.InvalidMessage),
    (NotAllowed, Result.NotAllowedError),
    (TopicNotFound, Result.TopicNotFound),
    (ProducerBusy, Result.ProducerBusy),
    (StorageError, Result.BrokerPersistenceError),
)


def result_of(error: LedgerfoldError) -> Result:
    """The result that a callback gets for `error`."""
    return next((result for cls, result in _RESULTS if isinstance(error, cls)), Result.UnknownError)

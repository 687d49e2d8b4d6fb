"""Ledgerfold: a broker on one machine that compacts topics as Apache Pulsar does.

It has the names of Pulsar's Python client:

    >>> import ledgerfold
    >>> with ledgerfold.Client("127.0.0.1:7650") as client:
    ...     producer = client.create_producer("prices")
    ...     message_id = producer.send(b"10", partition_key="p3")
    ...     consumer = client.subscribe("prices", "audit")
    ...     try:
    ...         message = consumer.receive(timeout_millis=100)
    ...     except ledgerfold.Timeout:
    ...         print("Nothing new.")
    Nothing new.

`ledgerfold.aio` is the asyncio client, `ledgerfold.admin` the administration, `ledgerfold.errors`
has every error, and `ledgerfold.testing` a broker for tests. docs/API.md is their manual; all other
modules of this package may change in any version.

The client is loaded on first use: broker, storage and Spark's workers import this module, too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ledgerfold import errors
from ledgerfold.errors import (
    AlreadyClosed,
    AuthenticationError,
    AuthorizationError,
    BrokerPersistenceError,
    ChecksumError,
    ConnectError,
    ConsumerAssignError,
    ConsumerBusy,
    CumulativeAcknowledgementNotAllowedError,
    IncompatibleSchema,
    InvalidConfiguration,
    InvalidMessage,
    InvalidTopicName,
    InvalidUrl,
    LedgerfoldError,
    MessageTooBig,
    NotAllowedError,
    NotConnected,
    OperationNotSupported,
    ProducerBlockedQuotaExceededError,
    ProducerBlockedQuotaExceededException,
    ProducerBusy,
    ProducerFenced,
    ProducerQueueIsFull,
    PulsarException,
    ReadError,
    ServiceUnitNotReady,
    SubscriptionNotFound,
    Timeout,
    TopicNotFound,
    TopicTerminated,
)
from ledgerfold.version import __version__

if TYPE_CHECKING:
    from ledgerfold import admin, aio, schema, testing
    from ledgerfold.broker.client import (
        Authentication,
        AuthenticationTLS,
        AuthenticationToken,
        BatchingType,
        Client,
        CompressionType,
        Consumer,
        ConsumerBatchReceivePolicy,
        ConsumerDeadLetterPolicy,
        ConsumerKeySharedPolicy,
        ConsumerType,
        HashingScheme,
        InitialPosition,
        KeySharedMode,
        Message,
        MessageId,
        PartitionsRoutingMode,
        Producer,
        ProducerAccessMode,
        Reader,
        RegexSubscriptionMode,
        Result,
        TableView,
    )

__all__ = [
    "AlreadyClosed",
    "Authentication",
    "AuthenticationError",
    "AuthenticationTLS",
    "AuthenticationToken",
    "AuthorizationError",
    "BatchingType",
    "BrokerPersistenceError",
    "ChecksumError",
    "Client",
    "CompressionType",
    "ConnectError",
    "Consumer",
    "ConsumerAssignError",
    "ConsumerBatchReceivePolicy",
    "ConsumerBusy",
    "ConsumerDeadLetterPolicy",
    "ConsumerKeySharedPolicy",
    "ConsumerType",
    "CumulativeAcknowledgementNotAllowedError",
    "HashingScheme",
    "IncompatibleSchema",
    "InitialPosition",
    "InvalidConfiguration",
    "InvalidMessage",
    "InvalidTopicName",
    "InvalidUrl",
    "KeySharedMode",
    "LedgerfoldError",
    "Message",
    "MessageId",
    "MessageTooBig",
    "NotAllowedError",
    "NotConnected",
    "OperationNotSupported",
    "PartitionsRoutingMode",
    "Producer",
    "ProducerAccessMode",
    "ProducerBlockedQuotaExceededError",
    "ProducerBlockedQuotaExceededException",
    "ProducerBusy",
    "ProducerFenced",
    "ProducerQueueIsFull",
    "PulsarException",
    "ReadError",
    "Reader",
    "RegexSubscriptionMode",
    "Result",
    "ServiceUnitNotReady",
    "SubscriptionNotFound",
    "TableView",
    "Timeout",
    "TopicNotFound",
    "TopicTerminated",
    "__version__",
    "admin",
    "aio",
    "errors",
    "schema",
    "testing",
]

_MODULES = ("admin", "aio", "schema", "testing")


if not TYPE_CHECKING:
    # A type checker would accept every name.
    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        value = globals()[name] = getattr(import_module("ledgerfold.broker.client"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""The client library, with the names of Pulsar's Python client. Users import it from `ledgerfold`.

The names below are loaded on first use, so that `ledgerfold.admin` alone starts quickly.

A client cannot be used after a fork; broker/client/streams/forks.py has the rules.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

# Set before any of these modules imports grpc, which reads it on import
# (broker/client/streams/forks.py).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

if TYPE_CHECKING:
    from ledgerfold.broker.client.messages.message import Message
    from ledgerfold.broker.client.messages.message_id import MessageId
    from ledgerfold.broker.client.messages.options import (
        BatchingType,
        CompressionType,
        ConsumerType,
        HashingScheme,
        InitialPosition,
        KeySharedMode,
        PartitionsRoutingMode,
        ProducerAccessMode,
        RegexSubscriptionMode,
        Result,
    )
    from ledgerfold.broker.client.messages.policies import (
        ConsumerBatchReceivePolicy,
        ConsumerDeadLetterPolicy,
        ConsumerKeySharedPolicy,
    )
    from ledgerfold.broker.client.streams.credentials import (
        Authentication,
        AuthenticationTLS,
        AuthenticationToken,
    )
    from ledgerfold.broker.client.sync.client import Client
    from ledgerfold.broker.client.sync.consumer import Consumer
    from ledgerfold.broker.client.sync.producer import Producer
    from ledgerfold.broker.client.sync.reader import Reader
    from ledgerfold.broker.client.sync.table_view import TableView

__all__ = [
    "Authentication",
    "AuthenticationTLS",
    "AuthenticationToken",
    "BatchingType",
    "Client",
    "CompressionType",
    "Consumer",
    "ConsumerBatchReceivePolicy",
    "ConsumerDeadLetterPolicy",
    "ConsumerKeySharedPolicy",
    "ConsumerType",
    "HashingScheme",
    "InitialPosition",
    "KeySharedMode",
    "Message",
    "MessageId",
    "PartitionsRoutingMode",
    "Producer",
    "ProducerAccessMode",
    "Reader",
    "RegexSubscriptionMode",
    "Result",
    "TableView",
]

_MODULES = {
    "Authentication": "streams.credentials",
    "AuthenticationTLS": "streams.credentials",
    "AuthenticationToken": "streams.credentials",
    "Client": "sync.client",
    "Consumer": "sync.consumer",
    "ConsumerBatchReceivePolicy": "messages.policies",
    "ConsumerDeadLetterPolicy": "messages.policies",
    "ConsumerKeySharedPolicy": "messages.policies",
    "Message": "messages.message",
    "MessageId": "messages.message_id",
    "Producer": "sync.producer",
    "Reader": "sync.reader",
    "TableView": "sync.table_view",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES.get(name, 'messages.options')}")
    return getattr(module, name)

"""The client library, with the names of Pulsar's Python client. Users import it from `ledgerfold`.

The names below are loaded on first use, so that `ledgerfold.admin` alone starts quickly.

A client cannot be used after a fork; broker/client/streams/forks.py has the rules.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

from ledgerfold.client_names import CLIENT_NAMES

# Set before any of these modules imports grpc, which reads it on import
# (broker/client/streams/forks.py).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

if TYPE_CHECKING:
    from ledgerfold.broker.client.messages.message import Message as Message
    from ledgerfold.broker.client.messages.message_id import MessageId as MessageId
    from ledgerfold.broker.client.messages.options import BatchingType as BatchingType
    from ledgerfold.broker.client.messages.options import CompressionType as CompressionType
    from ledgerfold.broker.client.messages.options import ConsumerType as ConsumerType
    from ledgerfold.broker.client.messages.options import HashingScheme as HashingScheme
    from ledgerfold.broker.client.messages.options import InitialPosition as InitialPosition
    from ledgerfold.broker.client.messages.options import KeySharedMode as KeySharedMode
    from ledgerfold.broker.client.messages.options import (
        PartitionsRoutingMode as PartitionsRoutingMode,
    )
    from ledgerfold.broker.client.messages.options import ProducerAccessMode as ProducerAccessMode
    from ledgerfold.broker.client.messages.options import (
        RegexSubscriptionMode as RegexSubscriptionMode,
    )
    from ledgerfold.broker.client.messages.options import Result as Result
    from ledgerfold.broker.client.messages.policies import (
        ConsumerBatchReceivePolicy as ConsumerBatchReceivePolicy,
    )
    from ledgerfold.broker.client.messages.policies import (
        ConsumerDeadLetterPolicy as ConsumerDeadLetterPolicy,
    )
    from ledgerfold.broker.client.messages.policies import (
        ConsumerKeySharedPolicy as ConsumerKeySharedPolicy,
    )
    from ledgerfold.broker.client.streams.credentials import Authentication as Authentication
    from ledgerfold.broker.client.streams.credentials import AuthenticationTLS as AuthenticationTLS
    from ledgerfold.broker.client.streams.credentials import (
        AuthenticationToken as AuthenticationToken,
    )
    from ledgerfold.broker.client.sync.client import Client as Client
    from ledgerfold.broker.client.sync.consumer import Consumer as Consumer
    from ledgerfold.broker.client.sync.producer import Producer as Producer
    from ledgerfold.broker.client.sync.reader import Reader as Reader
    from ledgerfold.broker.client.sync.table_view import TableView as TableView

globals()["__all__"] = [*CLIENT_NAMES]


def __getattr__(name: str) -> object:
    if name not in CLIENT_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{CLIENT_NAMES[name]}"), name)

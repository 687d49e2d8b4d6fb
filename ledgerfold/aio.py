"""The asyncio client, with the names of `pulsar.asyncio`.

Messages, ids and options are those of `ledgerfold`, errors those of `ledgerfold.errors`.
docs/API.md has an example.
"""

from __future__ import annotations

from ledgerfold.broker.client.asyncio_client.client import (
    Client,
    Consumer,
    Producer,
    Reader,
    TableView,
)
from ledgerfold.broker.client.messages.options import (
    BatchingType,
    CompressionType,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from ledgerfold.errors import PulsarException

__all__ = [
    "BatchingType",
    "Client",
    "CompressionType",
    "Consumer",
    "InitialPosition",
    "PartitionsRoutingMode",
    "Producer",
    "ProducerAccessMode",
    "PulsarException",
    "Reader",
    "RegexSubscriptionMode",
    "TableView",
]

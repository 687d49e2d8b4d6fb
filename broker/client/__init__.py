"""The client library, with the names of Pulsar's Python client.

Producers, consumers, readers and table views:

    from ledgerfold.broker.client import Client, ConsumerType, MessageId

    client = Client("127.0.0.1:7650")
    producer = client.create_producer("prices")
    producer.send(b"10", partition_key="p3")
    reader = client.create_reader("prices", MessageId.earliest, is_read_compacted=True)
    while reader.has_message_available():
        print(reader.read_next().data())
    client.close()

`ledgerfold.aio` is the same for asyncio, `ledgerfold.admin` the
administration. Errors are those of storage/errors.py.

The names below are loaded on first use, so that `ledgerfold.admin` alone starts
quickly.

A client does not survive a fork; what a forked process may do says forks.py.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

# Before any of these modules imports grpc, which reads it then (forks.py).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

if TYPE_CHECKING:
    from ledgerfold.broker.client.client import Client
    from ledgerfold.broker.client.consumer import Consumer
    from ledgerfold.broker.client.message import Message
    from ledgerfold.broker.client.message_id import MessageId
    from ledgerfold.broker.client.options import (
        BatchingType,
        CompressionType,
        ConsumerType,
        HashingScheme,
        InitialPosition,
        PartitionsRoutingMode,
        Result,
    )
    from ledgerfold.broker.client.producer import Producer
    from ledgerfold.broker.client.reader import Reader
    from ledgerfold.broker.client.table_view import TableView

__all__ = [
    "BatchingType",
    "Client",
    "CompressionType",
    "Consumer",
    "ConsumerType",
    "HashingScheme",
    "InitialPosition",
    "Message",
    "MessageId",
    "PartitionsRoutingMode",
    "Producer",
    "Reader",
    "Result",
    "TableView",
]

_MODULES = {
    "Client": "client",
    "Consumer": "consumer",
    "Message": "message",
    "MessageId": "message_id",
    "Producer": "producer",
    "Reader": "reader",
    "TableView": "table_view",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES.get(name, 'options')}")
    return getattr(module, name)

"""The asyncio client, with the names of `pulsar.asyncio`.

Messages, ids and options are those of `ledgerfold`, errors those of `ledgerfold.errors`.
docs/API.md has an example.
"""

from __future__ import annotations

from ledgerfold.broker.client.asyncio_client.client import Client as Client
from ledgerfold.broker.client.asyncio_client.client import Consumer as Consumer
from ledgerfold.broker.client.asyncio_client.client import Producer as Producer
from ledgerfold.broker.client.asyncio_client.client import Reader as Reader
from ledgerfold.broker.client.asyncio_client.client import TableView as TableView
from ledgerfold.broker.client.messages.options import BatchingType as BatchingType
from ledgerfold.broker.client.messages.options import CompressionType as CompressionType
from ledgerfold.broker.client.messages.options import InitialPosition as InitialPosition
from ledgerfold.broker.client.messages.options import PartitionsRoutingMode as PartitionsRoutingMode
from ledgerfold.broker.client.messages.options import ProducerAccessMode as ProducerAccessMode
from ledgerfold.broker.client.messages.options import RegexSubscriptionMode as RegexSubscriptionMode
from ledgerfold.errors import PulsarException as PulsarException
from ledgerfold.exports import export

export(globals())

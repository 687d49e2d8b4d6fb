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

__all__ = ["Client", "Consumer", "Producer", "Reader", "TableView"]

"""A broker that is not one, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledgerfold.broker.client import Client
from tests.support.fake_broker import ThreadedFakeBroker, running_broker


@pytest.fixture
def broker() -> Iterator[ThreadedFakeBroker]:
    with running_broker() as running:
        yield running


@pytest.fixture
def client(broker: ThreadedFakeBroker) -> Iterator[Client]:
    client = Client(
        broker.address,
        operation_timeout_seconds=10,
        starting_backoff_interval_ms=10,
        max_backoff_interval_ms=50,
    )
    yield client
    client.shutdown()

"""A broker that is not one, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledgerfold.broker.client import Client
from tests.support.fake_broker import QUICK, ThreadedFakeBroker, running_broker


@pytest.fixture
def broker() -> Iterator[ThreadedFakeBroker]:
    with running_broker() as running:
        yield running


@pytest.fixture
def client(broker: ThreadedFakeBroker) -> Iterator[Client]:
    client = Client(broker.address, **QUICK)
    yield client
    client.shutdown()

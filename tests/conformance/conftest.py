"""`scenario`: a topic of its own on the session's broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.scenario import Scenario
from tests.support.broker_process import BrokerProcess


@pytest.fixture
def scenario(shared_broker: BrokerProcess, topic: str) -> Iterator[Scenario]:
    made = Scenario(shared_broker.url, topic)
    yield made
    made.close()

"""A broker process for each test, with a client and an admin connection.

A module that needs a broker with other options overrides `broker_arguments`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from tests.conftest import MakeBroker
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import Cli, ledgerfold
from tests.support.ports import free_port


@pytest.fixture
def broker_arguments() -> list[str]:
    """Returns the arguments of `serve`."""
    return []


@pytest.fixture
def own_port() -> list[str]:
    """Returns the arguments for a port that the broker keeps when it restarts."""
    return ["--listen", f"127.0.0.1:{free_port()}"]


@pytest.fixture
def broker(broker_process: MakeBroker, broker_arguments: list[str]) -> BrokerProcess:
    return broker_process(*broker_arguments)


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    """Retries a missing broker five times a second; closes at once, with everything open."""
    client = Client(broker.url, max_backoff_interval_ms=200)
    yield client
    client.shutdown()


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(broker.url) as admin:
        yield admin


@pytest.fixture
def cli(shared_broker: BrokerProcess) -> Cli:
    """Runs the command line in this process, with the broker that has a warm compactor."""
    return lambda *arguments, stdin=b"": ledgerfold(
        "--url", shared_broker.url, *arguments, stdin=stdin
    )

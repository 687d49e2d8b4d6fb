"""A broker for each module, and Pulsar's unmodified client."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest

from ledgerfold.broker.client import Client
from tests.pulsar.recorded import RawClient
from tests.support.broker_process import BrokerProcess
from tests.support.compactor_process import CompactorProcess
from tests.support.waiting import WAIT_S

Connect = Callable[[str], pulsar.Client]
# The client's log is not shown: broken connections are part of the tests.
_SILENT = logging.Logger("pulsar", logging.CRITICAL)


def connected(url: str) -> pulsar.Client:
    return pulsar.Client(f"pulsar://{url}", operation_timeout_seconds=round(WAIT_S), logger=_SILENT)


@pytest.fixture
def connect() -> Connect:
    return connected


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder: Path = tmp_path_factory.mktemp("broker")
    arguments = ("--compactor", "off", "--pulsar-listen", "127.0.0.1:0")
    with BrokerProcess(folder / "data", arguments=arguments) as broker:
        yield broker


@pytest.fixture(scope="session")
def broker_with_worker(
    tmp_path_factory: pytest.TempPathFactory, compactor: CompactorProcess
) -> Iterator[BrokerProcess]:
    """One broker with the compactor of all tests."""
    data_dir = tmp_path_factory.mktemp("broker") / "data"
    arguments = ("--compactor", compactor.address, "--pulsar-listen", "127.0.0.1:0")
    with BrokerProcess(data_dir, arguments=arguments) as broker:
        broker.wait_for_compactor()
        yield broker


@pytest.fixture
def url(broker: BrokerProcess) -> str:
    """Returns the address of the binary protocol."""
    return str(broker.ready["pulsar"])


@pytest.fixture
def raw(url: str) -> Iterator[RawClient]:
    with RawClient(url) as client:
        yield client


@pytest.fixture
def client(url: str) -> Iterator[pulsar.Client]:
    client = connected(url)
    yield client
    client.close()


@pytest.fixture
def native(broker: BrokerProcess) -> Iterator[Client]:
    """Returns a client of this package."""
    with Client(broker.url) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """Returns a topic of this test only."""
    return str(request.node.name).replace("[", "-").replace("]", "")

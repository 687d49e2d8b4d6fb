"""One broker without a compactor for the tests of the command line that need one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.command_line import Ran, ledgerfold


class Ledgerfold(Protocol):
    def __call__(self, *arguments: str, stdin: bytes = b"") -> Ran: ...


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("command-line") / "data"


@pytest.fixture(scope="session")
def url(data_dir: Path) -> Iterator[str]:
    """Starts a broker whose topics are shared: use `topic` for a name."""
    with BrokerProcess(data_dir, arguments=("--compactor", "off")) as broker:
        yield broker.url


@pytest.fixture
def cli(url: str) -> Ledgerfold:
    """The command line, of this process, with that broker."""
    return lambda *arguments, stdin=b"": ledgerfold("--url", url, *arguments, stdin=stdin)

"""The examples of the client library run on a broker as written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgerfold.broker.client.administration.admin import Admin
from tests.support.broker_process import BrokerProcess
from tests.support.examples import failures, with_examples


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Starts a broker that allows the faults of the examples of `ledgerfold.testing_faults`."""
    allowed = ("--compactor", "off", "--allow-faults", "--allow-reset")
    with BrokerProcess(tmp_path_factory.mktemp("examples") / "data", arguments=allowed) as broker:
        yield broker.url


@pytest.mark.parametrize("module", with_examples(connecting=True))
def test_the_examples_of_a_module(module: str, url: str, tmp_path: Path) -> None:
    """Each module's examples begin with an empty broker, because they share topics."""
    with Admin(url) as admin:
        admin.reset()
    assert not failures(module, tmp_path, url)

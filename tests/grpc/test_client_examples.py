"""The examples of the client library run on a broker as written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.examples import failures, with_examples


@pytest.fixture
def broker_arguments(broker_arguments: list[str]) -> list[str]:
    """Allows the faults that the examples of `ledgerfold.testing_faults` make."""
    return [*broker_arguments, "--allow-faults"]


@pytest.mark.parametrize("module", with_examples(connecting=True))
def test_the_examples_of_a_module(module: str, broker: BrokerProcess, tmp_path: Path) -> None:
    """Each module's examples have a separate broker, because they share topics."""
    assert not failures(module, tmp_path, broker.url)

"""The examples of the client library run on a broker as written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.examples import failures, with_examples


@pytest.mark.parametrize("module", with_examples(connecting=True))
def test_the_examples_of_a_module(module: str, broker: BrokerProcess, tmp_path: Path) -> None:
    """Each module's examples have a separate broker, because they share topics."""
    assert not failures(module, tmp_path, broker.url)

"""Fixtures of crash tests: a compactor that outlives the brokers, so that Spark starts once."""

from __future__ import annotations

import pytest

from tests.support.compactor_process import CompactorProcess


@pytest.fixture(scope="session")
def worker(compactor: CompactorProcess) -> str:
    """The address of a compactor that no broker started."""
    return compactor.address

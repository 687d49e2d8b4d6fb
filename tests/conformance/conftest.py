"""`brokers`: the brokers that run cases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cases.ledgerfold import Brokers
from tests.support.compactor_process import CompactorProcess


@pytest.fixture(scope="session")
def brokers(
    tmp_path_factory: pytest.TempPathFactory, compactor: CompactorProcess
) -> Iterator[Brokers]:
    with Brokers(tmp_path_factory.mktemp("cases"), compactor) as started:
        yield started

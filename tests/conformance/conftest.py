"""`brokers`: the brokers that run cases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cases.ledgerfold import ALLOWED, Brokers
from tests.support.compactor_process import CompactorProcess


@pytest.fixture(scope="session")
def brokers(
    tmp_path_factory: pytest.TempPathFactory, compactor: CompactorProcess
) -> Iterator[Brokers]:
    with Brokers(tmp_path_factory.mktemp("cases"), compactor) as started:
        yield started


@pytest.fixture(scope="session")
def inline_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Brokers whose runs are inline: as on Spark, byte for byte, in a fraction of the time."""
    folder = tmp_path_factory.mktemp("inline")
    with (
        CompactorProcess(folder, arguments=(*ALLOWED, "--engine", "inline")) as compactor,
        Brokers(folder, compactor) as started,
    ):
        yield started

"""Fixtures: one Spark session per test session, in this process, and one worker process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ledgerfold.compactor.job.session import Session, SessionSettings, start_session
from tests.spark.sql_session import sql_session
from tests.support.compactor_process import CompactorProcess


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    started = start_session(SessionSettings("local[2]", tmp_path_factory.mktemp("spark")))
    yield started
    started.stop()


@pytest.fixture(scope="session")
def sql(session: Session) -> SparkSession:
    return sql_session(session)


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder in which the first worker leaves the JVM's class-data archive."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def worker(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Iterator[CompactorProcess]:
    """Yields a warm worker."""
    with CompactorProcess(tmp_path_factory.mktemp("worker"), cache_dir) as started:
        started.wait_until_serving()
        yield started

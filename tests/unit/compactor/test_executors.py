"""Checks of executors name missing requirements with a remedy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ledgerfold.compactor.job import executors
from ledgerfold.compactor.job.executors import Executor, ExecutorCheck, advice_on, check_executors
from ledgerfold.storage.errors import CompactorUnavailable
from ledgerfold.version import __version__


class FakeCluster:
    """Spark's context with one executor, by default this process."""

    defaultParallelism = 2  # noqa: N815

    def __init__(self, found: list[Executor] | None = None) -> None:
        self._found, self.tasks = found, 0

    def parallelize(self, numbers: range, tasks: int) -> FakeCluster:
        self.tasks = tasks
        return self

    def mapPartitions(self, look: ExecutorCheck) -> FakeCluster:  # noqa: N802
        self._found = self._found or [each for _ in range(self.tasks) for each in look([])]
        return self

    def collect(self) -> list[Executor]:
        assert self._found is not None
        return self._found


def check(found: list[Executor] | None = None, folder: Path | None = None) -> None:
    cluster: Any = FakeCluster(found)
    check_executors(cluster, folder)


def test_an_executor_equal_to_the_worker_is_accepted(tmp_path: Path) -> None:
    """And nothing stays in its folder."""
    check(folder=tmp_path)
    check()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_an_executor_cannot_see_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompactorUnavailable, match="Mount the data directory"):
        check(folder=tmp_path / "elsewhere")


@pytest.mark.parametrize(
    "found",
    [
        Executor("there", "0.0.1", executors.code_digest()),
        Executor("there", __version__, "0" * 16),
    ],
)
def test_other_code_is_refused(found: Executor) -> None:
    """Another version; and the same version of another checkout."""
    with pytest.raises(CompactorUnavailable, match=r"executor on there .* Install the worker's"):
        check([found])


@pytest.mark.parametrize(
    ("line", "todo"),
    [
        ('java.io.IOException: Cannot run program "/opt/python": error=2', "Install that Python"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version", sys.executable),
        ("ModuleNotFoundError: No module named 'ledgerfold'", f"ledgerfold {__version__}"),
        (
            "AttributeError: Can't get attribute 'ExecutorCheck' on <module",
            f"ledgerfold {__version__}",
        ),
    ],
)
def test_errors_of_spark_suggest_a_remedy(line: str, todo: str) -> None:
    advice = advice_on(f"Job aborted due to stage failure\n  {line}\n at org.apache")
    assert advice is not None
    assert line in advice
    assert todo in advice


def test_the_digest_covers_all_packages_of_the_worker() -> None:
    """Wherever the package is installed."""
    root = Path(executors.__file__).parents[2]
    assert all(list((root / room).rglob("*.py")) for room in executors._ROOMS)


def test_other_errors_are_passed_on_unchanged() -> None:
    assert advice_on("java.lang.OutOfMemoryError") is None

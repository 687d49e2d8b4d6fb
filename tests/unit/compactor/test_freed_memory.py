"""Spark's Python workers return memory at the end of a task, however it ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ledgerfold import heap
from ledgerfold.compactor.job import rows
from ledgerfold.compactor.job.rows import Failure, guarded
from ledgerfold.compactor.memory import status_bytes
from ledgerfold.storage.errors import MissingFile

COLUMN_BYTES = 64 * 1024
COLUMNS = 1_000


@pytest.fixture
def returned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Gets an element for each time that memory is returned."""
    found: list[str] = []
    monkeypatch.setattr(rows, "return_freed", lambda: found.append("returned"))
    return found


def test_a_task_returns_memory_after_its_last_row(returned: list[str]) -> None:
    task = guarded([(0, "a"), (1, "b")], [0])
    assert [next(task), next(task)] == [(0, "a"), (1, "b")]
    assert not returned
    assert list(task) == []
    assert returned == ["returned"]


def test_a_failed_task_returns_memory(returned: list[str]) -> None:
    def failing() -> Iterator[tuple[int, str]]:
        yield 0, "a"
        raise MissingFile("a file", "the plan")

    found = list(guarded(failing(), [0, 1]))
    assert [type(content) for _, content in found] == [str, Failure, Failure]
    assert returned == ["returned"]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.skipif(heap._function("malloc_trim") is None, reason="needs glibc")
def test_freed_columns_below_a_used_one_are_returned() -> None:
    """Glibc alone returns only memory above the last column in use."""
    columns = [np.ones(COLUMN_BYTES, np.uint8) for _ in range(COLUMNS)]
    last = columns[-1]
    before = status_bytes("self", "RssAnon")
    del columns
    rows.return_freed()
    returned_bytes = before - status_bytes("self", "RssAnon")
    assert len(last) == COLUMN_BYTES
    assert returned_bytes > COLUMN_BYTES * COLUMNS // 2

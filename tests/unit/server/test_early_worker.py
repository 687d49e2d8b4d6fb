"""The worker's process starts before the broker recovers its data directory."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from ledgerfold import heap
from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.server import process
from ledgerfold.broker.worker import supervisor
from ledgerfold.broker.worker.remains import work_dir
from ledgerfold.broker.worker.supervisor import CompactorSupervisor
from tests.support.waiting import WAIT_S

FAKE = str(Path(__file__).parents[2] / "support" / "fake_compactor.py")


@pytest.mark.process
def test_the_worker_starts_before_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first compaction waits for its imports. It ends with a broker that cannot recover."""
    settings = BrokerSettings(data_dir=tmp_path / "data", listen="127.0.0.1:0")
    compactor = CompactorSupervisor(settings, command=[sys.executable, FAKE, "serve"])
    pids: list[int] = []

    def fails(*_: object) -> NoReturn:
        pids.append(compactor.pid)
        raise OSError("no disk")

    monkeypatch.setattr(process, "compactor_of", lambda _: compactor)
    monkeypatch.setattr(process, "recovered", fails)
    monkeypatch.setattr(heap, "keep_freed", lambda: None)
    with pytest.raises(OSError, match="no disk"):
        process.serve(settings)
    assert pids != [0]
    assert list(work_dir(settings.data_dir).iterdir()) == []


def test_a_launch_ends_with_a_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker serves without a compactor: its start does not wait for ever."""

    def broken(_: Path) -> NoReturn:
        raise ValueError("not thought of")

    monkeypatch.setattr(supervisor, "new_scratch", broken)

    async def body() -> None:
        async with asyncio.timeout(WAIT_S):
            launched = CompactorSupervisor(BrokerSettings(data_dir=tmp_path))
            await launched.launch()
        await launched.stop()

    asyncio.run(body())

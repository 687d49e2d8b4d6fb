"""A worker that a rule kills (broker/faults/compaction.py), and the supervisor."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ledgerfold.storage.errors import CompactionFailed
from tests.unit.compaction.test_supervisor import Pauses, ignore, plan, supervised

pytestmark = pytest.mark.process


def test_a_worker_killed_on_purpose_has_begun_the_run(tmp_path: Path) -> None:
    """Its answer may not have left it. Otherwise the run would wait for the next worker. Tests of
    faults had workers that answer before they die.
    """

    async def body() -> None:
        asked = plan("dying")
        asked.ledgers_dir, asked.crash_at = str(tmp_path / "asked"), "worker.phase-one"
        async with supervised(tmp_path, "serve", pauses=Pauses()) as supervisor:
            with pytest.raises(CompactionFailed) as failed:
                await supervisor.run(asked, ignore)
        assert failed.value.worker_died

    asyncio.run(body())

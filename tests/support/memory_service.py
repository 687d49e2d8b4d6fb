"""Compaction services that a broker process is started with: one that works, others that do not.

serve --compaction-service tests.support.memory_service:Copying
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from ledgerfold.broker.worker.compactor import OnProgress
from ledgerfold.compaction_service import (
    CompactionPlan,
    CompactionProgress,
    CompactionStrategy,
    Manifest,
)
from ledgerfold.storage.files import REAL
from tests.support.memory_compactor import MemoryCompactor


class Copying:
    """Pure Python: the plan's result by the model. It knows no internal parts of a broker."""

    reads_deletion_vectors = True

    def __init__(self) -> None:
        self._compactor = MemoryCompactor(REAL)

    async def run(self, plan: CompactionPlan, on_progress: OnProgress) -> Manifest:
        return await self._compactor.run(plan, on_progress)

    async def close(self) -> None:
        """Nothing is held."""


class Raising(Copying):
    """Half done."""

    async def run(self, plan: CompactionPlan, on_progress: OnProgress) -> Manifest:
        self._compactor.failure = KeyError("no such thing")
        return await super().run(plan, on_progress)


class Confused(Copying):
    """A compactor whose manifest describes a file that is shorter than it says."""

    async def run(self, plan: CompactionPlan, on_progress: OnProgress) -> Manifest:
        manifest = await super().run(plan, on_progress)
        manifest.segments[0].size_bytes += 1
        return manifest


class Strange(Copying):
    async def run(self, plan: CompactionPlan, on_progress: OnProgress) -> Manifest:
        strange: Any = {"segments": []}
        return strange  # type: ignore[no-any-return]


class Stuck(Copying):
    """A task whose run and closing do not end before the test releases it."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = asyncio.Event()

    async def run(self, plan: CompactionPlan, on_progress: OnProgress) -> Manifest:
        on_progress(CompactionProgress())
        await self._unheeding()
        return Manifest()

    async def close(self) -> None:
        await self._unheeding()

    async def _unheeding(self) -> None:
        while not self.may_end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.may_end.wait()


class Knowing(Copying):
    """Checks strategies: it knows one."""

    async def check_strategy(self, strategy: CompactionStrategy) -> None:
        if strategy.name != "known:One":
            raise LookupError("never heard of it")


class Broken:
    def __init__(self) -> None:
        raise RuntimeError("no licence")


class NoService:
    """Has nothing that a service has."""

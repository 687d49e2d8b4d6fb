"""A compactor in this process, for tests of the broker: the plan's result by the pure model.

It reads and writes through the file-system seam (storage/files.py), so that a disk that forgets or
fails can be put under it. It writes what the real worker writes: segments of whole or rebuilt
entries, and a manifest.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from ledgerfold.broker.worker.compactor import Compactor, OnProgress
from ledgerfold.storage.errors import InvalidStrategy
from ledgerfold.storage.files import Files
from ledgerfold.v1.compactor_pb2 import (
    AnalyzeRequest,
    CleanManifest,
    CleanPlan,
    CompactionPlan,
    DescribeDecisionsRequest,
    DescribeDecisionsResponse,
    Manifest,
)
from ledgerfold.v1.records_pb2 import CompactionStrategy
from ledgerfold.v1.what_if_pb2 import TopicWhatIf
from tests.model.choice_model import CLASSES
from tests.support.kafka_round import KafkaRound
from tests.support.survivors import Survivors


class MemoryCompactor(Compactor):
    """Stands in for the supervisor (broker/worker/supervisor.py).

    `failure`: the error that the next run raises halfway; its files stay, as after a killed worker.
    `may_go`: while it is cleared, a run waits; `has_begun` tells that one does.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self.failure: Exception | None = None
        self.analyses: list[AnalyzeRequest] = []
        self.has_begun = asyncio.Event()
        self.may_go = asyncio.Event()
        self.may_go.set()

    def start(self) -> None:
        """Nothing to start."""

    async def stop(self) -> None:
        """Nothing to stop."""

    async def known(self) -> None:
        """Returns at once: the compactor is known."""

    def retry_now(self) -> None:
        """Does nothing: it never waits."""

    async def describe_decisions(
        self, request: DescribeDecisionsRequest
    ) -> DescribeDecisionsResponse:
        """Returns no words."""
        return DescribeDecisionsResponse()

    async def check_strategy(self, strategy: CompactionStrategy) -> None:
        """Accepts Ledgerfold's strategies, and those that its oracles know."""
        if strategy.name not in CLASSES:
            raise InvalidStrategy(strategy.name, "it is not known here")

    async def run(self, plan: CompactionPlan, on_progress: OnProgress) -> Manifest:
        self.has_begun.set()
        await self.may_go.wait()
        folder = Path(plan.ledgers_dir) / str(plan.ledger_id)
        self._files.make_dir(folder)
        manifest = self._write(plan)
        self._files.sync_dir(folder.parent)
        return manifest

    async def analyze(self, request: AnalyzeRequest) -> TopicWhatIf:
        """Only records its arguments; `may_go` holds it, too."""
        self.analyses.append(request)
        self.has_begun.set()
        await self.may_go.wait()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return TopicWhatIf()

    async def clean(self, plan: CleanPlan) -> CleanManifest:
        """A round of Kafka's cleaner. `may_go` and `failure` are as for a run."""
        self.has_begun.set()
        await self.may_go.wait()
        manifest = KafkaRound(plan, self._files).run()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return manifest

    def _write(self, plan: CompactionPlan) -> Manifest:
        def sealing() -> None:
            if self.failure is not None:
                failure, self.failure = self.failure, None
                raise failure

        segments, counts = Survivors(plan, self._files, sealing=sealing).write()
        if not segments:
            self._files.remove_dir(Path(plan.ledgers_dir) / str(plan.ledger_id))
        return Manifest(
            run_id=plan.run_id,
            ledger_id=plan.ledger_id,
            horizon=plan.horizon,
            segments=segments,
            counts=counts,
            # Without it, no later run keeps a segment.
            strategy_version=str(plan.strategy_version or ""),
        )

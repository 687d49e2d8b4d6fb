"""A temporary compactor for one request, without a broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.worker.supervisor import CompactorSupervisor
from ledgerfold.strategies.allowed import AllowedStrategies
from ledgerfold.v1.compactor_pb2 import AnalyzeRequest
from ledgerfold.v1.what_if_pb2 import TopicWhatIf


def ask_own_worker(data_dir: Path, request: AnalyzeRequest, spark_master: str) -> TopicWhatIf:
    """Starts a worker, asks it, and stops it. `data_dir` is private: the worker's files go there.

    The caller has named the strategies itself, so the worker may load them. Raises
    CompactorUnavailable, CompactionFailed, InvalidRequest, StorageError.
    """
    asked_for = AllowedStrategies().also(*(each.name for each in request.strategies))
    settings = BrokerSettings(
        data_dir=data_dir, spark_master=spark_master, allowed_strategies=asked_for
    )
    return asyncio.run(_ask(settings, request))


async def _ask(settings: BrokerSettings, request: AnalyzeRequest) -> TopicWhatIf:
    supervisor = CompactorSupervisor(settings)
    supervisor.start()
    try:
        return await supervisor.analyze(request)
    finally:
        await supervisor.stop()

"""A compactor for one question, without a broker: started, asked, and ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ledgerfold.broker.compaction.supervisor import CompactorSupervisor
from ledgerfold.broker.ground.settings import BrokerSettings
from ledgerfold.strategies.allowed import AllowedStrategies
from ledgerfold.v1.compactor_pb2 import AnalyzeRequest
from ledgerfold.v1.what_if_pb2 import TopicWhatIf


def ask_own_worker(data_dir: Path, request: AnalyzeRequest, spark_master: str) -> TopicWhatIf:
    """`data_dir` is ours alone: the worker's scratch folder goes there.

    Who asks has named the strategies themselves, so the worker may load them. Raises
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

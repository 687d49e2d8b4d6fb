"""The broker's check that a user-defined strategy is allowed.

The worker checks again, against its own start options, since anyone who knows its secret can send a
plan. This check comes first, so that the error is returned before anything is stored or queued.
"""

from __future__ import annotations

import asyncio

from ledgerfold.broker.compaction.interfaces import BrokerContext
from ledgerfold.v1.records_pb2 import CompactionStrategy


async def check_allowed(broker: BrokerContext, strategy: CompactionStrategy) -> None:
    """Raises StrategyNotAllowed."""
    allowed = broker.settings.allowed_strategies
    if not allowed.knows(strategy.name):
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(broker.executor, allowed.check, strategy.name)

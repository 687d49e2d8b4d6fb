"""A broker asks for no strategy of one's own that it was not allowed to load.

The worker asks again, by what it was started with itself: a plan may come from anybody who knows
its secret. Here it is asked first, so that the answer comes before anything is stored or queued.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Protocol

from ledgerfold.broker.ground.settings import BrokerSettings
from ledgerfold.v1.records_pb2 import CompactionStrategy


class StrategyBroker(Protocol):
    @property
    def settings(self) -> BrokerSettings: ...
    @property
    def executor(self) -> Executor: ...


async def check_allowed(broker: StrategyBroker, strategy: CompactionStrategy) -> None:
    """Raises StrategyNotAllowed."""
    allowed = broker.settings.allowed_strategies
    if not allowed.knows(strategy.name):
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(broker.executor, allowed.check, strategy.name)

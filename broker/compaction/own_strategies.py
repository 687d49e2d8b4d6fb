"""The broker's checks of a user-defined strategy, before anything is stored or queued.

The worker checks again, against its own start options, since anyone who knows its secret can send a
plan.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ledgerfold.broker.compaction.interfaces import BrokerContext
from ledgerfold.broker.worker.compactor import Compactor
from ledgerfold.storage.errors import CompactorUnavailable
from ledgerfold.strategies.catalogue import listed
from ledgerfold.v1.records_pb2 import CompactionStrategy

# The longest time that a request for a run waits for the check of its strategy.
CHECK_SECONDS = 5.0


async def check_allowed(broker: BrokerContext, strategy: CompactionStrategy) -> None:
    """Raises StrategyNotAllowed."""
    allowed = broker.settings.allowed_strategies
    if not allowed.knows(strategy.name):
        await broker.in_thread(lambda: allowed.check(strategy.name))


async def check_before_run(
    broker: BrokerContext, compactor: Compactor, strategy: CompactionStrategy
) -> None:
    """Checks the strategy of one run: a mistyped name is one that the worker cannot load.

    If no worker checks it within CHECK_SECONDS, only its permission is checked: the run, which
    waits for a worker, reports any other error. The pause after a worker's failed start ends first:
    it could last longer than the check. Raises StrategyNotAllowed, InvalidStrategy.
    """
    if listed(strategy.name) is None:
        await check_allowed(broker, strategy)
        compactor.retry_now()
        with suppress(CompactorUnavailable, TimeoutError):
            async with asyncio.timeout(CHECK_SECONDS):
                await compactor.check_strategy(strategy)

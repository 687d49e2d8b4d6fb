"""The broker's check that a user-defined strategy is allowed.

The worker checks again, against its own start options, since anyone who knows its secret can send a
plan. This check comes first, so that the error is returned before anything is stored or queued.
"""

from __future__ import annotations

from ledgerfold.broker.compaction.interfaces import BrokerContext
from ledgerfold.v1.records_pb2 import CompactionStrategy


async def check_allowed(broker: BrokerContext, strategy: CompactionStrategy) -> None:
    """Raises StrategyNotAllowed."""
    allowed = broker.settings.allowed_strategies
    if not allowed.knows(strategy.name):
        await broker.in_thread(lambda: allowed.check(strategy.name))

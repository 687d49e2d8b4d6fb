"""What time alone does to topics: ledgers get old, messages expire, retention lets them go.

Every check interval, and whenever a test clock was moved, each loaded topic is looked at:

1. An open ledger with entries that has reached its age is closed, though nobody publishes (Pulsar:
   ManagedLedgerImpl.rollCurrentLedgerIfFull).
2. Message TTL: subscriptions pass what is too old (broker/subscriptions/cursor_operations.py).
3. Ledgers that nothing holds back any more are deleted (broker/policies/retention.py).
4. Producers that have long been gone are forgotten (broker/topics/deduplication.py).

What fails, in whatever way, is logged and tried again at the next interval; neither the rest of the
topic's checks nor other topics wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from ledgerfold.broker.common.clock import Clock
from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.subscriptions.cursor_operations import expire_all
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.storage.ledger import LedgerStore

_log = logging.getLogger(__name__)


class HousekeptBroker(Protocol):
    """What is needed of the broker (broker/topics/broker.py)."""

    @property
    def clock(self) -> Clock: ...
    @property
    def settings(self) -> BrokerSettings: ...
    @property
    def store(self) -> LedgerStore: ...
    @property
    def topics(self) -> Mapping[str, Topic]: ...


class Housekeeping:
    """One per broker, on its event loop."""

    def __init__(self, broker: HousekeptBroker) -> None:
        self._broker = broker

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._broker.clock.sleep(self._broker.settings.retention_check_interval_ms / 1000)
            await self.check_all()

    async def check_all(self) -> None:
        for topic in tuple(self._broker.topics.values()):
            for check in (_roll, _expire, _trim, _forget_producers):
                if topic.is_loaded:
                    await _do(check, topic)
            # However many topics there are, the loop is not kept from the streams.
            await asyncio.sleep(0)
        await asyncio.to_thread(self._broker.store.reserve.renew)


async def _do(check: Callable[[Topic], Awaitable[None]], topic: Topic) -> None:
    try:
        await check(topic)
    except LedgerfoldError as error:
        _log.error("%s: housekeeping failed: %s", topic.name, error)
    except Exception:
        _log.exception("%s: housekeeping failed", topic.name)


async def _roll(topic: Topic) -> None:
    await topic.log.roll_if_due()


async def _expire(topic: Topic) -> None:
    ttl_ms = topic.policies().message_ttl_ms
    if ttl_ms > 0:
        await expire_all(topic, ttl_ms)


async def _trim(topic: Topic) -> None:
    await topic.trim()


async def _forget_producers(topic: Topic) -> None:
    is_connected = topic.producers.__contains__
    gone = await topic.deduplication.forget_inactive(is_connected, topic.clock.now_ms())
    if gone:
        _log.info("%s: forgot %d producers that have long been gone", topic.name, len(gone))

"""Periodic checks of topics: ledger age, message expiry, retention.

At every check interval, and whenever a manual clock was moved, each loaded topic is checked:

1. An open ledger with entries that has reached its maximum age is closed, even if nothing is
   published (Pulsar: ManagedLedgerImpl.rollCurrentLedgerIfFull).
2. Message TTL: subscriptions skip expired messages (broker/subscriptions/cursor_operations.py).
3. Backlogs that exceed their quota are cut, or their producers disconnected
   (broker/topics/quotas.py).
4. Ledgers that nothing retains are deleted (broker/policies/retention.py).
5. Inactive producers are forgotten (broker/topics/deduplication.py).

Any failure is logged and retried at the next interval; it delays neither the topic's other checks
nor other topics.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from ledgerfold.broker.common.clock import Clock
from ledgerfold.broker.subscriptions.cursor_operations import expire_all
from ledgerfold.broker.topics.quotas import enforce_quotas
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.storage.ledger import LedgerStore

_log = logging.getLogger(__name__)


class Housekeeping:
    """The periodic checks of one broker, on its event loop."""

    def __init__(
        self, topics: Mapping[str, Topic], store: LedgerStore, clock: Clock, interval_ms: int
    ) -> None:
        self._topics, self._store = topics, store
        self._clock, self._interval_ms = clock, interval_ms

    async def run(self) -> None:
        """Checks all topics at every interval until cancelled."""
        while True:
            await self._clock.sleep(self._interval_ms / 1000)
            await self.check_all()

    async def check_all(self) -> None:
        for topic in tuple(self._topics.values()):
            for check in (_roll, _expire, enforce_quotas, _trim, _forget_producers):
                if topic.is_loaded:
                    await _do(check, topic)
            # Streams get their turn however many topics there are.
            await asyncio.sleep(0)
        await asyncio.to_thread(self._store.reserve.renew)


async def _do(check: Callable[[Topic], Awaitable[None]], topic: Topic) -> None:
    try:
        await check(topic)
    except LedgerfoldError as error:
        _log.error("%s: housekeeping failed: %s", topic.name, error)
    except Exception:
        _log.exception("%s: housekeeping failed", topic.name)


async def _roll(topic: Topic) -> None:
    await topic.log.tail.roll_if_due()


async def _expire(topic: Topic) -> None:
    ttl_ms = topic.policies().message_ttl_ms
    if ttl_ms > 0:
        await expire_all(topic, ttl_ms)


async def _trim(topic: Topic) -> None:
    await topic.trim()


async def _forget_producers(topic: Topic) -> None:
    is_connected = topic.producers.__contains__
    forgotten = await topic.deduplication.forget_inactive(is_connected, topic.clock.now_ms())
    if forgotten:
        _log.info("%s: forgot %d inactive producers", topic.name, len(forgotten))

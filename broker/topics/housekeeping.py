"""Periodic checks of topics: ledger age, message expiry, retention.

At every check interval, and whenever a manual clock was moved, each loaded topic is checked:

1. An open ledger with entries that has reached its maximum age is closed, even if nothing is
   published (Pulsar: ManagedLedgerImpl.rollCurrentLedgerIfFull).
2. Message TTL: subscriptions skip expired messages (broker/subscriptions/cursor_operations.py).
3. Backlogs that exceed their quota are cut, or their producers disconnected
   (broker/topics/quotas.py).
4. Ledgers that nothing retains are deleted (broker/policies/retention.py).
5. Inactive producers are forgotten (broker/topics/deduplication.py).

Non-persistent topics that nobody uses end (broker/topics/non_persistent_topics.py).

Any failure is logged and retried at the next interval; it delays neither the topic's other checks
nor other topics.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from ledgerfold.broker.subscriptions.cursor_operations import expire_all
from ledgerfold.broker.topics.loaded_topic import TopicContext
from ledgerfold.broker.topics.non_persistent_topics import NonPersistentTopics
from ledgerfold.broker.topics.quotas import enforce_quotas
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.errors import LedgerfoldError

_log = logging.getLogger(__name__)


class HousekeepingBroker(TopicContext, Protocol):
    """The part of the broker that housekeeping uses (broker/topics/broker.py)."""

    @property
    def topics(self) -> Mapping[str, Topic]: ...
    @property
    def non_persistent(self) -> NonPersistentTopics: ...


class Housekeeping:
    """The periodic checks of one broker, on its event loop."""

    def __init__(self, broker: HousekeepingBroker) -> None:
        self._broker = broker

    async def run(self) -> None:
        """Checks all topics at every interval until cancelled."""
        interval_s = self._broker.settings.retention_check_interval_ms / 1000
        while True:
            await self._broker.clock.sleep(interval_s)
            await self.check_all()

    async def check_all(self) -> None:
        try:
            await self._broker.non_persistent.end_unused()
        except LedgerfoldError as error:
            _log.error("Schemas of unused topics are not deleted: %s", error)
        for topic in tuple(self._broker.topics.values()):
            for check in (_roll, _expire, enforce_quotas, _trim, _forget_producers):
                if topic.is_loaded:
                    await _do(check, topic)
            # Streams are served in between, regardless of the number of topics.
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

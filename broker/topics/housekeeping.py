"""Periodic checks of topics: ledger age, message expiry, backlog quotas, retention.

At every check interval, and whenever a manual clock was moved, each loaded topic is checked:

1. An open ledger with entries that has reached its maximum age is closed, even if nothing is
   published (Pulsar: ManagedLedgerImpl.rollCurrentLedgerIfFull).
2. Message TTL: subscriptions skip expired messages (broker/subscriptions/cursor_operations.py).
3. Backlogs that exceed their quota are cut, or their producers disconnected
   (broker/topics/quotas.py). This check also runs at a shorter interval.
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

from ledgerfold.broker.subscriptions.cursor_operations import expire_all
from ledgerfold.broker.topics.loaded_topic import TopicContext
from ledgerfold.broker.topics.non_persistent_topics import NonPersistentTopics
from ledgerfold.broker.topics.quotas import enforce_quotas
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.errors import LedgerfoldError

_log = logging.getLogger(__name__)


class Housekeeping:
    """The periodic checks of one broker, on its event loop. `topics`: those that are loaded."""

    def __init__(
        self,
        broker: TopicContext,
        topics: Mapping[str, Topic],
        non_persistent: NonPersistentTopics,
    ) -> None:
        self._broker, self._topics, self._non_persistent = broker, topics, non_persistent
        # Two evictions at once would each remove the excess.
        self._enforcing = asyncio.Lock()

    async def run(self) -> None:
        """Checks all topics, and their backlog quotas more often, until cancelled."""
        settings = self._broker.settings
        await asyncio.gather(
            self._repeat(self.check_all, settings.retention_check_interval_ms),
            self._repeat(self.check_quotas, settings.quota_check_interval_ms),
        )

    async def _repeat(self, check: Callable[[], Awaitable[None]], interval_ms: int) -> None:
        while True:
            await self._broker.clock.sleep(interval_ms / 1000)
            await check()

    async def check_all(self) -> None:
        try:
            await self._non_persistent.end_unused()
        except LedgerfoldError as error:
            _log.error("Schemas of unused topics are not deleted: %s", error)
        await self._check(
            lambda topic: topic.log.tail.roll_if_due(),
            _expire,
            self._enforce_quotas,
            Topic.trim,
            _forget_producers,
        )
        await asyncio.to_thread(self._broker.store.reserve.renew)

    async def check_quotas(self) -> None:
        await self._check(self._enforce_quotas)

    async def _check(self, *checks: Callable[[Topic], Awaitable[object]]) -> None:
        for topic in tuple(self._topics.values()):
            for check in checks:
                if topic.is_loaded:
                    await _do(check, topic)
            # Streams are served in between, regardless of the number of topics.
            await asyncio.sleep(0)

    async def _enforce_quotas(self, topic: Topic) -> None:
        async with self._enforcing:
            await enforce_quotas(topic, topic.producers.values())


async def _do(check: Callable[[Topic], Awaitable[object]], topic: Topic) -> None:
    try:
        await check(topic)
    except LedgerfoldError as error:
        _log.error("%s: housekeeping failed: %s", topic.name, error)
    except Exception:
        _log.exception("%s: housekeeping failed", topic.name)


async def _expire(topic: Topic) -> None:
    ttl_ms = topic.policies().message_ttl_ms
    if ttl_ms > 0:
        await expire_all(topic, ttl_ms)


async def _forget_producers(topic: Topic) -> None:
    is_connected = topic.producers.__contains__
    forgotten = await topic.deduplication.forget_inactive(is_connected, topic.clock.now_ms())
    if forgotten:
        _log.info("%s: forgot %d inactive producers", topic.name, len(forgotten))

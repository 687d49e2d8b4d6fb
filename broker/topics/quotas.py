"""Backlog quotas: the action when the backlog of a topic's slowest subscription is too large.

A quota limits the size of the backlog, or the age of its oldest message; durable subscriptions
count, `__compaction` does not. Every check of housekeeping enforces both:

* `producer_request_hold`, `producer_exception`: producers are disconnected, and refused until the
  backlog is within the limit. Clients hold their messages back meanwhile, or fail them.
* `consumer_backlog_eviction`: the oldest messages leave the backlog, until it is at nine tenths of
  the limit.

A producer that connects is checked at once. As in Pulsar, a connected producer may publish until
the next check. Source: Pulsar's BacklogQuotaManager and PersistentTopic.checkBacklogQuotaExceeded;
the age is exact (preciseTimeBasedBacklogQuotaCheck).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from ledgerfold.broker.compaction.interfaces import CompactableTopic
from ledgerfold.broker.subscriptions.cursor_operations import expire_all, skip_messages
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.broker.topics.producer import Producer
from ledgerfold.storage.errors import BacklogQuotaExceeded, ProducerBlocked
from ledgerfold.v1.records_pb2 import (
    BACKLOG_POLICY_CONSUMER_BACKLOG_EVICTION,
    BACKLOG_POLICY_PRODUCER_EXCEPTION,
    BacklogQuota,
)

# The part of the limit that remains after an eviction.
_KEPT = 0.9
# The maximum of one eviction; each advances the slowest subscription.
_EVICTIONS_MAX = 1000
_log = logging.getLogger(__name__)


class _Exceeded(NamedTuple):
    """A quota that the backlog exceeds, by size or by age."""

    quota: BacklogQuota
    is_size: bool


async def _exceeded(topic: CompactableTopic) -> _Exceeded | None:
    policies = topic.policies()
    size, age = policies.backlog_size_quota, policies.backlog_age_quota
    if policies.HasField("backlog_size_quota") and 0 <= size.limit_bytes <= _backlog_bytes(topic):
        return _Exceeded(size, is_size=True)
    if policies.HasField("backlog_age_quota") and await _is_older(topic, age.limit_ms):
        return _Exceeded(age, is_size=False)
    return None


async def check_producer(topic: CompactableTopic) -> None:
    """Raises BacklogQuotaExceeded, ProducerBlocked if no producer may connect."""
    exceeded = await _exceeded(topic)
    if exceeded is not None and (error := _refusal(topic, exceeded.quota)) is not None:
        raise error


async def enforce_quotas(topic: CompactableTopic, producers: Iterable[Producer]) -> None:
    """Evicts messages, or disconnects the topic's producers, if the backlog exceeds a quota."""
    exceeded = await _exceeded(topic)
    if exceeded is None:
        return
    quota = exceeded.quota
    error = _refusal(topic, quota)
    if error is not None:
        for producer in tuple(producers):
            producer.end(error)
        return
    if exceeded.is_size:
        entries = await _evict(topic, quota.limit_bytes * _KEPT)
    else:
        entries = await expire_all(topic, max(1, int(quota.limit_ms * _KEPT)))
    _log.warning("%s: %d entries left the backlog, which exceeds its quota", topic.name, entries)


def _refusal(topic: CompactableTopic, quota: BacklogQuota) -> BacklogQuotaExceeded | None:
    if quota.policy == BACKLOG_POLICY_CONSUMER_BACKLOG_EVICTION:
        return None
    if quota.policy == BACKLOG_POLICY_PRODUCER_EXCEPTION:
        return BacklogQuotaExceeded(topic.name)
    return ProducerBlocked(topic.name)


def _durable(topic: CompactableTopic) -> list[Subscription]:
    return [each for each in topic.subscriptions.values() if each.is_durable]


def _backlog_bytes(topic: CompactableTopic) -> int:
    """Returns the size of the slowest subscription's backlog, as stats show it."""
    slowest = min((each.mark_delete for each in _durable(topic)), default=None)
    return 0 if slowest is None else topic.log.ledgers.estimated_bytes_after(slowest)


async def _is_older(topic: CompactableTopic, limit_ms: int) -> bool:
    """Returns whether an unacknowledged message is older than the limit."""
    behind = [each.mark_delete for each in _durable(topic) if each.backlog_entries()]
    if limit_ms <= 0 or not behind:
        return False
    slowest = min(behind)
    before_ms = topic.clock.now_ms() - limit_ms
    return await topic.log.search.last_published_before(before_ms, slowest) > slowest


async def _evict(topic: CompactableTopic, target_bytes: float) -> int:
    """Passes the oldest entries until the backlog has the target's size; returns their number."""
    entries = 0
    for _ in range(_EVICTIONS_MAX):
        size_bytes = _backlog_bytes(topic)
        behind = [each for each in _durable(topic) if each.backlog_entries()]
        if size_bytes <= target_bytes or not behind:
            break
        slowest = min(behind, key=lambda each: each.mark_delete)
        share = (size_bytes - target_bytes) / size_bytes
        entries_max = max(1, int(share * slowest.backlog_entries()))
        skipped = await skip_messages(topic, slowest, entries_max)
        if not skipped:
            break
        entries += skipped
    return entries

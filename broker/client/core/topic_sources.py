"""The topics of a consumer: one, a list, or all whose names match a pattern.

A source lists the names of the streams to open, which are those of partitions where a topic has
any. Its caller lists the names again at intervals, and so finds new partitions, and new topics of a
pattern. Source: Pulsar's MultiTopicsConsumerImpl and PatternMultiTopicsConsumerImpl.

    >>> orders = TopicPattern(re.compile("persistent://shop/eu/orders-.*"), 60)
    >>> orders.namespace, orders.matches("persistent://shop/eu/orders-7-partition-0")
    ('shop/eu', True)
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ledgerfold.broker.client.messages.options import RegexSubscriptionMode
from ledgerfold.broker.client.streams.connection import Connection, full_topic_name
from ledgerfold.broker.common.names import DOMAINS, NON_PERSISTENT, PERSISTENT
from ledgerfold.storage.errors import InvalidRequest, NotAllowed, TopicNotFound
from ledgerfold.storage.partition_names import base_topic, partition_name
from ledgerfold.v1 import admin_pb2

_DOMAINS = {
    RegexSubscriptionMode.PersistentOnly: (PERSISTENT,),
    RegexSubscriptionMode.NonPersistentOnly: (NON_PERSISTENT,),
    RegexSubscriptionMode.AllTopics: DOMAINS,
}
# Topics whose partitions are counted at the same time.
_COUNTED_AT_ONCE = 20


class ListedTopics:
    """One topic or several, each with its partitions. `title`: the name for display."""

    # Streams whose topics `names` no longer lists stay open.
    may_lose = False

    def __init__(self, topics: Iterable[str]) -> None:
        self._topics = list(dict.fromkeys(map(full_topic_name, topics)))
        self.title = ", ".join(self._topics)
        self.is_several = len(self._topics) > 1

    async def names(self, connection: Connection) -> list[str]:
        """Returns the full names of the streams. Raises the broker's errors."""
        return await with_partitions(connection, self._topics)

    def interval_s(self, connection: Connection) -> float:
        """Returns the time between two calls of `names`."""
        return connection.settings.partitions_update_interval_seconds


class TopicPattern:
    """The topics of one namespace whose names match a regular expression, as a whole.

    It may name the namespace as a topic name does. The namespace itself is not an expression.
    `mode` chooses among persistent and non-persistent topics, as in Pulsar.
    """

    may_lose = True

    def __init__(
        self,
        pattern: re.Pattern[str],
        interval_s: float,
        mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly,
    ) -> None:
        self.title = pattern.pattern
        self._domains = _DOMAINS[mode]
        domain, separator, rest = self.title.partition("://")
        if not separator:
            rest = self.title
        elif domain not in self._domains:
            raise NotAllowed(
                f"{self.title}: a pattern is matched with persistent topics, unless the "
                "regex_subscription_mode is NonPersistentOnly or AllTopics."
            )
        *namespace, local = rest.split("/", 2)
        if len(namespace) == 1:
            raise InvalidRequest(
                f"{self.title} is not a pattern of topic names: TENANT/NAMESPACE/PATTERN, or "
                "PATTERN for public/default."
            )
        self.namespace = "/".join(namespace) or "public/default"
        self._local = re.compile(local, pattern.flags)
        self._interval_s = interval_s

    def matches(self, topic: str) -> bool:
        """Returns whether the (full) name matches the pattern; for a partition, whether its topic's
        does.
        """
        base = base_topic(topic)
        domain, _, rest = base.partition("://")
        prefix = f"{self.namespace}/"
        if domain not in self._domains or not rest.startswith(prefix):
            return False
        return bool(self._local.fullmatch(rest[len(prefix) :]))

    async def names(self, connection: Connection) -> list[str]:
        """Returns the full names of the streams, as ListedTopics.names()."""
        request = admin_pb2.ListTopicsRequest(namespace=self.namespace, in_pages=True)
        bases, has_more = set[str](), True
        while has_more:
            try:
                page = await connection.call(request)
            except TopicNotFound:
                return []
            bases.update(map(base_topic, filter(self.matches, page.topics)))
            has_more, request.after = page.has_more, page.topics[-1] if page.has_more else ""
        return await with_partitions(connection, sorted(bases))

    def interval_s(self, connection: Connection) -> float:
        return self._interval_s


# The topics that a set of streams is open on.
TopicSource: TypeAlias = ListedTopics | TopicPattern


def names_of(topic: str, count: int) -> list[str]:
    """Returns the full names of `count` partitions; the topic's own for 0."""
    full = full_topic_name(topic)
    return [partition_name(full, index) for index in range(count)] or [full]


async def with_partitions(connection: Connection, topics: Sequence[str]) -> list[str]:
    """Returns the names of the topics' partitions, in order; of others, their own."""
    names: list[str] = []
    for start in range(0, len(topics), _COUNTED_AT_ONCE):
        part = topics[start : start + _COUNTED_AT_ONCE]
        counts = await asyncio.gather(*map(connection.partition_count, part))
        for topic, count in zip(part, counts, strict=True):
            names += names_of(topic, count)
    return names

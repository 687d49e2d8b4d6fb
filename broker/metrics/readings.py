"""The collection of metric values from a broker, on its event loop, a few topics at a time.

Topics are read one after the other, each atomically; after SLICE_S other tasks run before the next
one is read. So a scrape delays other tasks by no more than that, regardless of the number of
topics. Its values are not from one moment for all topics. A topic that is unloaded meanwhile, or
whose data cannot be read, is omitted (and logged).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ledgerfold.broker.common.given_names import shown_topic
from ledgerfold.broker.common.names import namespace_of
from ledgerfold.broker.compaction.history import CompactionStats
from ledgerfold.broker.metrics.catalogue import OUTGOING_METRICS
from ledgerfold.broker.metrics.kafka_metrics import LOG_METRICS
from ledgerfold.broker.metrics.subscription_metrics import SUBSCRIPTION_METRICS
from ledgerfold.broker.metrics.topic_metrics import TOPIC_METRICS, TopicSource
from ledgerfold.broker.metrics.totals import CompactionTotals
from ledgerfold.broker.stats import topic as stats
from ledgerfold.broker.stats.kafka import kafka_stats
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.storage.segment import record_position
from ledgerfold.v1.admin_pb2 import CompactorState
from ledgerfold.v1.records_pb2 import RUN_STATE_SUCCESS, RunRecord

if TYPE_CHECKING:
    from ledgerfold.broker.topics.broker import Broker
    from ledgerfold.broker.topics.topic import Topic

SLICE_S = 0.002
_log = logging.getLogger(__name__)


class SubscriptionReading(NamedTuple):
    """The values of one subscription: one for each of SUBSCRIPTION_METRICS."""

    name: str
    values: tuple[float, ...]


class TopicReading(NamedTuple):
    """The values of one topic: one for each of TOPIC_METRICS, or LOG_METRICS; None: no sample.

    `strategy`: the one in force; None if compaction was never requested.
    """

    namespace: str
    topic: str
    values: tuple[float | None, ...]
    subscriptions: Sequence[SubscriptionReading] = ()
    strategy: str | None = None


class Readings(NamedTuple):
    """The values of one scrape."""

    topics: Sequence[TopicReading]
    queue_length: int
    running: int
    compactor_state: CompactorState
    compactor_restarts: int
    # Those of LOG_METRICS.
    kafka: Sequence[TopicReading] = ()
    # The cleaner's values by Kafka's object names; empty without Kafka topics.
    cleaner: Mapping[str, int] = {}
    # The values of all streams, by the names of OUTGOING_METRICS.
    outgoing: Mapping[str, int] = {}


class MetricsReader:
    """The collector of one broker. It observes runs and deletions from its construction on."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._totals = CompactionTotals()
        # The end of a topic's last successful run; 0: none. Read from the history once.
        self._succeeded_ms: dict[str, int] = {}
        broker.compaction.on_ended.add(self._ended)
        broker.on_deleted.add(self._deleted)

    def _ended(self, run: RunRecord) -> None:
        self._totals.add(run)
        if run.state == RUN_STATE_SUCCESS:
            self._succeeded_ms[run.topic] = run.ended_ms

    def _deleted(self, topic: str) -> None:
        self._totals.forget(topic)
        self._succeeded_ms.pop(topic, None)

    async def read(self) -> Readings:
        topics: list[TopicReading] = []
        began = time.perf_counter()
        for topic in tuple(self._broker.topics.values()):
            try:
                if topic.is_loaded:
                    topics.append(self._read(topic))
            except LedgerfoldError as error:
                _log.warning("%s is omitted from the metrics: %s", topic.name, error)
            except Exception:
                _log.exception("%s is omitted from the metrics", topic.name)
            if time.perf_counter() - began > SLICE_S:
                await asyncio.sleep(0)
                began = time.perf_counter()
        kafka = await self._read_kafka(topics)
        cleaner = self._broker.cleaner
        compaction, compactor = self._broker.compaction, self._broker.compactor
        return Readings(
            topics=topics,
            queue_length=compaction.queue_length,
            running=compaction.running,
            compactor_state=compactor.state,
            compactor_restarts=compactor.restarts,
            kafka=kafka,
            cleaner=cleaner.gauge_values() if kafka else {},
            outgoing={name: getattr(self._broker.outgoing, name) for name in OUTGOING_METRICS},
        )

    async def _read_kafka(self, topics: list[TopicReading]) -> list[TopicReading]:
        """Reads Kafka topics, and adds their common values to `topics`."""
        readings: list[TopicReading] = []
        began = time.perf_counter()
        for topic in tuple(self._broker.kafka_topics.values()):
            stats_, name = kafka_stats(topic), shown_topic(topic.name)
            namespace = namespace_of(name)
            source = TopicSource(stats_)
            values = tuple(each.read(source) for each in TOPIC_METRICS)
            topics.append(TopicReading(namespace, name, values))
            of_log = tuple(each.read(stats_) for each in LOG_METRICS)
            readings.append(TopicReading(namespace, name, of_log))
            if time.perf_counter() - began > SLICE_S:
                await asyncio.sleep(0)
                began = time.perf_counter()
        return readings

    def _read(self, topic: Topic) -> TopicReading:
        source, name = self._source(topic), shown_topic(topic.name)
        return TopicReading(
            namespace=namespace_of(name),
            topic=name,
            values=tuple(each.read(source) for each in TOPIC_METRICS),
            subscriptions=[
                SubscriptionReading(name, tuple(each.read(block) for each in SUBSCRIPTION_METRICS))
                for name, block in source.stats["subscriptions"].items()
            ],
            strategy=self._strategy(topic) if topic.record.compaction_cursor else None,
        )

    def _strategy(self, topic: Topic) -> str:
        return self._broker.policy_levels.strategy(topic.record).name

    def _source(self, topic: Topic) -> TopicSource:
        now_ms, compacted = self._broker.clock_ms(), topic.log.views.current.compacted
        succeeded_ms = self._last_success_ms(topic.name)
        source = TopicSource(
            stats=stats.topic_stats(topic, CompactionStats()),
            totals=self._totals.of(topic.name),
            compacted_entries=None if compacted is None else compacted.entries,
            compacted_bytes=None if compacted is None else compacted.size_bytes,
            garbage_bytes=None if compacted is None else compacted.garbage_bytes,
            since_success_ms=max(0, now_ms - succeeded_ms) if succeeded_ms else None,
        )
        if not topic.record.compaction_cursor:
            return source
        lag_bytes = topic.log.ledgers.bytes_after(topic.compaction_mark_delete)
        return source._replace(lag_bytes=lag_bytes, lag_ms=_lag_ms(topic, now_ms))

    def _last_success_ms(self, topic: str) -> int:
        if topic not in self._succeeded_ms:
            runs = self._broker.compaction.history.oldest_first(topic)
            ended = [run.ended_ms for run in runs if run.state == RUN_STATE_SUCCESS]
            self._succeeded_ms[topic] = max(ended, default=0)
        return self._succeeded_ms[topic]


def _lag_ms(topic: Topic, now_ms: int) -> int:
    """Returns the age of the oldest message after the horizon; 0 if there is none."""
    mark_delete = topic.compaction_mark_delete
    published_ms = [
        segment.publish_time_min_ms
        for record in topic.log.ledgers.records()
        for segment in record.segments
        if segment.entries and record_position(segment, last=True) > mark_delete
    ]
    return max(0, now_ms - min(published_ms)) if published_ms else 0

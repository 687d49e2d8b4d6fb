"""Reading the metrics off a broker, on its event loop, a few topics at a time.

Topics are read one after the other, each at one moment; after SLICE_S of it the loop has its turn
before the next one is read. So a scrape delays nobody by more than that, however many topics there
are, and what it tells is not of one moment for all of them. A topic that is unloaded meanwhile, or
whose data cannot be read, is left out (and logged).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ledgerfold.broker.compaction.history import CompactionStats
from ledgerfold.broker.ground.given_names import shown_topic
from ledgerfold.broker.ground.names import namespace_of
from ledgerfold.broker.metrics.catalogue import OUTGOING_METRICS
from ledgerfold.broker.metrics.kafka_metrics import LOG_METRICS, KafkaReading
from ledgerfold.broker.metrics.subscription_metrics import SUBSCRIPTION_METRICS
from ledgerfold.broker.metrics.topic_metrics import TOPIC_METRICS, TopicSource
from ledgerfold.broker.metrics.totals import CompactionTotals
from ledgerfold.broker.policies.effective import effective_strategy
from ledgerfold.broker.stats import topic as stats
from ledgerfold.broker.stats.kafka import kafka_stats
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.storage.segment import record_position
from ledgerfold.v1.admin_pb2 import CompactorState
from ledgerfold.v1.records_pb2 import RUN_STATE_SUCCESS, Policies, RunRecord

if TYPE_CHECKING:
    from ledgerfold.broker.topics.broker import Broker
    from ledgerfold.broker.topics.topic import Topic

SLICE_S = 0.002
_log = logging.getLogger(__name__)


class SubscriptionReading(NamedTuple):
    """`values`: one for each of SUBSCRIPTION_METRICS."""

    name: str
    values: tuple[float, ...]


class TopicReading(NamedTuple):
    """`values`: one for each of TOPIC_METRICS; None: there is no such sample.

    `strategy`: the one in force; None where compaction was never asked for.
    """

    namespace: str
    topic: str
    values: tuple[float | None, ...]
    subscriptions: Sequence[SubscriptionReading]
    strategy: str | None = None


class Readings(NamedTuple):
    """What one scrape tells."""

    topics: Sequence[TopicReading]
    queue_length: int
    running: int
    compactor_state: CompactorState
    compactor_restarts: int
    kafka: Sequence[KafkaReading] = ()
    # Of the cleaner, by Kafka's object names; none where there are no Kafka topics.
    cleaner: Mapping[str, int] = {}
    # Of all streams, by the names of OUTGOING_METRICS.
    outgoing: Mapping[str, int] = {}


class MetricsReader:
    """One per broker. It listens for runs and deletions from its construction on."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._totals = CompactionTotals()
        # When a topic's last successful run ended; 0: none did. From the history, once.
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
                _log.warning("%s is left out of the metrics: %s", topic.name, error)
            except Exception:
                _log.exception("%s is left out of the metrics", topic.name)
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

    async def _read_kafka(self, topics: list[TopicReading]) -> list[KafkaReading]:
        """Adds to `topics` what Kafka topics have in common with the others."""
        found: list[KafkaReading] = []
        began = time.perf_counter()
        for topic in tuple(self._broker.kafka_topics.values()):
            told, name = kafka_stats(topic), shown_topic(topic.name)
            namespace = namespace_of(name)
            source = TopicSource(told)
            values = tuple(each.read(source) for each in TOPIC_METRICS)
            topics.append(TopicReading(namespace, name, values, ()))
            of_log = tuple(each.read(told) for each in LOG_METRICS)
            found.append(KafkaReading(namespace, name, of_log))
            if time.perf_counter() - began > SLICE_S:
                await asyncio.sleep(0)
                began = time.perf_counter()
        return found

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
        namespace = self._broker.metadata.namespace(namespace_of(topic.name))
        inherited = Policies() if namespace is None else namespace.policies
        broker = self._broker.settings.compaction_strategy
        return effective_strategy(topic.own_policies(), inherited, broker).name

    def _source(self, topic: Topic) -> TopicSource:
        now_ms, compacted = self._broker.clock_ms(), topic.log.view.compacted
        succeeded_ms = self._last_success_ms(topic.name)
        source = TopicSource(
            stats=stats.topic_stats(topic, CompactionStats()),
            totals=self._totals.of(topic.name),
            compacted_entries=None if compacted is None else compacted.entries,
            compacted_bytes=None if compacted is None else compacted.size_bytes,
            since_success_ms=max(0, now_ms - succeeded_ms) if succeeded_ms else None,
        )
        if not topic.record.compaction_cursor:
            return source
        lag_bytes = topic.log.ledgers.bytes_behind(topic.compaction_mark_delete)
        return source._replace(lag_bytes=lag_bytes, lag_ms=_lag_ms(topic, now_ms))

    def _last_success_ms(self, topic: str) -> int:
        if topic not in self._succeeded_ms:
            runs = self._broker.compaction.history.oldest_first(topic)
            ended = [run.ended_ms for run in runs if run.state == RUN_STATE_SUCCESS]
            self._succeeded_ms[topic] = max(ended, default=0)
        return self._succeeded_ms[topic]


def _lag_ms(topic: Topic, now_ms: int) -> int:
    """By the publish times of what lies behind the horizon. 0: nothing does."""
    behind = topic.compaction_mark_delete
    published_ms = [
        segment.publish_time_min_ms
        for record in topic.log.ledger_records()
        for segment in record.segments
        if segment.entries and record_position(segment, last=True) > behind
    ]
    return max(0, now_ms - min(published_ms)) if published_ms else 0

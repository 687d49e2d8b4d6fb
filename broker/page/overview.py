"""The list of topics: what each stores, and how far it is from its next compaction.

Topics that are not loaded stay unloaded: a thread reads their records. Bounds: TOPICS_SHOWN topics
of one page, LEDGERS_READ ledgers of a topic that is not loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from ledgerfold.broker.common.given_names import shown_topic
from ledgerfold.broker.common.names import TopicName, is_non_persistent
from ledgerfold.broker.kafka.cleaner.cleaner import plan_of
from ledgerfold.broker.log.ledger_record import all_ledger_ids
from ledgerfold.broker.page.figures import Figures, figures, horizon_of
from ledgerfold.broker.page.page_request import PageRequest
from ledgerfold.broker.page.rendering import Page
from ledgerfold.broker.page.runs import latest, running, shown_run
from ledgerfold.broker.rpc.admin import broker_info
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.kafka_topic import KafkaTopic
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.v1.records_pb2 import TopicRecord

TOPICS_SHOWN = 50
LEDGERS_READ = 1000
RUNS_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Row:
    """A topic. `kind`: pulsar, kafka or non-persistent. Of a Kafka log, the compacted part is its
    tail and the backlog its head, and `ratio` is compared with `ratio_min`.
    """

    name: str
    kind: str
    figures: Figures = field(default_factory=Figures)
    is_loaded: bool = False
    horizon: str = ""
    threshold_bytes: int = 0
    ratio: float | None = None
    ratio_min: float = 0.0
    backlog_entries: int = 0
    producers: int = 0
    consumers: int = 0
    run: str = ""
    damage: str = ""

    @property
    def local(self) -> str:
        return TopicName.parse(self.name).local

    @property
    def namespace(self) -> str:
        return TopicName.parse(self.name).namespace

    @property
    def fullness(self) -> float | None:
        """The backlog by the threshold: above 1, a compaction is due. None: there is none."""
        if self.kind == "kafka":
            return None if self.ratio is None else self.ratio / max(self.ratio_min, 0.001)
        if self.threshold_bytes <= 0:
            return None
        return self.figures.backlog_bytes / self.threshold_bytes


class Overview:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def topics(self, request: PageRequest) -> Page:
        """Lists topics by name. `q`: a part of the name; `page`: from 1."""
        broker, query = self._broker, request.text("q").strip()
        in_memory = broker.non_persistent.listed()
        names = await broker.in_thread(lambda: broker.metadata.topic_names() + in_memory)
        matching = await broker.in_thread(lambda: _with(query, names)) if query else names
        pages = max(1, -(-len(matching) // TOPICS_SHOWN))
        # Topics may have been deleted since the page before was shown.
        page = min(request.number("page", 1, least=1), pages)
        shown = matching[(page - 1) * TOPICS_SHOWN : page * TOPICS_SHOWN]
        rows = list[Row]()
        for each in shown:
            rows.append(await self._row(each))
            # Streams are served in between, however many topics there are.
            await asyncio.sleep(0)
        values = {
            "rows": rows,
            "largest": max((each.figures.total_bytes for each in rows), default=0),
            "found": len(matching),
            "all": len(names),
            "wanted": query,
            "page": page,
            "pages": pages,
            "running": running(broker, tuple(broker.topics)),
            "info": broker_info(broker),
            "uptime_ms": max(0, broker.clock_ms() - broker.started_ms),
        }
        return Page("overview.html", "Topics", values)

    async def runs(self, request: PageRequest) -> Page:
        """Lists the latest runs of the topics that are loaded, those in progress first."""
        broker = self._broker
        current = running(broker, tuple(broker.topics))
        recent_runs = await broker.in_thread(
            lambda: broker.compaction.history.runs(limit=RUNS_SHOWN),
        )
        now_ms, known = broker.clock_ms(), {(each.topic, each.number) for each in current}
        from_records = [shown_run(each, now_ms) for each in recent_runs]
        ended = [each for each in from_records if (each.topic, each.number) not in known]
        return Page("runs.html", "Compactions", {"running": current, "runs": ended})

    async def _row(self, name: str) -> Row:
        if is_non_persistent(name):
            return Row(name, "non-persistent", is_loaded=True)
        topic = self._broker.topics.get(name) or self._broker.kafka_topics.get(name)
        try:
            if isinstance(topic, Topic):
                return self._loaded(topic)
            if isinstance(topic, KafkaTopic):
                return self._kafka(topic)
            return await self._broker.in_thread(lambda: self._recorded(name))
        except LedgerfoldError as error:
            return Row(shown_topic(name), "pulsar", damage=str(error))

    def _loaded(self, topic: Topic) -> Row:
        broker, record, view = self._broker, topic.record, topic.log.views.current
        compacted = None if view.compacted is None else view.compacted.record
        horizon = horizon_of(record)
        subscriptions = topic.subscriptions.values()
        last = latest(broker, topic.name, 1)
        return Row(
            shown_topic(topic.name),
            "pulsar",
            figures(topic.log.ledgers.records(), compacted, horizon),
            is_loaded=True,
            horizon=str(horizon or ""),
            threshold_bytes=broker.policy_levels.threshold(record).threshold_bytes,
            backlog_entries=sum(each.backlog_entries() for each in subscriptions),
            producers=len(topic.producers),
            consumers=sum(len(each.consumers) for each in subscriptions) + len(topic.readers),
            run=last[0].state if last else "",
            damage="" if view.damage is None else str(view.damage),
        )

    def _kafka(self, topic: KafkaTopic) -> Row:
        plan = plan_of(topic.partition, self._broker.clock_ms())
        size_bytes = sum(each.facts.size_bytes for each in topic.log.segments)
        rest = max(0, size_bytes - plan.clean_bytes - plan.cleanable_bytes)
        left_alone = self._broker.cleaner.states.uncleanable.get(topic.name)
        return Row(
            shown_topic(topic.name),
            "kafka",
            Figures(
                ledgers=len(list(topic.log.segments)),
                passed_bytes=rest,
                backlog_bytes=plan.cleanable_bytes,
                compacted_bytes=plan.clean_bytes,
            ),
            is_loaded=True,
            horizon=str(plan.first_dirty_offset),
            ratio=plan.ratio if topic.config.is_compacted else None,
            ratio_min=topic.config.min_cleanable_ratio,
            producers=len(topic.producers),
            consumers=len(topic.readers),
            damage="" if left_alone is None else left_alone.why,
        )

    def _recorded(self, name: str) -> Row:
        """Reads a topic that is not loaded from its records, in a thread."""
        metadata = self._broker.metadata
        record = metadata.topic(name) or TopicRecord(name=name)
        is_kafka = record.HasField("kafka")
        ids = all_ledger_ids(record) if is_kafka else list(record.ledger_ids)
        ledgers = [
            ledger_record
            for each in ids[-LEDGERS_READ:]
            if (ledger_record := metadata.ledger(each))
        ]
        compacted, horizon = None, horizon_of(record)
        if record.HasField("compacted"):
            compacted = metadata.ledger(record.compacted.ledger_id)
        if is_kafka:
            return Row(shown_topic(name), "kafka", figures(ledgers, None, None))
        return Row(
            shown_topic(name),
            "pulsar",
            figures(ledgers, compacted, horizon),
            horizon=str(horizon or ""),
            threshold_bytes=self._broker.policy_levels.threshold(record).threshold_bytes,
        )


def _with(name: str, names: Sequence[str]) -> list[str]:
    """Returns the names that contain a text, regardless of case."""
    return [each for each in names if name.lower() in shown_topic(each).lower()]

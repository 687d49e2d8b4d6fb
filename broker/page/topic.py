"""The page of one topic: its strip, its figures, its cursors and its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ledgerfold.broker.common.given_names import shown, shown_topic
from ledgerfold.broker.common.names import COMPACTION_CURSOR
from ledgerfold.broker.page.figures import figures, horizon_of
from ledgerfold.broker.page.kafka import kafka_values
from ledgerfold.broker.page.page_request import PageRequest
from ledgerfold.broker.page.rendering import Page
from ledgerfold.broker.page.runs import latest
from ledgerfold.broker.page.strip import Piece, pulsar_strip
from ledgerfold.broker.rpc.admin_topics import stats_of
from ledgerfold.broker.rpc.existing import recorded_name
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.kafka_topic import KafkaTopic
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.segment import record_position
from ledgerfold.strategies.catalogue import LISTED, listed
from ledgerfold.v1.records_pb2 import LEDGER_STATE_OPEN, LedgerRecord, SegmentRecord

LEDGERS_LISTED = 200
CURSORS_LISTED = 200
RUNS_LISTED = 20
# Notices of a change on the page that follows it.
NOTICES = {"nothing-new": "There is nothing new to compact: no run was started."}


class TopicPage:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def show(self, request: PageRequest) -> Page:
        """Shows a topic, which is loaded if it was not. Raises TopicNotFound, StorageError."""
        name = recorded_name(self._broker, request.topic)
        topic = await self._broker.any_topic(name, create=False)
        values: dict[str, Any] = {
            "topic": shown_topic(name),
            "stats": stats_of(self._broker, topic),
            "notice": NOTICES.get(request.text("notice"), ""),
        }
        if isinstance(topic, Topic):
            return Page("topic.html", values["topic"], values | self._pulsar(topic))
        if isinstance(topic, KafkaTopic):
            return Page("kafka.html", values["topic"], values | kafka_values(self._broker, topic))
        return Page("non_persistent.html", values["topic"], values)

    def _pulsar(self, topic: Topic) -> dict[str, Any]:
        broker, record, view = self._broker, topic.record, topic.log.views.current
        raw = topic.log.ledgers.records()
        compacted = None if view.compacted is None else view.compacted.record
        horizon, policies = horizon_of(record), topic.policies()
        cursors = _cursors(topic)
        pieces = [] if compacted is None else _pieces([compacted])
        threshold = broker.policy_levels.threshold(record)
        # That of compaction is the horizon.
        marked = [each for each in cursors if each[0] != COMPACTION_CURSOR]
        return {
            "strip": pulsar_strip(_pieces(raw, topic.keepers()), pieces, horizon, marked),
            "figures": figures(raw, compacted, horizon),
            "horizon": horizon,
            "compacted": compacted,
            "is_ever_compacted": record.compaction_cursor,
            "threshold": threshold,
            "check": broker.compaction.monitor.last_check(topic),
            "backlog_bytes": topic.compaction_backlog_bytes(),
            "strategy": policies.compaction_strategy,
            "policies": policies,
            "ledgers": [_ledger_row(each, horizon) for each in raw[-LEDGERS_LISTED:]],
            "ledgers_left_out": max(0, len(raw) - LEDGERS_LISTED),
            "cursors": self._cursor_rows(topic, cursors),
            "cursors_left_out": max(0, len(cursors) - CURSORS_LISTED),
            "last": topic.log.positions.last_published(),
            "is_terminated": topic.log.tail.is_terminated,
            "damage": "" if view.damage is None else str(view.damage),
            "runs": latest(broker, topic.name, RUNS_LISTED),
            "strategies": tuple(LISTED.values()),
            "is_own_strategy": listed(policies.compaction_strategy.name) is None,
        }

    def _cursor_rows(
        self, topic: Topic, cursors: Sequence[tuple[str, Position]]
    ) -> list[dict[str, Any]]:
        sums, last = topic.log.ledgers.sums(), topic.log.positions.last()
        stats = stats_of(self._broker, topic)["subscriptions"]
        return [
            {
                "name": name,
                "at": position,
                "entries": sums.entries_between(position, last),
                "bytes": sums.estimated_bytes_after(position),
                "stats": stats.get(name, {}),
            }
            for name, position in cursors[:CURSORS_LISTED]
        ]


def _cursors(topic: Topic) -> list[tuple[str, Position]]:
    """Returns the name and the mark-delete of each cursor, those that are behind first."""
    cursors = [(shown(name), each.mark_delete) for name, each in topic.subscriptions.items()]
    previous = topic.log.positions.previous
    cursors += [(each.subscription, previous(each.read_position)) for each in topic.readers]
    cursors.sort(key=lambda each: each[1])
    if topic.record.compaction_cursor:
        cursors.insert(0, (COMPACTION_CURSOR, topic.compaction_mark_delete))
    return cursors


def _pieces(
    ledgers: Sequence[LedgerRecord], held_by: Mapping[int, Sequence[str]] = MappingProxyType({})
) -> list[Piece]:
    """Returns the segments that have entries. `held_by`: what keeps each ledger."""
    return [
        Piece(
            f"Ledger {ledger.ledger_id}, segment {at}"
            if len(ledger.segments) > 1
            else f"Ledger {ledger.ledger_id}",
            segment.size_bytes,
            record_position(segment, last=False),
            record_position(segment, last=True),
            kind="raw" if segment.sealed else "open",
            detail=_detail(segment, held_by.get(ledger.ledger_id, ())),
            dead_bytes=segment.dead.bytes,
        )
        for ledger in ledgers
        for at, segment in enumerate(ledger.segments, 1)
        if segment.entries
    ]


def _detail(segment: SegmentRecord, held_by: Sequence[str]) -> str:
    counts = f"{segment.messages:,} messages in {segment.entries:,} entries"
    return f"{counts}, kept by: {', '.join(held_by)}" if held_by else counts


def _ledger_row(record: LedgerRecord, horizon: Position | None) -> dict[str, Any]:
    last = max((record_position(each, last=True) for each in record.segments), default=EARLIEST)
    return {
        "id": record.ledger_id,
        "segments": len(record.segments),
        "entries": sum(each.entries for each in record.segments),
        "messages": sum(each.messages for each in record.segments),
        "bytes": sum(each.size_bytes for each in record.segments),
        "created_ms": record.created_ms,
        "is_open": record.state == LEDGER_STATE_OPEN,
        "is_passed": horizon is not None and last <= horizon,
        "is_damaged": record.damaged,
    }

"""Forecasts for loaded topics: asks the compactor for the effect of strategies; changes nothing.

One request at a time, one topic after the other; an abandoned request ends. The compactor gives
precedence to runs. The view stays pinned while its ledger is read; if a raw ledger is trimmed
meanwhile, the request fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ledgerfold.broker.compaction.own_strategies import check_allowed
from ledgerfold.broker.worker.compactor import may_have_pulsar_entries
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import InvalidRequest, MissingFile, Moved
from ledgerfold.storage.partition_names import partition_index
from ledgerfold.storage.segment import record_position
from ledgerfold.strategies.catalogue import checked
from ledgerfold.v1.compactor_pb2 import AnalyzeRequest, CompactionPlan
from ledgerfold.v1.records_pb2 import SegmentRecord
from ledgerfold.v1.what_if_pb2 import TopicWhatIf, WhatIfRequest, WhatIfResponse

if TYPE_CHECKING:
    from ledgerfold.broker.topics.broker import Broker
    from ledgerfold.broker.topics.topic import Topic

# The worker's limits (compactor/what_if/run.py), which each request meets before any work.
STRATEGIES_MAX = 16
REPLAYS_MAX = 100


class Forecaster:
    """The forecaster of a broker, on its event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._one_at_a_time = asyncio.Lock()

    async def answer(self, topics: Sequence[Topic], request: WhatIfRequest) -> WhatIfResponse:
        """Answers a request.

        Raises InvalidRequest (StrategyNotAllowed is one), CompactorUnavailable, CompactionFailed,
        Corruption, MissingFile, CompactedLedgerDamaged, Moved.
        """
        if request.trials:
            raise InvalidRequest(
                f"{topics[0].name} is not a Kafka topic: it has strategies and thresholds, but no "
                "settings of a cleaner. Try --strategy, --threshold or --every."
            )
        if len(request.strategies) > STRATEGIES_MAX:
            raise InvalidRequest(f"At most {STRATEGIES_MAX} strategies are analysed at once.")
        if len(request.replays) > REPLAYS_MAX:
            raise InvalidRequest(f"At most {REPLAYS_MAX} triggers are replayed at once.")
        for replay in request.replays:
            if replay.WhichOneof("when") is None:
                raise InvalidRequest("A replay needs a threshold or an interval.")
        for strategy in request.strategies:
            await check_allowed(self._broker, checked(strategy))
        answer = WhatIfResponse()
        for topic in topics:
            async with self._one_at_a_time:
                answer.topics.append(await self._answer_one(topic, request))
        return answer

    async def _answer_one(self, topic: Topic, request: WhatIfRequest) -> TopicWhatIf:
        strategies = request.strategies or [topic.policies().compaction_strategy]
        for strategy in strategies:
            await check_allowed(self._broker, strategy)
        with topic.log.views.current.pinned():
            requested = AnalyzeRequest(
                plan=next_input(self._broker, topic),
                strategies=strategies,
                differences_max=request.differences_max,
                replays=request.replays,
            )
            if request.replays:
                requested.history.CopyFrom(history(self._broker, topic))
            ledgers = tuple(topic.log.ledgers.ids)
            try:
                forecast = await self._broker.compactor.analyze(requested)
            except MissingFile:
                if all(each in topic.log.ledgers for each in ledgers):
                    raise
                raise Moved(
                    f"Ledgers of {topic.name} were trimmed during the analysis. Try again."
                ) from None
        forecast.topic = topic.name
        partition = partition_index(topic.name)
        for difference in forecast.differences.listed:
            for survivor in difference.kept:
                if survivor.HasField("last"):
                    survivor.last.partition = partition
        return forecast


def next_input(broker: Broker, topic: Topic) -> CompactionPlan:
    """Returns the compacted ledger, and the entries above the horizon, as a plan without an output.

    It equals the snapshot of a run (broker/compaction/commit.py), except for the open segment: it
    is read up to its durable end, and nothing is sealed. Called on the event loop; the caller pins
    the view.

    Raises CompactedLedgerDamaged; Corruption or MissingFile of a damaged raw ledger.
    """
    log = topic.log
    log.views.check()
    view, compacted = log.views.current, log.views.segments()
    covered = record_position(compacted[-1], last=True) if compacted else EARLIEST
    after = max(view.horizon or EARLIEST, covered, topic.compaction_moved_to or EARLIEST)
    raw = _segments(topic, after)
    horizon = record_position(raw[-1], last=True) if raw else after
    plan = _plan(broker, topic, compacted, raw, after, horizon)
    if log.views.floor > EARLIEST:
        plan.retention_floor.ledger_id, plan.retention_floor.entry_id = log.views.floor
    return plan


def history(broker: Broker, topic: Topic) -> CompactionPlan:
    """Returns all raw ledgers. Raises Corruption or MissingFile if one is damaged."""
    raw = _segments(topic, EARLIEST)
    horizon = record_position(raw[-1], last=True) if raw else EARLIEST
    return _plan(broker, topic, [], raw, EARLIEST, horizon)


def _plan(
    broker: Broker,
    topic: Topic,
    compacted: Sequence[SegmentRecord],
    raw: Sequence[SegmentRecord],
    after: Position,
    horizon: Position,
) -> CompactionPlan:
    plan = CompactionPlan(
        topic=topic.name,
        retain_null_key=topic.policies().retain_null_key,
        ledgers_dir=str(broker.store.ledgers_dir),
        segments=[*compacted, *raw],
        compacted_segments=len(compacted),
        time_ms=broker.clock_ms(),
        unsized_empties_survive=topic.emulation().unsized_empties_survive,
        has_pulsar_entries=may_have_pulsar_entries(broker.metadata),
    )
    for record, position in ((plan.horizon_previous, after), (plan.horizon, horizon)):
        record.ledger_id, record.entry_id = position
    return plan


def _segments(topic: Topic, after: Position) -> list[SegmentRecord]:
    """Returns the segments that hold entries above `after`."""
    inputs: list[SegmentRecord] = []
    for ledger in topic.log.ledgers.records():
        segments = [
            segment
            for segment in ledger.segments
            if segment.entries and record_position(segment, last=True) > after
        ]
        damage = topic.store.damage_of(ledger.ledger_id)
        if segments and damage is not None:
            raise damage
        inputs += segments
    return inputs

"""Asks the compactor what strategies would come to on loaded topics, and changes nothing.

One question at a time, one topic after the other; a question whose caller has gone ends. The
compactor lets runs go first. The view stays pinned for as long as its ledger is read; a raw ledger
that is trimmed meanwhile ends the question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ledgerfold.broker.compaction.own_strategies import check_allowed
from ledgerfold.broker.whatif.inputs import history, next_input
from ledgerfold.storage.errors import InvalidRequest, MissingFile, Moved
from ledgerfold.storage.partition_names import partition_index
from ledgerfold.strategies.catalogue import checked
from ledgerfold.v1.compactor_pb2 import AnalyzeRequest
from ledgerfold.v1.what_if_pb2 import TopicWhatIf, WhatIfRequest, WhatIfResponse

if TYPE_CHECKING:
    from ledgerfold.broker.topics.broker import Broker
    from ledgerfold.broker.topics.topic import Topic


class Forecaster:
    """One per broker, on its event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._one_at_a_time = asyncio.Lock()

    async def answer(self, topics: Sequence[Topic], request: WhatIfRequest) -> WhatIfResponse:
        """Raises InvalidRequest (StrategyNotAllowed is one), CompactorUnavailable,
        CompactionFailed, Corruption, MissingFile, CompactedLedgerDamaged, Moved.
        """
        if request.trials:
            raise InvalidRequest(
                f"{topics[0].name} is no Kafka topic: it has strategies and thresholds, and no "
                "settings of a cleaner. Try --strategy, --threshold or --every."
            )
        for replay in request.replays:
            if replay.WhichOneof("when") is None:
                raise InvalidRequest("Say when a replay compacts: a threshold, or an interval.")
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
        with topic.log.view.pinned():
            asked = AnalyzeRequest(
                plan=next_input(self._broker, topic),
                strategies=strategies,
                differences_max=request.differences_max,
                replays=request.replays,
            )
            if request.replays:
                asked.history.CopyFrom(history(self._broker, topic))
            ledgers = tuple(topic.log.ledger_ids())
            try:
                found = await self._broker.compactor.analyze(asked)
            except MissingFile:
                if all(map(topic.log.has_ledger, ledgers)):
                    raise
                raise Moved(
                    f"Ledgers of {topic.name} were trimmed while it was looked at; try again."
                ) from None
        found.topic = topic.name
        partition = partition_index(topic.name)
        for difference in found.differences.listed:
            for kept in difference.kept:
                if kept.HasField("last"):
                    kept.last.partition = partition
        return found

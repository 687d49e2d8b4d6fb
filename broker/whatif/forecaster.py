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
            asked = AnalyzeRequest(
                plan=next_input(self._broker, topic),
                strategies=strategies,
                differences_max=request.differences_max,
                replays=request.replays,
            )
            if request.replays:
                asked.history.CopyFrom(history(self._broker, topic))
            ledgers = tuple(topic.log.ledgers.ids)
            try:
                found = await self._broker.compactor.analyze(asked)
            except MissingFile:
                if all(each in topic.log.ledgers for each in ledgers):
                    raise
                raise Moved(
                    f"Ledgers of {topic.name} were trimmed during the analysis. Try again."
                ) from None
        found.topic = topic.name
        partition = partition_index(topic.name)
        for difference in found.differences.listed:
            for kept in difference.kept:
                if kept.HasField("last"):
                    kept.last.partition = partition
        return found

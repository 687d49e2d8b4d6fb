"""Forecasts for Kafka topics: asks the compactor for the effect of the cleaner under other
settings.

It changes nothing. While a topic is analysed, its cleaner is paused, so that its segments stay. The
active segment is read up to its durable end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ledgerfold.broker.kafka.cleaner.cleaning import clean_segments
from ledgerfold.broker.whatif.kafka_trials import check_trials, settings_of
from ledgerfold.storage.errors import InvalidRequest, MissingFile, Moved
from ledgerfold.v1.compactor_pb2 import AnalyzeRequest, CleanerSettings, KafkaHistory
from ledgerfold.v1.what_if_pb2 import CleaningTrial, TopicWhatIf, WhatIfRequest, WhatIfResponse

if TYPE_CHECKING:
    from ledgerfold.broker.topics.broker import Broker
    from ledgerfold.broker.topics.kafka_topic import KafkaTopic


class KafkaForecaster:
    """The forecaster of a broker, on its event loop; one request at a time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ledgers_dir = str(broker.store.ledgers_dir)
        self._one_at_a_time = asyncio.Lock()

    async def answer(self, topics: Sequence[KafkaTopic], request: WhatIfRequest) -> WhatIfResponse:
        """Answers a request.

        Raises InvalidRequest, KafkaError, CompactorUnavailable, CompactionFailed, Corruption,
        MissingFile, Moved.
        """
        if request.strategies or request.differences_max or request.replays:
            raise InvalidRequest(
                f"{topics[0].name} is a Kafka topic: it has a cleaner, but no strategies and no "
                "thresholds. Try settings of its cleaner: --config NAME=VALUE,..."
            )
        check_trials(request.trials)
        trials = request.trials or [CleaningTrial()]
        requested = [(each, [self._settings(each, trial) for trial in trials]) for each in topics]
        answer = WhatIfResponse()
        for topic, settings in requested:
            async with self._one_at_a_time, self._broker.cleaner.paused(topic.name, aborts=False):
                answer.topics.append(await self._answer_one(topic, settings))
        return answer

    def _settings(self, topic: KafkaTopic, trial: CleaningTrial) -> CleanerSettings:
        own = topic.record.kafka.config
        return settings_of(trial, topic.name, own, self._broker.kafka_config)

    async def _answer_one(
        self, topic: KafkaTopic, settings: Sequence[CleanerSettings]
    ) -> TopicWhatIf:
        requested = AnalyzeRequest(kafka=history_of(topic, self._ledgers_dir, settings))
        ledgers = _ledgers(topic)
        try:
            forecast = await self._broker.compactor.analyze(requested)
        except MissingFile:
            if ledgers <= _ledgers(topic):
                raise
            raise Moved(
                f"Segments of {topic.name} were deleted during the analysis. Try again."
            ) from None
        forecast.topic = topic.name
        return forecast


def history_of(
    topic: KafkaTopic, ledgers_dir: str, settings: Sequence[CleanerSettings]
) -> KafkaHistory:
    """Returns the current log. Raises MissingFile, Moved."""
    partition = topic.partition
    segments = list(partition.log.segments)
    return KafkaHistory(
        topic=partition.label,
        ledgers_dir=ledgers_dir,
        segments=clean_segments(partition, segments, partition.log.end_offset),
        log_start_offset=partition.log_start_offset,
        aborted=[each for segment in segments for each in segment.aborted],
        settings=settings,
    )


def _ledgers(topic: KafkaTopic) -> set[int]:
    return {each for segment in topic.log.segments for each in segment.ledger_ids}

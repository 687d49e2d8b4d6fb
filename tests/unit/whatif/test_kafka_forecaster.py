"""Tests the requests to the compactor about a Kafka topic, and what is kept meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ledgerfold.broker.kafka.cleaner.states import Paused
from ledgerfold.broker.whatif.kafka_forecaster import KafkaForecaster
from ledgerfold.storage.errors import InvalidRequest, KafkaError, MissingFile, Moved
from ledgerfold.v1.what_if_pb2 import CleaningTrial, ReplaySetting, WhatIfRequest
from tests.model.broker_lab import TOPIC
from tests.support.kafka_lab import KafkaLab

RATIO = "min.cleanable.dirty.ratio"


@pytest.fixture
def lab() -> Iterator[KafkaLab]:
    made = KafkaLab({"cleanup.policy": "compact", "internal.segment.bytes": "200"})
    for number in range(6):
        made.add([(b"k%d" % (number % 2), b"v" * 60)])
    yield made
    made.close()


def ask(lab: KafkaLab, *configs: dict[str, str]) -> None:
    request = WhatIfRequest(trials=[CleaningTrial(config=each) for each in configs])
    lab.run(KafkaForecaster(lab.broker).answer([lab.kafka], request))


def test_a_forecast_reads_the_whole_log(lab: KafkaLab) -> None:
    """Each trial has its settings; without any, the topic's."""
    lab.clean()
    ask(lab, {RATIO: "0.1"}, {"segment.bytes": "1048576", "log.cleaner.backoff.ms": "7"})
    ask(lab)
    first, second = (each.kafka for each in lab.compactor.analyses)
    described = lab.run(lab.kafka.describe(batches=False))
    assert [each.base_offset for each in first.segments] == [
        each.base_offset for each in described.segments
    ]
    assert first.segments[0].is_cleaned
    assert sum(each.size_bytes for each in first.segments) == sum(
        each.size_bytes for each in described.segments
    )
    assert [
        (each.min_cleanable_ratio, each.segment_bytes, each.backoff_ms) for each in first.settings
    ] == [(0.1, 200, 15000), (0.5, 1048576, 7)]
    assert [each.min_cleanable_ratio for each in second.settings] == [0.5]


def test_the_cleaner_is_paused_during_a_forecast(lab: KafkaLab) -> None:
    """However it ends."""

    async def asked() -> object:
        worker, states = lab.compactor, lab.broker.cleaner.states
        worker.may_go.clear()
        worker.has_begun.clear()
        topic = await lab.broker.kafka_topic(TOPIC)
        forecaster = KafkaForecaster(lab.broker)
        asking = asyncio.create_task(forecaster.answer([topic], WhatIfRequest()))
        await worker.has_begun.wait()
        found = states.of(TOPIC)
        asking.cancel()
        await asyncio.wait({asking})
        worker.may_go.set()
        return found

    assert lab.run(asked()) == Paused(1)
    assert lab.broker.cleaner.states.is_free(TOPIC)
    lab.compactor.failure = MissingFile("a file", "a plan")
    with pytest.raises(MissingFile):
        ask(lab)
    assert lab.broker.cleaner.states.is_free(TOPIC)


def test_segments_deleted_meanwhile_cause_a_retriable_error(lab: KafkaLab) -> None:
    """The caller gets a retriable error."""

    async def asked() -> None:
        worker = lab.compactor
        worker.may_go.clear()
        worker.has_begun.clear()
        topic = await lab.broker.kafka_topic(TOPIC)
        asking = asyncio.create_task(KafkaForecaster(lab.broker).answer([topic], WhatIfRequest()))
        await worker.has_begun.wait()
        await topic.log.drop_first(lambda: 1, lambda record, batch: None)
        worker.failure = MissingFile("a file", "a plan")
        worker.may_go.set()
        await asking

    with pytest.raises(Moved, match="were deleted during the analysis"):
        lab.run(asked())


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (WhatIfRequest(differences_max=3), "is a Kafka topic: it has a cleaner"),
        (
            WhatIfRequest(replays=[ReplaySetting(interval_ms=1)]),
            "is a Kafka topic: it has a cleaner",
        ),
        (
            WhatIfRequest(trials=[CleaningTrial()] * 25),
            "25 combinations of settings. Try at most 24",
        ),
        (
            WhatIfRequest(trials=[CleaningTrial(config={"flush.ms": "1"})]),
            "flush.ms does not affect the cleaner",
        ),
        (
            WhatIfRequest(trials=[CleaningTrial(config={"cleanup.policy": "delete"})]),
            "is not compacted: the cleaner ignores it",
        ),
    ],
)
def test_rejected_requests(lab: KafkaLab, request_: WhatIfRequest, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        lab.run(KafkaForecaster(lab.broker).answer([lab.kafka], request_))
    assert not lab.compactor.analyses


def test_settings_that_kafka_rejects(lab: KafkaLab) -> None:
    """In its words, also where two settings do not go together."""
    lags = {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}
    with pytest.raises(KafkaError, match="conflict topic config setting"):
        ask(lab, lags)

"""Tests the calls about the cleaner: each topic's answer, and the kinds of failures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledgerfold.broker.rpc.kafka import kafka_calls
from ledgerfold.broker.rpc.kafka_cleaner import CleanerHandlers
from ledgerfold.storage.errors import CompactionFailed, Corruption, LedgerfoldError
from ledgerfold.v1 import kafka_pb2
from tests.model.broker_lab import TOPIC
from tests.support.kafka_lab import KafkaLab

A, B = (b"a", b"1"), (b"b", b"2")
OTHERS = ("persistent://public/default/u", "persistent://other/place/t")
DAMAGED = Corruption("9/0.log", 7, "a batch", "something else")


@pytest.fixture
def lab() -> Iterator[KafkaLab]:
    lab = KafkaLab({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    yield lab
    lab.close()


@pytest.fixture
def calls(lab: KafkaLab) -> CleanerHandlers:
    return CleanerHandlers(lab.broker)


def cleaned(lab: KafkaLab, name: str) -> None:
    """A topic with a checkpoint."""
    topic = lab.run(lab.broker.kafka_topic(name))
    lab.run(topic.partition.set_checkpoint(0))


def take_out(lab: KafkaLab, name: str) -> None:
    """Unloads the log, as right after a start."""

    async def kept_unloaded() -> None:
        async with lab.broker.kept_unloaded(name):
            pass

    lab.run(kept_unloaded())


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (DAMAGED, "DATA_CORRUPT"),
        (CompactionFailed("map", "it is no map"), "COMPACTION_FAILED"),
        (CompactionFailed("map", "gone", worker_died=True), "WORKER_DIED"),
    ],
)
def test_each_failure_has_a_kind(
    lab: KafkaLab, failure: LedgerfoldError, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a name that programs may go by, of the turn, in the status, and in the log's
    description.

    T47, and other causes of a failing round.
    """
    lab.add([A], [B])
    lab.run(lab.kafka.roll())

    async def clean(plan: object) -> None:
        raise failure

    monkeypatch.setattr(lab.compactor, "clean", clean)
    calls = CleanerHandlers(lab.broker)
    for _ in range(3):
        turn = lab.run(calls.clean(kafka_pb2.CleanTurnRequest(topic=TOPIC)))
        if lab.broker.cleaner.states.is_uncleanable(TOPIC):
            break
    assert (turn.failure_kind, turn.failure) == (kind, str(failure))
    status = lab.run(calls.get_cleaner(kafka_pb2.GetCleanerRequest()))
    assert dict(status.uncleanable_kinds) == {TOPIC: kind}
    assert dict(status.uncleanable) == {TOPIC: str(failure)}
    describe = kafka_calls(lab.broker)["DescribeLog"]
    log = lab.run(describe(kafka_pb2.DescribeLogRequest(topic=TOPIC)))
    assert (log.uncleanable_kind, log.uncleanable_reason) == (kind, str(failure))


def test_a_log_can_be_marked_uncleanable(lab: KafkaLab, calls: CleanerHandlers) -> None:
    request = kafka_pb2.SetCleaningRequest(topic=TOPIC, uncleanable_reason="not now")
    lab.run(calls.set_cleaning(request))
    status = lab.run(calls.get_cleaner(kafka_pb2.GetCleanerRequest()))
    assert dict(status.uncleanable_kinds) == {TOPIC: "MARKED"}


def test_plans_and_passes_cover_all_topics(lab: KafkaLab, calls: CleanerHandlers) -> None:
    """Also of those that the start has not loaded yet."""
    lab.add([A], [B])
    lab.run(lab.kafka.roll())
    lab.run(lab.broker.create_topic(OTHERS[0], {"cleanup.policy": "compact"}))
    for name in (TOPIC, OTHERS[0]):
        take_out(lab, name)
    told = lab.run(calls.plan(kafka_pb2.PlanCleaningRequest()))
    assert sorted(each.topic for each in told.plans) == [TOPIC, OTHERS[0]]
    take_out(lab, TOPIC)
    turn = lab.run(calls.clean(kafka_pb2.CleanTurnRequest()))
    assert turn.topic == TOPIC


def test_a_topic_that_cannot_be_loaded_is_reported(
    lab: KafkaLab, calls: CleanerHandlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def load(record: object) -> None:
        raise DAMAGED

    take_out(lab, TOPIC)
    monkeypatch.setattr(lab.broker, "_load_kafka", load)
    told = lab.run(calls.plan(kafka_pb2.PlanCleaningRequest()))
    assert [(each.topic, each.why_not) for each in told.plans] == [
        (TOPIC, f"it cannot be loaded: {DAMAGED}")
    ]


def test_the_checkpoint_file_covers_all_topics(lab: KafkaLab, calls: CleanerHandlers) -> None:
    """Also before they are loaded."""
    lab.run(lab.broker.create_topic(OTHERS[0], {"cleanup.policy": "compact"}))
    for name in (TOPIC, OTHERS[0]):
        cleaned(lab, name)
        take_out(lab, name)
    told = lab.run(calls.get_cleaner(kafka_pb2.GetCleanerRequest()))
    assert told.checkpoint_file == "0\n2\nt 0 0\nu 0 0\n"
    assert not told.shared_lines


def test_an_ambiguous_line_of_the_checkpoint_file_is_reported(
    lab: KafkaLab, calls: CleanerHandlers
) -> None:
    """Kafka's names know no namespaces: the file of one of them has no such line."""
    lab.run(lab.broker.create_topic(OTHERS[1], {"cleanup.policy": "compact"}))
    for name in (TOPIC, OTHERS[1]):
        cleaned(lab, name)
    told = lab.run(calls.get_cleaner(kafka_pb2.GetCleanerRequest()))
    assert list(told.shared_lines) == ["t 0"]
    told = lab.run(calls.get_cleaner(kafka_pb2.GetCleanerRequest(namespace="other/place")))
    assert (told.checkpoint_file, list(told.shared_lines)) == ("0\n1\nt 0 0\n", [])


def test_a_namespace_request_shows_only_its_topics(lab: KafkaLab, calls: CleanerHandlers) -> None:
    """Its tenant's administrator may ask, who may not see names of others."""
    lab.run(lab.broker.create_topic(OTHERS[1], {"cleanup.policy": "compact"}))
    cleaner = lab.broker.cleaner
    for name in (TOPIC, OTHERS[1]):
        cleaned(lab, name)
        cleaner.mark_uncleanable(name, "by hand")
    whole = lab.run(calls.get_cleaner(kafka_pb2.GetCleanerRequest()))
    assert set(whole.uncleanable) == set(whole.uncleanable_kinds) == {TOPIC, OTHERS[1]}
    own = lab.run(calls.get_cleaner(kafka_pb2.GetCleanerRequest(namespace="other/place")))
    assert set(own.uncleanable) == set(own.uncleanable_kinds) == {OTHERS[1]}
    assert TOPIC not in str(own)


def test_a_broker_that_is_loading_topics_says_so(lab: KafkaLab, calls: CleanerHandlers) -> None:
    lab.settle()
    assert not lab.run(calls.get_cleaner(kafka_pb2.GetCleanerRequest())).is_starting
    lab.broker.cleaner.has_started = False
    assert lab.run(calls.get_cleaner(kafka_pb2.GetCleanerRequest())).is_starting

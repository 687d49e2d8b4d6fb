"""Names that no client may give any more are in the metadata of an earlier version.

All listings, counts and states work, and show stand-ins, by which they can be deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from ledgerfold.broker.common.given_names import shown, shown_topic
from ledgerfold.broker.metrics.readings import MetricsReader
from ledgerfold.broker.metrics.text import parts
from ledgerfold.v1 import admin_pb2, data_pb2
from ledgerfold.v1.records_pb2 import (
    RUN_STATE_ERROR,
    CursorRecord,
    PartitionedTopicRecord,
    RunRecord,
    TopicRecord,
)
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.support.served_lab import ServedLab

MEGABYTES = 10 * 2**20
SUBSCRIPTIONS = ["a" * MEGABYTES, "a" * MEGABYTES + "b", "two\nlines", "a\0b", "\x1b[2J", ".."]
# Parsed for each request: a tenth of a second for each ten megabytes.
LONG = 64 * 1024
TENANTS = ["c" * LONG, "c" * LONG + "d", ".."]
TOPICS = [f"persistent://{tenant}/default/old" for tenant in TENANTS]
DIVIDED = "persistent://../../divided"


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    with lab.metadata.batch() as batch:
        for name in (TOPIC, *TOPICS):
            batch.put(TopicRecord(name=name, created_ms=1))
        batch.put(PartitionedTopicRecord(name=DIVIDED, partitions=1))
        batch.put(TopicRecord(name=f"{DIVIDED}-partition-0", created_ms=1))
        for name in SUBSCRIPTIONS:
            cursor = CursorRecord(topic=TOPIC, subscription=name, created_ms=1)
            cursor.mark_delete.ledger_id = cursor.mark_delete.entry_id = -1
            batch.put(cursor)
        for number in (1, 2):
            strategy = "m:" + "C" * MEGABYTES
            run = RunRecord(topic=TOPIC, number=number, state=RUN_STATE_ERROR, strategy=strategy)
            run.strategy_settings["n"] = run.error_message = "e" * MEGABYTES
            batch.put(run)
    lab.restart()
    yield lab
    lab.stop()


@pytest.fixture
def served(lab: BrokerLab) -> Iterator[ServedLab]:
    """Over a real connection: its messages have a bound."""
    served = ServedLab(lab)
    yield served
    served.close()


def test_invalid_topic_names_are_listed(served: ServedLab) -> None:
    """Partitioned ones, too."""
    listed = served.ask(admin_pb2.ListTopicsRequest()).topics
    assert {TOPIC, *map(shown_topic, TOPICS)} <= set(listed)
    (divided,) = served.ask(admin_pb2.ListPartitionedTopicsRequest()).topics
    assert divided == shown_topic(DIVIDED)
    request = admin_pb2.GetPartitionedTopicStatsRequest(topic=divided, per_partition=True)
    assert json.loads(served.ask(request).json)["metadata"]["partitions"] == 1


def test_invalid_subscription_names_are_listed_and_counted(
    lab: BrokerLab, served: ServedLab
) -> None:
    """In lists, stats, internal stats and metrics."""
    stand_ins = set(map(shown, SUBSCRIPTIONS))
    request = admin_pb2.ListSubscriptionsRequest(topic=TOPIC)
    assert stand_ins <= set(served.ask(request).subscriptions)
    stats = json.loads(served.ask(admin_pb2.GetTopicStatsRequest(topic=TOPIC)).json)
    assert stand_ins <= stats["subscriptions"].keys()
    internal = served.ask(admin_pb2.GetTopicInternalStatsRequest(topic=TOPIC))
    assert stand_ins <= json.loads(internal.json)["cursors"].keys()
    for topic in TOPICS:
        stats_of = admin_pb2.GetTopicStatsRequest(topic=shown_topic(topic))
        assert json.loads(served.ask(stats_of).json)["msgInCounter"] == 0
    text = "".join(parts(served.run(MetricsReader(lab.broker).read())))
    assert len(text) < 200_000
    assert all(name in text for name in stand_ins)


def test_runs_with_long_errors_are_listed(served: ServedLab) -> None:
    """Runs that do not fit into a message are cut."""
    runs = served.ask(admin_pb2.ListRunsRequest()).runs
    assert [run.number for run in runs] == [2, 1]
    assert all(run.strategy.startswith("m:CCC") for run in runs)
    status = served.ask(admin_pb2.GetCompactionStatusRequest(topic=TOPIC))
    assert status.run.number == 2
    json.loads(served.ask(admin_pb2.GetTopicStatsRequest(topic=TOPIC)).json)


def test_topics_with_invalid_names_can_be_deleted_by_their_stand_ins(
    lab: BrokerLab, served: ServedLab
) -> None:
    """All listings show the stand-ins, and not after the deletion."""
    for name in SUBSCRIPTIONS:
        request = data_pb2.UnsubscribeRequest(topic=TOPIC, subscription=shown(name))
        served.ask(request)
    assert not lab.metadata.cursors(TOPIC)
    for name in TOPICS:
        served.ask(admin_pb2.DeleteTopicRequest(topic=shown_topic(name)))
    served.ask(admin_pb2.DeletePartitionedTopicRequest(topic=shown_topic(DIVIDED)))
    assert served.ask(admin_pb2.ListTopicsRequest()).topics == [TOPIC]

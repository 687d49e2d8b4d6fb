"""Strategic compaction through a broker, and table views that make the same decisions."""

from __future__ import annotations

import pytest

from ledgerfold.broker.client import Client, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.strategies import Numeric
from ledgerfold.v1.records_pb2 import CompactionStrategy, Emulation, Policies
from tests.support.compactor_process import CompactorProcess
from tests.support.waiting import RUN_S, WAIT_MS

pytestmark = pytest.mark.spark


@pytest.fixture
def broker_arguments(compactor: CompactorProcess) -> list[str]:
    return ["--compactor", compactor.address]


def compact(admin: Admin, topic: str) -> None:
    assert admin.trigger_compaction(topic)
    for _ in admin.watch_compaction(topic, timeout_seconds=RUN_S):
        pass


def read(client: Client, topic: str) -> list[tuple[str, bytes, tuple[int, int]]]:
    """Returns key, value, entry and batch index of the compacted view."""
    found = []
    with client.create_reader(topic, MessageId.earliest, is_read_compacted=True) as reader:
        while reader.has_message_available():
            message = reader.read_next(timeout_millis=WAIT_MS)
            place = message.message_id()
            found.append(
                (message.partition_key(), message.data(), (place.entry_id(), place.batch_index()))
            )
    return found


def test_a_table_view_equals_the_compacted_topic(client: Client, admin: Admin) -> None:
    """STR-03. Before the run, after it, and with later messages."""
    values = Policies(compaction_strategy=CompactionStrategy(name="numeric"))
    with client.create_producer("t") as producer:
        for number in (5, 3, 7, 6):
            producer.send(b"%d" % number, partition_key="a")
        early = client.create_table_view("t", strategy=Numeric())
        assert early.snapshot() == {"a": b"7"}
        admin.update_policies(topic="t", values=values)
        compact(admin, "t")
        assert read(client, "t") == [("a", b"7", (2, -1))]
        run = admin.runs("t")[0]
        assert (run.strategy, run.strategy_version, run.counts.removed_events) == (
            "numeric",
            "1",
            2,
        )
        producer.send(b"4", partition_key="a")
        producer.send(b"1", partition_key="b")
    late = client.create_table_view("t", strategy=Numeric())
    early.refresh()
    assert late.snapshot() == early.snapshot() == {"a": b"7", "b": b"1"}
    compact(admin, "t")
    assert {key: value for key, value, _ in read(client, "t")} == early.snapshot()


@pytest.mark.parametrize(("profile", "index"), [("documented", 2), ("pulsar-4", 1)])
def test_a_compaction_renumbers_a_batch_as_pulsar(
    client: Client, admin: Admin, profile: str, index: int
) -> None:
    """STR-05: new indexes as in Pulsar; under `documented` a message keeps its id."""
    with client.create_producer(
        "t", batching_enabled=True, batching_max_publish_delay_ms=10_000
    ) as producer:
        for key, value in (("key1", b"m1"), ("key2", b"m2"), ("key2", b"m3")):
            producer.send_async(value, None, partition_key=key)
        producer.flush()
    values = Policies(
        compaction_strategy=CompactionStrategy(name="newest"), emulation=Emulation(profile=profile)
    )
    admin.update_policies(topic="t", values=values)
    compact(admin, "t")
    assert read(client, "t") == [("key1", b"m1", (0, 0)), ("key2", b"m3", (0, index))]

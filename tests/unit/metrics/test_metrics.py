"""Tests the metrics of a broker, and their text format."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ledgerfold.broker.metrics import readings
from ledgerfold.broker.metrics.catalogue import all_metrics
from ledgerfold.broker.metrics.readings import (
    MetricsReader,
    Readings,
    SubscriptionReading,
    TopicReading,
)
from ledgerfold.broker.metrics.subscription_metrics import SUBSCRIPTION_METRICS
from ledgerfold.broker.metrics.text import parts
from ledgerfold.broker.metrics.topic_metrics import TOPIC_METRICS
from ledgerfold.broker.metrics.totals import CompactionTotals
from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.storage.errors import CompactionFailed
from ledgerfold.storage.files import Files
from ledgerfold.v1.admin_pb2 import COMPACTOR_STATE_READY
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_ERROR,
    RUN_STATE_SUCCESS,
    RunCounts,
    RunRecord,
    RunState,
)
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "METRICS.md").read_text()
ENTRIES = [([Message(b"a", b"1")], False), ([Message(b"a", b"2"), Message(b"b", b"1")], True)]
Samples = dict[str, float]


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


@pytest.fixture
def reader(lab: BrokerLab) -> MetricsReader:
    _ = lab.topic
    return MetricsReader(lab.broker)


def samples(lab: BrokerLab, reader: MetricsReader) -> Samples:
    """By name, of TOPIC; of subscriptions as name/subscription."""
    lab.broker.compactor.state = COMPACTOR_STATE_READY
    lab.broker.compactor.restarts = 0
    text = "".join(parts(lab.run(reader.read())))
    return {
        "/".join([each.name, *filter(None, [each.labels.get("subscription")])]): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if each.labels.get("topic") == TOPIC
    }


def test_the_document_lists_exactly_the_catalogue() -> None:
    """Name, type, unit, labels and meaning of every metric, in order."""
    row_pattern = r"^\| `([^`]+)` \| (.*?) \| (.*?) \| (.*?) \| (.*) \|$"
    rows = re.findall(row_pattern, DOCUMENT, re.MULTILINE)
    documented = [tuple(map(str.strip, row)) for row in rows if not row[0].startswith("process_")]
    assert documented == [
        (each.name, each.kind, each.unit, ", ".join(each.labels), each.help)
        for each in all_metrics()
    ]


def test_names_have_prometheus_suffixes() -> None:
    """Counters in _total; names are unique."""
    names = [each.name for each in all_metrics()]
    assert len(set(names)) == len(names)
    assert all(each.name.endswith("_total") == (each.kind == "counter") for each in all_metrics())


def test_the_figures_of_a_topic(lab: BrokerLab, reader: MetricsReader) -> None:
    """They equal `topics stats`; without a run there are none of compaction (MET-01)."""
    lab.run(create_subscription(lab.topic, "s", StartPosition(earliest=True)))
    lab.publish(ENTRIES)
    found = samples(lab, reader)
    assert not [name for name in found if "compaction" in name]
    assert found["pulsar_in_messages_total"] == 3
    assert found["pulsar_storage_size"] == found["pulsar_in_bytes_total"] > 0
    assert found["pulsar_storage_backlog_size"] == found["pulsar_storage_size"]
    assert (found["pulsar_msg_backlog"], found["pulsar_subscription_back_log/s"]) == (2, 2)
    assert (found["pulsar_subscriptions_count"], found["pulsar_consumers_count"]) == (1, 0)
    lab.consume(1, read_compacted=False)
    after = samples(lab, reader)
    assert after["pulsar_subscription_back_log/s"] == 1
    assert after["pulsar_out_messages_total/s"] == 3


def test_metrics_of_runs_appear_after_the_first_and_end_with_the_topic(
    lab: BrokerLab, reader: MetricsReader
) -> None:
    """MET-10: after the deletion there is no sample, nor for a new topic of that name."""
    lab.publish(ENTRIES)
    assert lab.compact() is not None
    found = samples(lab, reader)
    assert found["pulsar_compaction_succeed_count"] == 1
    assert found["pulsar_compaction_failed_count"] == 0
    assert found["pulsar_compaction_removed_event_count"] == 1
    assert found["pulsar_compaction_compacted_entries_count"] == 1
    assert found["pulsar_compaction_compacted_entries_size"] > 0
    lab.run(lab.broker.delete_topic(TOPIC, force=True))
    assert not samples(lab, reader)
    lab.publish(ENTRIES)
    assert not [name for name in samples(lab, reader) if "compaction" in name]


def test_the_horizon_lag_counts_entries_that_no_run_has_read(
    lab: BrokerLab, reader: MetricsReader
) -> None:
    """Bytes and age of the entries after it; 0 if there are none. A failed run changes neither."""
    bytes_name = "ledgerfold_compaction_horizon_lag_bytes"
    seconds_name = "ledgerfold_compaction_horizon_lag_seconds"
    lab.publish(ENTRIES)
    lab.compact()
    found = samples(lab, reader)
    assert (found[bytes_name], found[seconds_name]) == (0, 0)
    lab.publish(ENTRIES)
    lab.advance(60_000)
    lab.publish(ENTRIES)
    behind = samples(lab, reader)
    assert behind[bytes_name] == found["pulsar_storage_size"] * 2
    assert 60 <= behind[seconds_name] < 61
    lab.compactor.failure = CompactionFailed("phase two", "a test wants it")
    lab.compact()
    failed = samples(lab, reader)
    assert failed[bytes_name] == behind[bytes_name]
    assert failed["pulsar_compaction_failed_count"] == 1


def test_the_time_of_the_last_success_survives_a_restart(
    lab: BrokerLab, reader: MetricsReader
) -> None:
    """Sums start over; the time of the last success is durable. Failures do not count."""
    name = "ledgerfold_compaction_seconds_since_success"
    lab.publish(ENTRIES)
    lab.compact()
    assert samples(lab, reader)[name] < 1
    lab.advance(5_000)
    lab.restart()
    lab.publish(ENTRIES)
    lab.compactor.failure = CompactionFailed("phase two", "a test wants it")
    after = samples(lab, MetricsReader(lab.broker))
    assert "pulsar_compaction_succeed_count" not in after
    assert 5 <= after[name] < 6
    lab.compact()
    assert 5 <= samples(lab, MetricsReader(lab.broker))[name] < 6


def test_the_event_loop_runs_between_topics(
    lab: BrokerLab, reader: MetricsReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics that are unloaded in between are left out, and the others are included."""
    monkeypatch.setattr(readings, "SLICE_S", 0)

    async def unload_in_between() -> Readings:
        for name in ("u", "v"):
            await lab.broker.topic(f"persistent://public/default/{name}")
        scrape = asyncio.create_task(reader.read())
        await asyncio.sleep(0)
        del lab.broker.topics["persistent://public/default/u"]
        return await scrape

    lab.broker.compactor.restarts = 0
    lab.broker.compactor.state = COMPACTOR_STATE_READY
    topics = [each.topic for each in lab.run(unload_in_between()).topics]
    assert [each.rpartition("/")[2] for each in topics] == ["t", "v"]


def run(state: RunState, counts: RunCounts | None = None) -> RunRecord:
    """Returns a run that took two seconds."""
    return RunRecord(topic="t", state=state, started_ms=1000, ended_ms=3000, counts=counts)


def test_totals_of_runs_add_up() -> None:
    """Failures and cancellations count, and take time; throughput is the last success's."""
    totals = CompactionTotals()
    first = RunCounts(
        removed_events=5, bytes_in=100, phase_one_ms=7, write_latency_counts=[2, 0, 1]
    )
    totals.add(run(RUN_STATE_SUCCESS, first))
    totals.add(run(RUN_STATE_SUCCESS, first))
    last = RunCounts(
        removed_events=1, bytes_in=300, bytes_out=50, bytes_kept=31, vector_bytes=1, bytes_new=40
    )
    totals.add(run(RUN_STATE_SUCCESS, last))
    totals.add(run(RUN_STATE_ERROR))
    totals.add(run(RUN_STATE_CANCELLED))
    found = totals.of("t")
    assert found is not None
    assert (found.succeeded, found.failed, found.removed_events) == (3, 2, 11)
    assert (found.duration_ms, found.phase_one_ms) == (10_000, 14)
    assert (found.read_throughput, found.write_throughput) == (150, 10)
    assert (found.bytes_new, found.bytes_written) == (40, 20)
    assert found.latency_counts == [4, 0, 2, *[0] * 7]


def test_prometheus_can_parse_the_text() -> None:
    """The parser of Prometheus' client returns every value and label."""
    name = 'persistent://public/default/a"b\\c\nd'
    subscription = SubscriptionReading("s", tuple(range(len(SUBSCRIPTION_METRICS))))
    values = [at / 4 for at in range(len(TOPIC_METRICS))]
    topic = TopicReading("public/default", name, tuple(values), [subscription], 'm:C"')
    text = "".join(parts(Readings([topic], 3, 1, COMPACTOR_STATE_READY, 2)))
    families = {each.name: each for each in text_string_to_metric_families(text)}
    for topic_metric, value in zip(TOPIC_METRICS, values, strict=True):
        metric = topic_metric.metric
        family = families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        (sample,) = family.samples
        labels = {"cluster": "standalone", "namespace": "public/default", "topic": name}
        assert (sample.name, sample.labels, sample.value) == (metric.name, labels, value)
    (info,) = families["ledgerfold_compaction_strategy_info"].samples
    assert (info.labels["topic"], info.labels["strategy"], info.value) == (name, 'm:C"', 1)
    states = families["ledgerfold_compactor_state"].samples
    assert [each.labels["state"] for each in states if each.value] == ["ready"]
    assert families["ledgerfold_compaction_queue_length"].samples[0].value == 3


def test_every_sync_is_timed(tmp_path: Path) -> None:
    """The file is the real one in all else."""
    seconds: list[float] = []
    file = Files(seconds.append).create(tmp_path / "f")
    file.write([b"ab", b"c"])
    file.sync()
    file.sync()
    assert (len(seconds), file.size_bytes, file.path) == (2, 3, str(tmp_path / "f"))
    assert all(each >= 0 for each in seconds)
    file.close()
    assert (tmp_path / "f").read_bytes() == b"abc"

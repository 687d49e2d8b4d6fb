"""Tests the figures of a Kafka topic: in stats, and in metrics under Kafka's names."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ledgerfold.broker.metrics.kafka_metrics import CLEANER_METRICS
from ledgerfold.broker.metrics.readings import MetricsReader
from ledgerfold.broker.metrics.text import parts
from ledgerfold.broker.stats.kafka import kafka_internal_stats, kafka_stats
from ledgerfold.broker.stats.partitioned import partitioned_stats
from ledgerfold.v1.admin_pb2 import COMPACTOR_STATE_READY
from tests.model.broker_lab import TOPIC
from tests.support.kafka_lab import KafkaLab

A, B = (b"a", b"1"), (b"b", b"2")


@pytest.fixture
def lab() -> Iterator[KafkaLab]:
    lab = KafkaLab({"cleanup.policy": "compact,delete"})
    lab.add([A, B], [A])
    lab.run(lab.kafka.roll())
    lab.add([B])
    yield lab
    lab.close()


def test_stats_of_a_kafka_topic_have_offsets_and_sizes(lab: KafkaLab) -> None:
    """Common fields have Pulsar's names, fields of a partition Kafka's."""
    lab.run(lab.kafka.partition.set_log_start(1))
    told = kafka_stats(lab.kafka)
    assert (told["msgInCounter"], told["subscriptions"]) == (4, {})
    assert told["storageSize"] == told["bytesInCounter"] > 0
    assert told["kafka"] == {
        "partition": "t-0",
        "cleanupPolicy": "compact,delete",
        "segments": 2,
        "logStartOffset": 1,
        "logEndOffset": 4,
        "highWatermark": 4,
        "lastStableOffset": 4,
    }
    json.dumps(told)


def test_internal_stats_list_segments_and_cleaner_state(lab: KafkaLab) -> None:
    """The active one is marked."""
    lab.add([A], producer_id=7, producer_epoch=0, base_sequence=0)
    lab.broker.cleaner.mark_uncleanable(TOPIC, "it is damaged")
    told = kafka_internal_stats(lab.kafka, lab.broker.cleaner)
    assert told["lastConfirmedEntry"] == "0:4"
    kafka = told["kafka"]
    assert (kafka["checkpoint"], kafka["producers"]) == (None, 1)
    assert kafka["uncleanable"] == "it is damaged"
    found = [
        (each["baseOffset"], each["nextOffset"], each["active"]) for each in kafka["segmentList"]
    ]
    assert found == [(0, 3, False), (3, 5, True)]
    json.dumps(told)


def test_offsets_of_partitions_are_not_added_up(lab: KafkaLab) -> None:
    told = kafka_stats(lab.kafka)
    both = partitioned_stats({"p0": told, "p1": told}, per_partition=True)
    assert (both["msgInCounter"], "kafka" in both) == (8, False)
    assert both["partitions"]["p0"]["kafka"]["logEndOffset"] == 4


def test_metrics_exist_under_kafkas_names_too(lab: KafkaLab) -> None:
    """Tests the metrics of the log, and of the cleaner: every gauge that it has."""
    lab.broker.compactor.state = COMPACTOR_STATE_READY
    lab.broker.compactor.restarts = 0
    reader = MetricsReader(lab.broker)
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families("".join(parts(lab.run(reader.read()))))
        for sample in family.samples
    }
    assert found["kafka_log_log_logendoffset"] == found["pulsar_in_messages_total"] == 4
    assert found["kafka_log_log_size"] == found["pulsar_storage_size"] > 0
    assert found["kafka_log_log_numlogsegments"] == 2
    assert {each.name for each in CLEANER_METRICS.values()} <= found.keys()
    assert lab.broker.cleaner.gauge_values().keys() == CLEANER_METRICS.keys()
    assert found["pulsar_topics_count"] == 1

"""Metrics of a real broker over HTTP: all are documented, and show the operations."""

from __future__ import annotations

import gzip
import re
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from ledgerfold.broker.client import Client, InitialPosition
from ledgerfold.broker.client.administration.admin import Admin
from tests.conftest import MakeBroker
from tests.support.broker_process import BrokerProcess
from tests.support.compactor_process import CompactorProcess
from tests.support.waiting import RUN_S, WAIT_MS, WAIT_S, wait_until

ANY_PORT = ("--metrics-listen", "127.0.0.1:0")
DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "METRICS.md").read_text()
Samples = dict[str, float]


def get(broker: BrokerProcess, path: str = "/metrics", encoding: str = "") -> tuple[bytes, str]:
    """Returns body and content type."""
    url = f"http://{broker.ready['metrics']}{path}"
    request = urllib.request.Request(url, headers={"Accept-Encoding": encoding})
    with urllib.request.urlopen(request, timeout=WAIT_S) as response:
        return response.read(), response.headers["Content-Type"]


def families(broker: BrokerProcess) -> list[Metric]:
    return list(text_string_to_metric_families(get(broker)[0].decode()))


def samples(broker: BrokerProcess, **labels: str) -> Samples:
    """Returns the samples by name that have these labels and no others beside cluster and
    namespace.
    """
    own = {"cluster", "namespace", *labels}
    return {
        sample.name: sample.value
        for family in families(broker)
        for sample in family.samples
        if labels.items() <= sample.labels.items() and sample.labels.keys() <= own
    }


def documented() -> dict[str, tuple[str, set[str]]]:
    """Returns type and labels by name."""
    rows = re.findall(r"^\| `([^`]+)` \| (\w+) \| .*? \| (.*?) \| .* \|$", DOCUMENT, re.MULTILINE)
    return {name: (kind, set(labels.split(", ")) - {""}) for name, kind, labels in rows}


@pytest.mark.spark
def test_metrics_of_a_compaction_equal_pulsars(
    broker_process: MakeBroker, compactor: CompactorProcess
) -> None:
    """MET-01 and MET-10; all exposed metrics are documented, and vice versa."""
    broker = broker_process(*ANY_PORT, compactor=compactor.address)
    name = "persistent://public/default/t"
    with Client(broker.url) as client, Admin(broker.url) as admin:
        admin.create_topic("k", kafka={"cleanup.policy": "compact"})
        producer = client.create_producer("t")
        consumer = client.subscribe("t", "s", initial_position=InitialPosition.Earliest)
        for number in range(1000):
            producer.send_async(b"%d" % number, None, partition_key=f"k{number % 10}")
        producer.flush()
        assert not [each for each in samples(broker, topic=name) if "compaction" in each]
        broker.wait_for_compactor()
        admin.trigger_compaction("t")
        *_, last = admin.watch_compaction("t", timeout_seconds=RUN_S)
        assert not last.last_error
        found = samples(broker, topic=name)
        prefix = "pulsar_compaction_"
        assert found[prefix + "removed_event_count"] == 990
        assert (found[prefix + "succeed_count"], found[prefix + "failed_count"]) == (1, 0)
        assert found[prefix + "duration_time_in_mills"] > 0
        assert found[prefix + "read_throughput"] > found[prefix + "write_throughput"] > 0
        assert found[prefix + "compacted_entries_count"] == 10
        assert found[prefix + "compacted_entries_size"] > 0
        assert found[prefix + "latency_sum"] > 0
        buckets = sum(found[each] for each in found if re.search(r"latency_(le|overflow)", each))
        assert found[prefix + "latency_count"] == buckets > 0
        assert found["ledgerfold_compaction_horizon_lag_bytes"] == 0
        assert found["ledgerfold_compaction_phase_one_seconds_total"] > 0
        assert "ledgerfold_compaction_seconds_since_success" in found
        exposed = {
            sample.name if family.type != "histogram" else family.name: (
                family.type,
                set(sample.labels) - {"le"},
            )
            for family in families(broker)
            for sample in family.samples
        }
        assert exposed == documented()
        # First, because a client that connects again creates the topic again.
        producer.close()
        consumer.close()
        admin.delete_topic("t")
        assert not samples(broker, topic=name)


def test_traffic_and_syncs_are_counted(broker_process: MakeBroker) -> None:
    """Tests topic, subscription and reader; one sync for each receipt, because each send waits for
    its own.
    """
    broker = broker_process(*ANY_PORT)
    topic = "persistent://public/default/t"
    with Client(broker.url) as client:
        producer = client.create_producer("t")
        consumer = client.subscribe("t", "s", initial_position=InitialPosition.Earliest)
        for number in range(5):
            producer.send(b"%d" % number, partition_key="k")
        for _ in range(5):
            consumer.acknowledge(consumer.receive(WAIT_MS))

        def acknowledged() -> Samples | None:
            found = samples(broker, topic=topic, subscription="s")
            return found if not found["pulsar_subscription_back_log"] else None

        of_subscription = wait_until(acknowledged, "the acknowledgements")
        assert of_subscription is not None
        assert of_subscription["pulsar_out_messages_total"] == 5
        assert of_subscription["pulsar_subscription_last_acked_timestamp"] > 0
        found = samples(broker, topic=topic)
        assert found["pulsar_in_messages_total"] == 5
        assert (found["pulsar_producers_count"], found["pulsar_consumers_count"]) == (1, 1)
        of_broker = samples(broker)
        assert of_broker["ledgerfold_fsync_seconds_count"] >= 5
        assert of_broker["ledgerfold_fsync_seconds_sum"] > 0
        assert of_broker["pulsar_topics_count"] == 1
        assert of_broker["process_resident_memory_bytes"] > 0
        assert samples(broker, state="disabled")["ledgerfold_compactor_state"] == 1


def test_the_server_follows_the_scraping_protocol(broker_process: MakeBroker) -> None:
    """The text format, compressed for clients that accept it; one path, and an explanation on
    others.
    """
    broker = broker_process(*ANY_PORT)
    plain, content_type = get(broker)
    assert content_type.startswith("text/plain; version=0.0.4")
    zipped, _ = get(broker, encoding="gzip")
    assert gzip.decompress(zipped).splitlines()[0] == plain.splitlines()[0]
    with pytest.raises(HTTPError) as error:
        get(broker, "/")
    error.value.close()
    assert (error.value.code, "/metrics" in error.value.reason) == (404, True)


def test_no_port_is_open_without_the_option(broker_process: MakeBroker) -> None:
    """The ready line names the port if there is one."""
    assert "metrics" not in broker_process().ready

"""Partitioned topics and lists of topics, by Pulsar's own client."""

from __future__ import annotations

import pulsar
import pytest

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand
from tests.pulsar.recorded import RawClient
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_MS, WAIT_S


@pytest.fixture
def partitioned(broker: BrokerProcess, topic: str) -> str:
    with Admin(broker.url) as admin:
        admin.create_partitioned_topic(topic, 4)
    return topic


def test_a_partitioned_topic(client: pulsar.Client, native: Client, partitioned: str) -> None:
    names = client.get_topic_partitions(partitioned)
    assert [each.rpartition("-")[2] for each in names] == ["0", "1", "2", "3"]
    consumer = client.subscribe(partitioned, "s")
    producer = client.create_producer(
        partitioned,
        batching_enabled=True,
        message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
        batching_max_messages=5,
    )
    ids = []
    for number in range(40):
        producer.send_async(b"%d" % number, lambda _, each: ids.append(each))
    producer.flush()
    assert {each.partition() for each in ids} == {0, 1, 2, 3}
    found = []
    for _ in range(40):
        message = consumer.receive(WAIT_MS)
        found.append(int(message.data()))
        consumer.acknowledge(message)
    assert sorted(found) == list(range(40))
    reader = client.create_reader(partitioned, pulsar.MessageId.earliest)
    seen = set()
    while reader.has_message_available():
        at = reader.read_next(WAIT_MS).message_id()
        seen.add((at.ledger_id(), at.entry_id(), at.partition(), at.batch_index()))
    assert len(seen) == 40
    consumer.unsubscribe()
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(f"{partitioned}-partition-4")


def test_java_clients_may_look_for_new_partitions(broker: BrokerProcess, partitioned: str) -> None:
    """They look only if the broker reports that the request creates no topic."""
    missing = [f"{partitioned}-too", f"{partitioned}-partition-4", "persistent://public/none/t"]
    with RawClient(str(broker.ready["pulsar"]), is_connected=False) as client:
        connect = pulsar_pb2.CommandConnect(client_version=b"raw", protocol_version=20)
        client.send(BaseCommand(type=pulsar_pb2.CONNECT, connect=connect))
        flags = client.read().connected.feature_flags
        assert flags.supports_get_partitioned_metadata_without_auto_creation

        def asked(topic: str, may_create: bool) -> tuple[int, int]:
            request = pulsar_pb2.CommandPartitionedMetadata(
                topic=topic, request_id=1, metadata_auto_creation_enabled=may_create
            )
            type_ = pulsar_pb2.PARTITIONED_METADATA
            client.send(BaseCommand(type=type_, partitioned_metadata=request))
            answer = client.read().partitioned_metadata_response
            return answer.partitions, answer.error

        unused = "non-persistent://public/default/unused"
        with Admin(broker.url) as admin:
            admin.create_partitioned_topic(unused, 2)
        assert asked(f"{unused}-partition-1", False) == (0, 0)
        for name in (*missing, f"{unused}-partition-2"):
            assert asked(name, False) == (0, pulsar_pb2.TOPIC_NOT_FOUND)
        assert asked(partitioned, False) == asked(partitioned, True) == (4, 0)
        assert asked(f"{partitioned}-partition-3", False) == (0, 0)
        assert asked(missing[0], True) == (0, 0)


def test_topics_by_pattern(client: pulsar.Client, native: Client, partitioned: str) -> None:
    import re

    # This creates the namespace.
    native.create_producer("persistent://public/list/another")
    for name in ("one", "two"):
        client.create_producer(f"persistent://public/list/{name}").send(name.encode())
    client.create_producer("persistent://public/list/other").send(b"other")
    consumer = client.subscribe(
        re.compile("persistent://public/list/(one|two)"),
        "s",
        initial_position=pulsar.InitialPosition.Earliest,
    )
    found = {consumer.receive(WAIT_MS).data() for _ in range(2)}
    assert found == {b"one", b"two"}
    both = client.subscribe(
        ["persistent://public/list/one", f"persistent://public/default/{partitioned}"],
        "t",
        initial_position=pulsar.InitialPosition.Earliest,
    )
    assert both.receive(WAIT_MS).data() == b"one"


def test_a_topic_of_an_unknown_namespace(client: pulsar.Client) -> None:
    """As in Pulsar: a misspelt namespace is not created implicitly."""
    unknown = "persistent://nobody/nowhere/t"
    with pytest.raises(pulsar.TopicNotFound):
        client.create_producer(unknown)
    with pytest.raises(pulsar.TopicNotFound):
        client.subscribe(unknown, "s")
    with pytest.raises(pulsar.TopicNotFound):
        client.get_topic_partitions(unknown)


def test_an_unknown_listener_is_refused(broker: BrokerProcess, topic: str) -> None:
    url = f"pulsar://{broker.ready['pulsar']}"
    client = pulsar.Client(url, operation_timeout_seconds=round(WAIT_S), listener_name="outside")
    with pytest.raises(pulsar.NotAllowedError):
        client.create_producer(topic)
    client.close()

"""A topic that is exported and imported continues unchanged on another broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pulsar
import pytest

import ledgerfold
from ledgerfold import ConsumerType, MessageId
from ledgerfold.broker.cli.main import main
from ledgerfold.testing import Broker
from ledgerfold.v1.records_pb2 import Policies
from tests.support.waiting import WAIT_MS

ARGUMENTS = ["--compactor", "inline", "--pulsar-listen", "127.0.0.1:0", "--segment-size", "8kB"]


def read(broker: Broker, **arguments: Any) -> list[tuple[MessageId, bytes]]:
    with broker.client.create_reader("orders", MessageId.earliest, **arguments) as reader:
        return [(message.message_id(), message.data()) for message in reader]


def test_an_imported_topic_continues_on_another_broker(tmp_path: Path) -> None:
    source, target, file = tmp_path / "source", tmp_path / "target", tmp_path / "orders.topic"
    with Broker(source, arguments=ARGUMENTS) as broker:
        with broker.client.create_producer("orders", producer_name="p") as producer:
            for number in range(200):
                producer.send(b"%d" % number, partition_key=f"k{number % 9}")
        consumer = broker.client.subscribe("orders", "audit", ConsumerType.Shared)
        consumer.close()
        consumer = broker.client.subscribe(
            "orders", "billing", initial_position=ledgerfold.InitialPosition.Earliest
        )
        for _ in range(50):
            consumer.acknowledge(consumer.receive(WAIT_MS))
        consumer.close()
        broker.compact_and_wait("orders")
        theirs = pulsar.Client(broker.pulsar_url)
        theirs.create_producer("orders").send(b"theirs", partition_key="k1")
        theirs.close()
        broker.admin.update_policies(topic="orders", values=Policies(retention_ms=60_000))
        raw, view = read(broker), read(broker, is_read_compacted=True)
        horizon = broker.admin.internal_stats("orders")["cursors"]["__compaction"]
    assert main(["topics", "export", "orders", str(file), "--data", str(source)]) == 0
    assert main(["topics", "import", str(file), "--data", str(target)]) == 0
    with Broker(target, arguments=ARGUMENTS) as broker:
        assert read(broker) == raw
        assert read(broker, is_read_compacted=True) == view
        stats = broker.admin.internal_stats("orders")
        position = "markDeletePosition"
        assert stats["cursors"]["__compaction"][position] == horizon[position]
        consumer = broker.client.subscribe("orders", "billing")
        assert consumer.receive(WAIT_MS).data() == b"50"
        consumer.close()
        # What a producer has sent is known.
        with broker.client.create_producer("orders", producer_name="p") as producer:
            assert producer.last_sequence_id() == 199
            last = producer.send(b"on", partition_key="k1")
        assert last > raw[-1][0]
        broker.compact_and_wait("orders")
        assert len(read(broker, is_read_compacted=True)) == 9


def test_a_start_imports_topics_that_do_not_exist(tmp_path: Path) -> None:
    """A restart with the same options leaves what has happened since."""
    source, target = tmp_path / "source", tmp_path / "target"
    files = [tmp_path / "orders.topic", tmp_path / "many.topic"]
    with Broker(source, arguments=ARGUMENTS) as broker:
        broker.admin.create_partitioned_topic("many", 2)
        for topic in ("orders", "many"):
            with broker.client.create_producer(topic) as producer:
                for number in range(20):
                    producer.send(b"%d" % number, partition_key=f"k{number % 3}")
        broker.compact_and_wait("orders")
        raw, view = read(broker), read(broker, is_read_compacted=True)
    for file in files:
        assert main(["topics", "export", file.stem, str(file), "--data", str(source)]) == 0
    arguments = [*ARGUMENTS, *(f"--import={file}" for file in files)]
    with Broker(target, arguments=arguments) as broker:
        assert (read(broker), read(broker, is_read_compacted=True)) == (raw, view)
        assert broker.admin.partitioned_stats("many")["msgInCounter"] == 0
        with broker.client.create_producer("orders") as producer:
            last = producer.send(b"on", partition_key="k")
        assert last > raw[-1][0]
        broker.compact_and_wait("orders")
    with Broker(target, arguments=arguments) as broker:
        assert read(broker)[-1] == (last, b"on")


def test_a_start_without_its_archive_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before it creates a directory."""
    data, file = tmp_path / "data", tmp_path / "orders.topic"
    serve = ["serve", "--data", str(data), "--listen", "127.0.0.1:0", "--import", str(file)]
    assert main(serve) == 3
    file.write_text("no archive")
    assert main(serve) == 2
    assert "orders.topic is not a file that" in capsys.readouterr().err
    assert not data.exists()

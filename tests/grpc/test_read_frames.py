"""Frames of a running broker have the messages that its readers get; so has its directory when it
is stopped.
"""

from __future__ import annotations

import threading
from typing import Any

import pulsar
import pytest

import ledgerfold
from ledgerfold import frames
from ledgerfold.errors import DirectoryLocked, NotAllowed, TopicNotFound
from ledgerfold.frames.query import Query
from ledgerfold.frames.reading import parts_of
from ledgerfold.testing import Broker
from tests.support.waiting import WAIT_S

COLUMNS = ["ledger_id", "entry_id", "batch_index", "key", "value", "sequence_id"]


def rows(topic: str, **arguments: Any) -> list[tuple[Any, ...]]:
    table = frames.read(topic, columns=COLUMNS, **arguments)
    return [tuple(row.values()) for row in table.to_pylist()]


def expected(client: ledgerfold.Client, topic: str, **arguments: Any) -> list[tuple[Any, ...]]:
    with client.create_reader(topic, ledgerfold.MessageId.earliest, **arguments) as reader:
        return [
            (
                message.message_id().ledger_id(),
                message.message_id().entry_id(),
                message.message_id().batch_index(),
                message.key_bytes(),
                None if message.has_null_value() else message.data(),
                message.sequence_id(),
            )
            for message in reader
        ]


def publish(broker: Broker, topic: str, count: int) -> None:
    with broker.client.create_producer(
        topic, batching_enabled=True, block_if_queue_full=True
    ) as batching:
        for number in range(count):
            batching.send_async(b"%d" % number, None, partition_key=f"k{number % 7}")
        batching.flush()
    with broker.client.create_producer(topic) as single:
        single.send(b"single", partition_key=b"\xff", event_timestamp=5)
        single.send(None, partition_key="k1")


def test_every_kind_of_topic_is_read_in_each_way(tmp_path: Any) -> None:
    arguments = [
        "--compactor",
        "inline",
        "--segment-size",
        "64kB",
        "--pulsar-listen",
        "127.0.0.1:0",
    ]
    arguments += ["--compaction-segment-garbage-max", "90%"]
    with Broker(tmp_path / "data", arguments=arguments) as broker:
        publish(broker, "raw", 3000)
        publish(broker, "view", 300)
        broker.compact_and_wait("view")
        publish(broker, "view", 20)
        # The second run leaves dead rows in segments of the first.
        broker.compact_and_wait("view")
        publish(broker, "view", 10)
        theirs = pulsar.Client(broker.pulsar_url)
        producer = theirs.create_producer(
            "raw", batching_enabled=True, compression_type=pulsar.CompressionType.ZSTD
        )
        for number in range(50):
            producer.send_async(b"theirs", lambda *_: None, partition_key=f"k{number}")
        producer.flush()
        theirs.close()
        broker.admin.create_topic("kafka", kafka={"cleanup.policy": "compact"})
        publish(broker, "kafka", 500)
        broker.admin.create_partitioned_topic("divided", 3)
        publish(broker, "divided", 100)

        client, url = broker.client, broker.url
        raw, view = expected(client, "raw"), expected(client, "view", is_read_compacted=True)
        kafka = expected(client, "kafka")
        assert rows("raw", url=url) == raw
        assert rows("view", url=url, compacted=True) == view
        assert rows("view", url=url) == expected(client, "view")
        assert rows("kafka", url=url) == kafka
        assert rows("kafka", url=url, isolation="read_committed") == kafka
        divided = rows("divided", url=url)
        assert sorted(divided) == sorted(expected(client, "divided"))
        first, last = raw[40][:2], raw[-30][:2]
        assert rows("raw", url=url, start=first, end=last) == [
            row for row in raw if first <= row[:2] < last
        ]
        assert rows("kafka", url=url, start=7, end=90) == kafka[7:90]
        with pytest.raises(DirectoryLocked):
            rows("raw", data=broker.data_dir)
        with pytest.raises(TopicNotFound):
            rows("absent", url=url)
        with pytest.raises(NotAllowed, match="no transactions"):
            rows("raw", url=url, isolation="read_committed")
        with pytest.raises(NotAllowed, match="no separate compacted view"):
            rows("kafka", url=url, compacted=True)
    assert rows("raw", data=tmp_path / "data") == raw
    assert rows("view", data=tmp_path / "data", compacted=True) == view
    assert rows("kafka", data=tmp_path / "data") == kafka
    assert rows("divided", data=tmp_path / "data") == divided


def test_the_ranges_of_a_plan_cover_the_topic(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of a few KB, as a large topic has parts of 64 MiB, and a page of one segment.

    No test had segments on a second page.
    """
    monkeypatch.setattr("ledgerfold.broker.client.administration.kafka_pages.PAGE_MAX", 1)
    monkeypatch.setattr("ledgerfold.frames.remote.PART_BYTES", 2000)
    monkeypatch.setattr("ledgerfold.frames.directory.PART_BYTES", 2000)
    with Broker(tmp_path / "data", compaction=False, arguments=["--segment-size", "8kB"]) as broker:
        with broker.client.create_producer("t") as producer:
            for number in range(100):
                producer.send(b"v" * 50, partition_key=str(number))
                if number == 50:
                    broker.admin.unload("t")
        broker.admin.create_topic("k", kafka={"segment.bytes": "1048576"})
        with broker.client.create_producer("k") as producer:
            for number in range(50):
                producer.send(b"v" * 100_000, partition_key=str(number))
        for topic in ("t", "k"):
            parts = parts_of(Query.of(topic, url=broker.url))
            assert len(parts) > 3
            assert rows(topic, url=broker.url) == expected(broker.client, topic)
            whole = expected(broker.client, topic)
    for topic in ("t", "k"):
        assert len(parts_of(Query.of(topic, data=tmp_path / "data"))) > 1
    assert rows("k", data=tmp_path / "data") == whole


def test_a_compacted_read_during_compactions_has_the_last_message_of_each_key(
    tmp_path: Any,
) -> None:
    arguments = ["--compactor", "inline"]
    with Broker(tmp_path / "data", arguments=arguments) as broker:
        has_all, is_over = threading.Event(), threading.Event()

        def publish_and_compact() -> None:
            with broker.client.create_producer("t") as producer:
                for number in range(6):
                    for key in range(200):
                        producer.send_async(b"%d" % number, None, partition_key=str(key))
                    producer.flush()
                    has_all.set()
                    broker.compact_and_wait("t")
            is_over.set()

        publisher = threading.Thread(target=publish_and_compact)
        publisher.start()
        assert has_all.wait(WAIT_S)
        while not is_over.is_set():
            table = frames.read("t", url=broker.url, compacted=True)
            assert len(set(table["key"].to_pylist())) == 200
        publisher.join()

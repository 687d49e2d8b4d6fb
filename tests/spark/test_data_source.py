"""The data source for Spark: topics as DataFrames and as streams, with a broker and without."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, lit
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from ledgerfold import frames
from ledgerfold.frames.query import Query
from ledgerfold.frames.spark.reading import Reader
from ledgerfold.frames.spark.streaming import StreamReader
from ledgerfold.frames.spark.types import SCHEMA, columns_of
from ledgerfold.frames.spark.writing import check_columns
from ledgerfold.spark import LedgerfoldDataSource
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError, NotAllowed
from ledgerfold.testing import Broker
from tests.support.waiting import wait_until

COUNT = 300


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Serves a topic with a compacted view, a Kafka topic and a partitioned one."""
    data = tmp_path_factory.mktemp("broker") / "data"
    with Broker(data, arguments=["--compactor", "inline"]) as started:
        started.admin.create_topic("kafka", kafka={})
        started.admin.create_partitioned_topic("divided", 2)
        for topic in ("prices", "kafka", "divided"):
            with started.client.create_producer(topic, batching_enabled=True) as producer:
                for number in range(COUNT):
                    producer.send_async(
                        b"%d" % number, None, {"n": str(number)}, partition_key=f"k{number % 7}"
                    )
                producer.flush()
        started.compact_and_wait("prices")
        yield started


def load(sql: Any, topic: str, **options: str) -> DataFrame:
    reader = sql.read.format("ledgerfold").options(**options)
    found: DataFrame = reader.load(topic)
    return found


def finish(sink: Any) -> None:
    """Runs a stream to its end. Spark waits ten seconds for the start of a Python process: on a
    busy machine that is not enough, and the query is started again.
    """
    for _ in range(3):
        try:
            sink.start().awaitTermination()
            return
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
    raise AssertionError("Spark starts no Python process in ten seconds.")


def test_spark_reads_all_rows(sql: Any, broker: Broker, tmp_path: Path) -> None:
    """One test, for each query takes seconds."""
    url = broker.url
    for topic in ("prices", "kafka", "divided"):
        assert load(sql, topic, url=url).toArrow().num_rows == COUNT
    row = load(sql, "prices", url=url).first()
    table = frames.read("prices", url=url).slice(0, 1).to_pylist()[0]
    assert row is not None
    assert bytes(row.value) == table["value"]
    assert row.properties == dict(table["properties"])
    assert row.publish_time.astimezone(UTC) == table["publish_time"]
    view = load(sql, "prices", url=url, compacted="true").select("key", "value")
    assert {bytes(each.key): bytes(each.value) for each in view.collect()} == {
        b"k%d" % (number % 7): b"%d" % number for number in range(COUNT - 7, COUNT)
    }
    # Only these columns are decoded.
    keys = sql.read.format("ledgerfold").schema("key BINARY").options(url=url, keys='["k3"]')
    assert keys.load("kafka").count() == 43
    assert load(sql, "kafka", url=url, start="10", end="20").count() == 10

    written = sql.createDataFrame([("a", "1"), ("b", None)], "key string, value string")
    written.coalesce(1).write.format("ledgerfold").option("url", url).mode("append").save("out")
    out = frames.read("out", url=url, columns=["key", "value"]).to_pylist()
    assert out == [{"key": b"a", "value": b"1"}, {"key": b"b", "value": None}]

    stream = sql.readStream.format("ledgerfold").options(url=url, topic="divided", start="earliest")
    sink = stream.load().select("key", "value").writeStream.format("ledgerfold")
    sink = sink.options(url=url, topic="copy", checkpointLocation=str(tmp_path / "checkpoint"))
    finish(sink.trigger(availableNow=True))
    assert frames.read("copy", url=url).num_rows == COUNT

    with pytest.raises(AnalysisException, match="Unknown options"):
        load(sql, "prices", url=url, colour="red").count()
    with pytest.raises(AnalysisException, match="does not exist"):
        load(sql, "absent", url=url).count()


@pytest.mark.parametrize("pushdown", ["false", "true"])
def test_a_filter_affects_no_other_scan(sql: Any, broker: Broker, pushdown: str) -> None:
    """Spark's scans of one DataFrame share what they read. A test that used a DataFrame again after
    a filter had been missing.
    """
    prices = load(sql, "prices", url=broker.url)
    one, other = (prices.filter(col("key") == lit(key)) for key in (b"k0", b"k1"))
    sql.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        assert one.count() == 43
        assert prices.count() == COUNT
        assert one.union(other).count() == 86
    finally:
        sql.conf.unset("spark.sql.python.filterPushdown.enabled")


STREAM = """
import sys
from pathlib import Path
from ledgerfold.compactor.job.session import SessionSettings, start_session
from ledgerfold.spark import LedgerfoldDataSource
from tests.spark.sql_session import sql_session

folder, url = Path(sys.argv[1]), sys.argv[2]
sql = sql_session(start_session(SessionSettings("local[1]", folder / "spark")))
stream = sql.readStream.format("ledgerfold").options(url=url, start="earliest").load("flow")
sink = stream.select("value").writeStream.format("parquet").option("path", str(folder / "out"))
sink.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_query_resumes_where_it_stopped(sql: Any, broker: Broker, tmp_path: Path) -> None:
    """A batch that was begun and not committed is repeated, and written once."""
    (tmp_path / "spark").mkdir()
    checkpoint, published = tmp_path / "checkpoint", 0

    def publish() -> None:
        nonlocal published
        with broker.client.create_producer("flow", batching_enabled=True) as producer:
            for _ in range(500):
                producer.send_async(b"%d" % published, None)
                published += 1
            producer.flush()

    publish()
    query = subprocess.Popen(
        [sys.executable, "-c", STREAM, str(tmp_path), broker.url],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
    )
    try:
        wait_until((checkpoint / "commits" / "0").exists, "a batch that is committed", 150)
        publish()
        wait_until((checkpoint / "offsets" / "1").exists, "a batch that is begun", 150)
    finally:
        os.killpg(query.pid, signal.SIGKILL)
        query.wait()
    publish()
    stream = sql.readStream.format("ledgerfold").options(url=broker.url, start="earliest")
    sink = stream.load("flow").select("value").writeStream.format("parquet")
    sink = sink.options(path=str(tmp_path / "out"), checkpointLocation=str(checkpoint))
    finish(sink.trigger(availableNow=True))
    found = sql.read.parquet(str(tmp_path / "out")).toArrow()["value"].to_pylist()
    assert sorted(map(int, found)) == list(range(published))


# -- without Spark's JVM -----------------------------------------------------------------------


def query_of(**options: str) -> Query:
    reader = LedgerfoldDataSource({"topic": "t", "data": "d", **options}).reader(SCHEMA)
    assert isinstance(reader, Reader)
    return reader.query


def stream_of(topic: str, **options: str) -> StreamReader:
    reader = LedgerfoldDataSource({"topic": topic, **options}).streamReader(SCHEMA)
    assert isinstance(reader, StreamReader)
    return reader


@pytest.mark.parametrize("kind", ["raw", "kafka", "divided"])
def test_a_limit_divides_a_stream_into_batches(broker: Broker, kind: str) -> None:
    """A first batch had the whole topic, however large. No test had asked for less."""
    topic, values = f"limited-{kind}", [b"%03d" % number for number in range(60)]
    if kind == "kafka":
        broker.admin.create_topic(topic, kafka={})
    if kind == "divided":
        broker.admin.create_partitioned_topic(topic, 2)
    with broker.client.create_producer(topic) as producer:
        for value in values:
            producer.send(value, partition_key=value.decode())
    options = {"url": broker.url, "start": "earliest"}
    stream = stream_of(topic, **options, maxBytesPerTrigger="1000")
    stream.prepareForTriggerAvailableNow()
    with broker.client.create_producer(topic) as producer:
        producer.send(b"later", partition_key="k")
    at, batches = stream.initialOffset(), list[list[bytes]]()
    while (end := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
        parts = stream.partitions(at, end)
        found = [batch["value"].to_pylist() for part in parts for batch in stream.read(part)]
        batches.append([value for column in found for value in column])
        at = end
    assert 3 < len(batches) < 20
    # The query ends at the end that the topic had when it started.
    assert sorted(value for batch in batches for value in batch) == values


def test_a_checkpoint_of_another_kafka_log_is_refused(broker: Broker) -> None:
    """A stream over a topic that was created again skipped records, until there were as many as
    before. No test had deleted the topic of a stream.
    """
    broker.admin.create_topic("again", kafka={})
    for count in (3, 1):
        with broker.client.create_producer("again") as producer:
            for _ in range(count):
                producer.send(b"1")
        stream = stream_of("again", url=broker.url, start="earliest")
        if count == 3:
            checkpoint = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
            broker.admin.delete_topic("again")
            broker.admin.create_topic("again", kafka={})
    with pytest.raises(NotAllowed, match=r"at offset 2 of .*/again, whose last offset is 0: "):
        stream.latestOffset(checkpoint, ReadAllAvailable())


def test_a_checkpoint_of_a_topic_of_another_kind_is_refused(broker: Broker) -> None:
    """Its position was behind every offset, and the stream read nothing, for ever."""
    with broker.client.create_producer("changed") as producer:
        producer.send(b"1")
    stream = stream_of("changed", url=broker.url, start="earliest")
    checkpoint = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    broker.admin.delete_topic("changed")
    broker.admin.create_topic("changed")
    # A native topic may be created again.
    assert stream.latestOffset(checkpoint, ReadAllAvailable()) == checkpoint
    broker.admin.delete_topic("changed")
    broker.admin.create_topic("changed", kafka={})
    with pytest.raises(NotAllowed, match=r"at \d+:0 of .*/changed, whose last offset is -1: "):
        stream.latestOffset(checkpoint, ReadAllAvailable())


def test_a_planned_batch_that_a_truncation_shortened_is_refused(broker: Broker) -> None:
    """Spark repeats it after a restart, and would take the rest for all of it."""
    broker.admin.create_topic("shortened", kafka={})
    with broker.client.create_producer("shortened") as producer:
        for _ in range(3):
            producer.send(b"1")
    stream = stream_of("shortened", url=broker.url, start="earliest")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    assert len(stream.partitions(start, end)) == 1
    broker.admin.delete_topic("shortened")
    broker.admin.create_topic("shortened", kafka={})
    with pytest.raises(NotAllowed, match=r"at offset 2 of .*/shortened, whose last offset is -1: "):
        stream.partitions(start, end)


@pytest.mark.parametrize(("topic", "url"), [("absent", None), ("t", "127.0.0.1:1:2")])
def test_an_error_of_a_stream_shows_no_frames_of_this_package(
    broker: Broker, topic: str, url: str | None
) -> None:
    """Spark's messages contain whole tracebacks, of 30 lines before the sentence."""
    with pytest.raises(LedgerfoldError) as raised:
        stream_of(topic, url=url or broker.url).initialOffset()
    text = "".join(traceback.format_exception(raised.value))
    assert "remote.py" not in text
    assert "plain_errors.py" in text


@pytest.mark.parametrize(
    "options",
    [
        {"url": "127.0.0.1:1", "maxBytesPerTrigger": "0"},
        {"url": "127.0.0.1:1", "maxBytesPerTrigger": "1m"},
        {"data": "d", "maxBytesPerTrigger": "5"},
    ],
)
def test_limits_that_cannot_apply_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="maxBytesPerTrigger must be"):
        stream_of("t", **options)


def test_options_reduce_the_data_that_is_read() -> None:
    query = query_of(keys='["a", "é,", ""]', startTime="5", endTime="9", start="7:2", end="8:0")
    assert query.keys == frozenset([b"a", "é,".encode(), b""])
    assert (query.start_ms, query.end_ms) == (5, 9)
    assert (query.start, query.end) == (Position(7, 2), Position(8, 0))
    for wrong in ("soon", "-1"):
        with pytest.raises(InvalidRequest, match="startTime must be a time in ms"):
            query_of(starttime=wrong)
    with pytest.raises(InvalidRequest, match=r"\['startingoffsets'\].*startTime, endTime, keys"):
        query_of(startingOffsets="earliest")
    assert query_of().keys is None
    assert query_of(keys="[]").keys == frozenset()


@pytest.mark.parametrize("keys", ["a", "3", '"a"', "[3]", '{"a": 1}', r'["\ud800"]'])
def test_other_keys_are_refused(keys: str) -> None:
    with pytest.raises(InvalidRequest, match="keys"):
        query_of(keys=keys)


def test_a_column_as_text_is_refused_with_the_cast(sql: Any) -> None:
    schema = cast(StructType, StructType.fromDDL("key STRING"))
    with pytest.raises(InvalidRequest, match=r'binary, not string.*col\("key"\)\.cast'):
        columns_of(schema)


@pytest.mark.parametrize("ddl", ["value2 BINARY", "ledger_id INT"])
def test_other_columns_are_refused(sql: Any, ddl: str) -> None:
    schema = cast(StructType, StructType.fromDDL(ddl))
    with pytest.raises(InvalidRequest, match="No column"):
        columns_of(schema)
    with pytest.raises(InvalidRequest):
        check_columns(schema)
    assert columns_of(SCHEMA) == tuple(SCHEMA.fieldNames())

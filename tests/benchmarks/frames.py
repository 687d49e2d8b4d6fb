"""Reads of a whole topic as Arrow tables and by Spark, against the same rows in Parquet.

Messages of 100 B over 10,000 keys, in batches, are published; the broker stops. Then the topic
is read from its directory: all columns by `ledgerfold.frames`, keys and values only, and the same
by Spark's data source with two tasks. Against: `pyarrow.parquet` and `spark.read.parquet` of the
rows that `export parquet` writes; all in processes of their own, and Spark into its `noop` sink.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from ledgerfold.broker.wire.frames import encode_entries
from tests.benchmarks import wire
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, median, spread
from tests.benchmarks.workload import Workload
from tests.support.broker_process import BrokerProcess

TOPIC = "frames"
_TIMED = """
import json, sys, time

data, parquet, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
found = {}

def timed(name, read):
    for number in range(rounds):
        began = time.perf_counter()
        rows = read()
        found.setdefault(name, []).append(time.perf_counter() - began)
        found["rows"] = rows
"""
_ARROW = """
import pyarrow.parquet as pq
from ledgerfold import frames

wanted = ["key", "value"]
timed("frames", lambda: frames.read("frames", data=data).num_rows)
timed("frames columns", lambda: frames.read("frames", data=data, columns=wanted).num_rows)
timed("frames keys", lambda: frames.read("frames", data=data, columns=["key"]).num_rows)
timed("parquet", lambda: pq.read_table(parquet).num_rows)
timed("parquet columns", lambda: pq.read_table(parquet, columns=wanted).num_rows)
print(json.dumps(found))
"""
_SPARK = """
from pyspark.sql import SparkSession
from ledgerfold.spark import LedgerfoldDataSource

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(LedgerfoldDataSource)

def drained(frame):
    frame.write.format("noop").mode("overwrite").save()
    return 1

topic = spark.read.format("ledgerfold").option("data", data)
some = topic.schema("key BINARY, value BINARY")
# The first query of each kind starts Spark's Python processes.
drained(some.load("frames"))
timed("spark columns", lambda: drained(some.load("frames")))
timed("spark parquet columns", lambda: drained(spark.read.parquet(parquet).select("key", "value")))
whole = spark.read.format("ledgerfold").option("data", data)
timed("spark", lambda: drained(whole.load("frames")))
timed("spark parquet", lambda: drained(spark.read.parquet(parquet)))
spark.stop()
print(json.dumps(found))
"""


def run(options: Options) -> Report:
    workload = Workload(options.messages_or(1_000_000), keys=10_000, value_bytes=100)
    report = Report("frames", "a whole topic as Arrow tables, and by Spark")
    rounds = options.rounds_or(3)
    with options.fresh_folder() as folder:
        data, parquet = folder / "data", folder / "rows.parquet"
        with BrokerProcess(data) as broker:
            frames = [encode_entries([entry]) for entry, _ in workload.entries()]
            asyncio.run(_publish(broker.url, frames))
        export = ["export", "parquet", TOPIC, str(parquet), "--data", str(data)]
        subprocess.run(
            [sys.executable, "-m", "ledgerfold", *export], check=True, capture_output=True
        )
        arrow = _timed(_ARROW, data, parquet, rounds)
        spark = _timed(_SPARK, data, parquet, rounds)
    messages = workload.messages
    for name, found, times, baseline in (
        ("frames.read, all columns", "frames", arrow, "parquet"),
        ("frames.read, key and value", "frames columns", arrow, "parquet columns"),
        ("frames.read, key", "frames keys", arrow, ""),
        ("Spark, all columns", "spark", spark, "spark parquet"),
        ("Spark, key and value", "spark columns", spark, "spark parquet columns"),
    ):
        rates = [messages / seconds for seconds in times[found]]
        against = spread(rates)
        if baseline:
            theirs = messages / median(times[baseline])
            against += f"; Parquet {theirs:,.0f} a second, {theirs / median(rates):.1f} times that"
        report.add(name, median(rates), "messages a second", against)
    return report


def _timed(code: str, data: Path, parquet: Path, rounds: int) -> dict[str, list[float]]:
    """Returns the seconds of each round, by name."""
    arguments = [str(data), str(parquet), str(rounds)]
    done = subprocess.run(
        [sys.executable, "-c", _TIMED + code, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


async def _publish(broker: str, frames: list[bytes]) -> None:
    async with wire.connected(broker) as channel:
        await wire.publish(wire.Broker(channel, TOPIC), frames)

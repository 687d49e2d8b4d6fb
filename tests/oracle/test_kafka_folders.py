"""Folders written by Kafka's classes are imported, and Kafka's classes open exported ones.

Needs the real log cleaner: LEDGERFOLD_KAFKA_ORACLE names the command that runs it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ledgerfold.broker.cli.data.export_kafka import export_folder
from ledgerfold.broker.cli.data.import_kafka import Imported, import_folder
from ledgerfold.broker.client.administration.kafka_logs import KafkaLogs
from ledgerfold.storage.kafka.batch import read_batch_header
from tests.support.broker_process import BrokerProcess
from tests.support.kafka_oracle import COMMAND, KafkaOracle

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(COMMAND not in os.environ, reason=f"{COMMAND} names no command"),
]
CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "internal.segment.bytes": "600",
    "index.interval.bytes": "100",
}
OURS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "segment.bytes": str(1 << 20),
    "index.interval.bytes": "100",
}
CRASHES = ("writing", "renaming", "renamed", "marking", "finishing", "swapped", "splitting")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaLogs]:
    folder = tmp_path_factory.mktemp("folders") / "data"
    with (
        BrokerProcess(folder, arguments=("--compactor", "off")) as broker,
        KafkaLogs(broker.url) as logs,
    ):
        yield logs


@pytest.fixture
def oracle(tmp_path: Path) -> Iterator[KafkaOracle]:
    with KafkaOracle(tmp_path / "oracle") as oracle:
        yield oracle


def fill(oracle: KafkaOracle, log: str = "t-0") -> None:
    """Several segments, with tombstones, transactions, an idempotent producer, all codecs."""
    oracle("create", log=log, config=CONFIG)
    for at, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"] * 4):
        oracle("clock", advance=1000)
        pairs = [(f"k{(at * 3 + n) % 7}", f"{at}-{n}" * 5) for n in range(3)]
        records = [{"key": key, "value": value} for key, value in (*pairs, (f"k{at % 5}", None))]
        oracle("append", log=log, records=records, batch=True, codec=codec)
    for at in range(6):
        producer = 7 + at % 2
        oracle(
            "append", log=log, records=[{"key": f"t{at % 2}", "value": "x" * 50}],
            pid=producer, epoch=0, sequence=at // 2, transactional=True,
        )  # fmt: skip
        oracle("marker", log=log, pid=producer, epoch=0, type="abort" if at % 3 else "commit")
        records = [{"key": "i", "value": f"{at}"}]
        oracle("append", log=log, records=records, pid=9, epoch=0, sequence=at)


def told_by_kafka(oracle: KafkaOracle, log: str = "t-0") -> dict[str, Any]:
    oracle("high-watermark", log=log)
    info = oracle("info", log=log)
    segments = oracle("segments", log=log)["segments"]
    return {
        "start": info["start"],
        "end": info["end"],
        "stable": info["lastStable"],
        "segments": [(each["base"], each["size"]) for each in segments],
        "batches": [
            (each["base"], each["last"], each["md5"])
            for each in oracle("batches", log=log)["batches"]
        ],
    }


def told_by_us(logs: KafkaLogs, topic: str) -> dict[str, Any]:
    told = logs.describe(topic)
    return {
        "start": told.log_start_offset,
        "end": told.log_end_offset,
        "stable": told.last_stable_offset,
        "segments": [(each.base_offset, each.size_bytes) for each in told.segments],
        "batches": [
            (
                (header := read_batch_header(batch)).base_offset,
                header.last_offset,
                hashlib.md5(batch).hexdigest(),
            )
            for batch in logs.batches(topic)
        ],
    }


def imported(logs: KafkaLogs, oracle: KafkaOracle, copy: Path, topic: str) -> Imported:
    """Returns a copy of the folder, and of the files beside it."""
    shutil.copytree(oracle.log_dir, copy)
    return import_folder(logs, copy / "t-0", topic, OURS, stays_paused=True)


def test_a_cleanly_closed_folder(logs: KafkaLogs, oracle: KafkaOracle, tmp_path: Path) -> None:
    fill(oracle)
    oracle("log-start", log="t-0", offset=5)
    oracle("reopen", log="t-0")
    told = told_by_kafka(oracle)
    imported(logs, oracle, tmp_path / "copy", "closed")
    ours = told_by_us(logs, "closed")
    # The oracle writes no log-start-offset-checkpoint.
    assert ours | {"start": 5} == told | {"start": 5}
    times = [each.modified_ms for each in logs.describe("closed").segments]
    assert times == [each["modified"] for each in oracle("segments", log="t-0")["segments"]]


def test_a_cleaned_folder(logs: KafkaLogs, oracle: KafkaOracle, tmp_path: Path) -> None:
    """With gaps, empty segments, headers without records, horizons, and its checkpoint."""
    fill(oracle)
    for _ in range(3):
        oracle("roll", log="t-0")
        turn = oracle("clean")
        oracle("clock", advance=90_000_000)
        oracle("append", log="t-0", records=[{"key": "end", "value": None}])
    oracle("reopen", log="t-0")
    found = imported(logs, oracle, tmp_path / "copy", "cleaned")
    assert told_by_us(logs, "cleaned") == told_by_kafka(oracle)
    assert found.checkpoint == turn["checkpoint"]["t-0"]
    told = logs.describe("cleaned")
    plan = oracle("plan", log="t-0")
    assert told.checkpoint == plan["firstDirty"]
    assert [each.largest_timestamp_ms for each in told.segments] == [
        each["largestTimestamp"] for each in oracle("segments", log="t-0")["segments"]
    ]


@pytest.mark.parametrize("point", CRASHES)
def test_a_folder_after_a_crash(
    point: str, logs: KafkaLogs, oracle: KafkaOracle, tmp_path: Path
) -> None:
    """Reconstructed from the files that the cleaning read and wrote."""
    with KafkaOracle(tmp_path / "other") as other:
        for each in (oracle, other):
            if point == "splitting":
                each("create-overflowed", log="t-0", config=CONFIG)
            else:
                fill(each)
        other("clean")
        left = oracle("crash", log="t-0", point=point)["left"]
        (old,) = oracle.log_dir.parent.glob("kept*")
        new, crashed = other.log_dir / "t-0", tmp_path / "crashed" / "t-0"
        crashed.mkdir(parents=True)
        for name in left:
            suffix = name.rpartition(".")[2]
            is_aside = suffix in ("swap", "cleaned", "deleted")
            plain = name.removesuffix(f".{suffix}") if is_aside else name
            is_new = suffix in ("swap", "cleaned") or point in ("finishing", "swapped")
            source = (new if is_new and suffix != "deleted" else old) / plain
            if source.exists():
                shutil.copy2(source, crashed / name)
    before = sorted((each.name, each.read_bytes()) for each in crashed.iterdir())
    if point == "splitting":
        # Kafka splits in its next cleaning, and cleans in the one after that.
        assert oracle("clean")["aborted"]
    import_folder(logs, crashed, f"crash-{point}", OURS, stays_paused=True)
    assert told_by_us(logs, f"crash-{point}") == told_by_kafka(oracle)
    assert sorted((each.name, each.read_bytes()) for each in crashed.iterdir()) == before


def exported(logs: KafkaLogs, oracle: KafkaOracle, topic: str, kept: Path) -> None:
    """Kafka's classes open it: once as after a clean shutdown, and once as after a crash."""
    folder = kept / f"{topic}-0"
    export_folder(logs, topic, folder, topic_id=uuid4(), checkpoints=True)
    shutil.copytree(folder, oracle.log_dir / folder.name)
    oracle("create", log=folder.name, config=CONFIG)


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_kafka_opens_an_exported_folder(
    is_cleaned: bool, logs: KafkaLogs, oracle: KafkaOracle, tmp_path: Path
) -> None:
    fill(oracle)
    if is_cleaned:
        for _ in range(3):
            oracle("roll", log="t-0")
            oracle("clean")
            oracle("clock", advance=90_000_000)
            oracle("append", log="t-0", records=[{"key": "end", "value": None}])
    oracle("reopen", log="t-0")
    topic = f"out-{is_cleaned}"
    imported(logs, oracle, tmp_path / "copy", topic)
    exported(logs, oracle, topic, tmp_path)
    told, log = told_by_kafka(oracle), f"{topic}-0"
    segments = oracle("segments", log="t-0")["segments"]
    aborted = oracle("aborted", log="t-0")["transactions"]
    for clean in (True, False, True):
        assert told_by_kafka(oracle, log) == told
        assert oracle("segments", log=log)["segments"] == segments
        assert oracle("aborted", log=log)["transactions"] == aborted
        assert oracle("producers", log=log) == oracle("producers", log="t-0")
        for isolation in ("committed", "uncommitted"):
            assert oracle("read", log=log, offset=0, isolation=isolation) == oracle(
                "read", log="t-0", offset=0, isolation=isolation
            )
        oracle("reopen", log=log, clean=clean)

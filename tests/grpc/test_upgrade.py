"""Data directories of each earlier format open without loss, and then have the present format.

`tests/formats` has one of each, written by a build of that time: a keyed topic of six messages that
was compacted, followed by two messages; a subscription that acknowledged three; a partitioned
topic; if there were Kafka topics, a cleaned one.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from ledgerfold.storage.names import metadata_dir
from ledgerfold.storage.records import (
    DELETION_VECTORS,
    FEATURES,
    GRANTS,
    KAFKA_TOPICS,
    PULSAR_ENTRIES,
    RECORD_VERSION,
    SCHEMAS,
    STORE_KEY,
    TENANTS,
)
from ledgerfold.storage.rocks_reading import read_pairs
from ledgerfold.v1.records_pb2 import StoreRecord
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import ledgerfold

FORMATS = Path(__file__).parents[1] / "formats"
ARCHIVES = sorted(FORMATS.glob("*.tar.xz"))
VIEW = [
    ("1003", "Milkman Road"),
    ("1002", "21 Jump St"),
    ("1001", "Paper Road 21"),
    ("1003", None),
    ("1004", "Fleet Street"),
]
RAW = [
    ("1001", "4 Privet Dr"),
    ("1002", "221B Baker Street"),
    ("1003", "Milkman Road"),
    ("1002", "21 Jump St"),
    ("1001", "Paper St"),
    ("1001", "Paper Road 21"),
    *VIEW[3:],
]
# The result of a cleaning of nine records of two keys, and one later record.
LOG = [("b", "3"), ("a", "x3"), ("c", "last")]


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "data"


def messages(broker: BrokerProcess, *arguments: str) -> list[tuple[str, str | None]]:
    ran = ledgerfold("--url", broker.url, "read", *arguments, "--until-end", "-o", "jsonl")
    assert ran.code == 0, ran.err
    return [(row["key"], row["value"]) for row in ran.rows]


def test_each_format_opens_without_loss(data: Path) -> None:
    """Before, at, and after the first start of this build; then it continues."""
    assert ledgerfold("verify", str(data)).code == 0
    is_new = (data / "writes").exists()
    has_kafka = b"topic/persistent://public/default/log" in dict(_pairs(data))
    for start in range(2):
        with BrokerProcess(data, arguments=("--compactor", "off")) as broker:
            assert messages(broker, "addresses", "--read-compacted") == VIEW + LOG[2:] * start
            assert messages(broker, "addresses") == RAW + LOG[2:] * start
            assert sorted(messages(broker, "orders")) == [
                ("7", "done"),
                ("7", "sent"),
                ("8", "paid"),
            ]
            if has_kafka:
                assert messages(broker, "log") == LOG
            (run,) = ledgerfold("--url", broker.url, "runs", "addresses", "-o", "jsonl").rows
            assert run["strategy"] == "publishing-order"
            if not start:
                ledgerfold("--url", broker.url, "produce", "addresses", "-k", "c", "-m", "last")
                stats = ledgerfold("--url", broker.url, "topics", "stats", "addresses")
                assert '"msgBacklog": 6' in stats.out
            broker.stop()
            assert is_new or start or "now has store version 3" in broker.stderr
    assert ledgerfold("verify", str(data)).code == 0
    value = dict(_pairs(data))[STORE_KEY]
    # Builds from before features were recorded read only version 1.
    assert value[0] > RECORD_VERSION
    features = set(StoreRecord.FromString(value[1:]).features)
    # None of them has a deletion vector, a tenant, a schema, a grant, an entry of Pulsar's clients.
    expected = FEATURES - {DELETION_VECTORS, TENANTS, SCHEMAS, PULSAR_ENTRIES, GRANTS}
    assert features == (expected if has_kafka else expected - {KAFKA_TOPICS})


def _pairs(data: Path) -> list[tuple[bytes, bytes]]:
    return read_pairs(metadata_dir(data)).pairs.scan(b"")


def test_each_format_has_a_directory() -> None:
    """A build that changes a format adds the directory that it writes (CONTRIBUTING.md)."""
    assert {path.name.removesuffix(".tar.xz") for path in ARCHIVES} == {
        "0.1.0-first",
        "0.1.0-store-1",
        "0.1.0-store-2",
        "0.2.0",
    }

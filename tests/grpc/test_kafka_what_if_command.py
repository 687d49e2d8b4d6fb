"""`what-if` of a Kafka topic on a real broker: the worker reads its log, and nothing changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgerfold.broker.cli.exit_codes import USAGE
from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import Cli, ledgerfold

pytestmark = pytest.mark.spark
SEGMENT = "internal.segment.bytes"
RATIO = "min.cleanable.dirty.ratio"


@pytest.fixture
def broker(shared_broker: BrokerProcess) -> BrokerProcess:
    return shared_broker


@pytest.fixture
def cli(broker: BrokerProcess) -> Cli:
    return lambda *arguments, stdin=b"": ledgerfold("--url", broker.url, *arguments, stdin=stdin)


@pytest.fixture
def log(cli: Cli, client: Client, topic: str) -> str:
    """A hundred records of ten keys, ten per batch, all in the active segment."""
    assert cli("topics", "create", topic, "--cleanup-policy", "compact").code == 0
    with client.create_producer(topic, batching_max_messages=10) as producer:
        for number in range(100):
            producer.send_async(b"%d" % number, None, partition_key=f"k{number % 10}")
    return topic


def test_all_combinations(cli: Cli, log: str, tmp_path: Path) -> None:
    before = cli("topics", "describe-log", log, "--batches").out
    picture = tmp_path / "cleanings.svg"
    asked = ("--config", f"{SEGMENT}=500,1000", "--config", f"{RATIO}=0.1,0.9")
    ran = cli("what-if", log, *asked, "--plot", str(picture))
    assert ran.code == 0, ran.err
    given, *rows = ran.rows
    assert (given["about"], given["messages"]) == ("input", 100)
    assert [(row["about"], row["settings"]) for row in rows] == [
        ("cleaning", f"{SEGMENT}={size} {RATIO}={ratio}")
        for size in (500, 1000)
        for ratio in (0.1, 0.9)
    ]
    assert rows[0]["rounds"] > 0
    assert rows[0]["end_space_bytes"] < given["bytes"]
    assert f"{SEGMENT}=500" in picture.read_text()
    table = cli("what-if", log, *asked, "-o", "table").out
    assert "the log has 100 records in" in table
    assert cli("topics", "describe-log", log, "--batches").out == before


def test_the_settings_of_the_topic(cli: Cli, admin: Admin, log: str) -> None:
    """With one segment, nothing is cleaned."""
    (row,) = cli("what-if", log).rows[1:]
    assert (row["settings"], row["rounds"], row["records"]) == ("(as they are)", 0, 100)
    (found,) = admin.what_if(log, trials=[{SEGMENT: "500"}])
    assert found.cleanings[0].segments_end > 1


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (("--strategy", "newest"), "is a Kafka topic: it has a cleaner, but no strategies"),
        (("--threshold", "1M"), "is a Kafka topic: it has a cleaner, but no strategies"),
        (("--config", "compression.type=zstd"), "compression.type does not affect the cleaner"),
        (("--config", f"{RATIO}=7"), "Value must be no more than 1"),
        (("--config", RATIO), "expected NAME=VALUE"),
        (("--config", f"{RATIO}=1", "--config", f"{RATIO}=0"), f"--config {RATIO} is given twice"),
        (
            ("--config", "segment.ms=" + ",".join("1" * 25)),
            "25 combinations of settings. Try at most",
        ),
        (("--config", "cleanup.policy=delete"), "is not compacted: the cleaner ignores it"),
    ],
)
def test_contradictory_requests(cli: Cli, log: str, asked: tuple[str, ...], why: str) -> None:
    ran = cli("what-if", log, *asked)
    assert (ran.code, why in ran.err) == (USAGE, True), ran.err


def test_other_topics(cli: Cli, topic: str) -> None:
    assert cli("topics", "create", topic).code == 0
    ran = cli("what-if", topic, "--config", f"{RATIO}=0.1")
    assert (ran.code, "is not a Kafka topic: it has strategies" in ran.err) == (USAGE, True), (
        ran.err
    )
    ran = ledgerfold("what-if", "--csv", "prices.csv", "--config", f"{RATIO}=0.1")
    assert (ran.code, "--config applies to a Kafka topic" in ran.err) == (USAGE, True)

"""`serve --kafka-config` with a broker's server.properties, and single settings besides it."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from ledgerfold.broker.cli.kafka.config import serve_config
from ledgerfold.broker.cli.settings_files import read_properties
from ledgerfold.storage.errors import InvalidRequest, KafkaError
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import ledgerfold

PROPERTIES = """\
# The broker
broker.id=0
listeners=PLAINTEXT://:9092
! its logs
log.dirs = /tmp/kafka-logs
log.roll.hours = 1
log.cleaner.threads:2
log.cleanup.policy=compact,\\
    delete
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(PROPERTIES)
    return path


def config(*given: object) -> dict[str, str]:
    return serve_config(Namespace(kafka_config=[str(each) for each in given]))


def test_settings_of_other_parts_are_ignored_and_counted(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert config(path) == {
        "log.roll.hours": "1",
        "log.cleaner.threads": "2",
        "log.cleanup.policy": "compact,delete",
    }
    told = f"{path}: 3 settings not about logs, ignored, log.dirs among them\n"
    assert capsys.readouterr().err == told


def test_a_mistyped_name_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files are in Latin-1, as Java reads them."""
    path = tmp_path / "typed.properties"
    path.write_bytes(b"# Caf\xe9\nlog.cleaner.thread=2\nbroker.id=1\n")
    assert config(path) == {}
    told = f"{path}: 2 settings not about logs, ignored, log.cleaner.thread among them\n"
    assert capsys.readouterr().err == told


def test_a_single_setting_of_another_part_is_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    assert config("num.network.threads=3", "log.roll.hours=5") == {"log.roll.hours": "5"}
    told = "num.network.threads=3: 1 setting not about logs, ignored\n"
    assert capsys.readouterr().err == told


def test_the_last_of_several_values_counts(path: Path) -> None:
    assert config(path, "log.roll.hours=5")["log.roll.hours"] == "5"
    assert config("log.roll.hours=5", path)["log.roll.hours"] == "1"
    assert config() == {}


def test_invalid_settings_are_reported_before_the_start(path: Path, tmp_path: Path) -> None:
    """A single name of a log setting is meant; values are checked in Kafka's words."""
    with pytest.raises(InvalidRequest, match=r"no broker setting log\.roll\.days"):
        config("log.roll.days=5")
    with pytest.raises(KafkaError, match="Value must be at least 1"):
        config(path, "log.roll.hours=0")
    with pytest.raises(FileNotFoundError):
        config(tmp_path / "none.properties")
    data = ("serve", "--data", str(tmp_path / "data"))
    assert ledgerfold(*data, "--kafka-config", str(tmp_path / "none")).code == 3
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=b=c", {"a": "b=c"}),
        ("a b", {"a": "b"}),
        ("a", {"a": ""}),
        ("  a : b", {"a": "b"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a=b\\", {"a": "b"}),
        ("a=1\n\n#a=2\n", {"a": "1"}),
        ("a=1\\\n# no comment", {"a": "1# no comment"}),
    ],
)
def test_properties_files_are_parsed_as_by_java(text: str, pairs: dict[str, str]) -> None:
    assert read_properties(text) == pairs


@pytest.mark.process
def test_a_broker_applies_the_settings(path: Path, tmp_path: Path) -> None:
    arguments = ("--compactor", "off", "--kafka-config", str(path))
    with BrokerProcess(tmp_path / "data", arguments=arguments) as broker:
        cli = ("--url", broker.url)
        own = ledgerfold(*cli, "cleaner", "get-config", "--set").rows
        assert {row["name"]: row["value"] for row in own} == config(path)
        assert ledgerfold(*cli, "topics", "create", "t", "--cleanup-policy", "compact").code == 0
        (row,) = (
            row
            for row in ledgerfold(*cli, "topics", "get-config", "t").rows
            if row["name"] == "segment.ms"
        )
        assert (row["value"], row["source"]) == ("3600000", "log.roll.hours")

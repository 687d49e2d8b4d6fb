"""The options of `serve` from variables and a file: which wins, and what is refused."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import pytest

from ledgerfold.broker.cli.main import make_parser
from ledgerfold.broker.cli.option_sources import (
    CONFIG_BYTES_MAX,
    OptionSources,
    name_of,
    variable_of,
)
from ledgerfold.broker.cli.parsing import Parser
from ledgerfold.storage.errors import InvalidRequest
from tests.support.command_line import ledgerfold
from tests.tidy import ROOT


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith("LEDGERFOLD_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "a broker.toml"


def serve(*arguments: str) -> dict[str, Any]:
    return vars(make_parser().parse_args(["serve", *arguments]))


def serve_parser() -> Parser:
    commands = make_parser()._subparsers
    assert commands is not None
    (action,) = commands._group_actions
    assert isinstance(action, argparse._SubParsersAction)
    parser = action.choices["serve"]
    assert isinstance(parser, Parser)
    return parser


def test_the_command_line_wins_then_the_variable_then_the_file(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text(
        'data = "from-file"\nledger-size = "1G"\nsegment-size = "1M"\nlog-level="ERROR"'
    )
    monkeypatch.setenv("LEDGERFOLD_SEGMENT_SIZE", "2M")
    monkeypatch.setenv("LEDGERFOLD_LOG_LEVEL", "DEBUG")
    options = serve("--config", str(config), "--log-level", "WARNING")
    assert options["data"] == Path.cwd() / "from-file"
    assert options["ledger_bytes_max"] == 1 << 30
    assert options["segment_bytes_max"] == 2 << 20
    assert options["log_level"] == "WARNING"
    assert options["listen"] == "127.0.0.1:7650"


def test_the_file_may_be_named_by_a_variable(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text('data = "d"')
    monkeypatch.setenv("LEDGERFOLD_CONFIG", str(config))
    assert serve()["data"] == Path.cwd() / "d"


def test_an_empty_variable_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGERFOLD_LISTEN", "")
    assert serve("--data", "d")["listen"] == "127.0.0.1:7650"


def test_variables_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGERFOLD_LISTEN", "h:1")
    monkeypatch.setenv("LEDGERFOLD_SERVE_VARIABLES", "off")
    assert serve("--data", "d")["listen"] == "127.0.0.1:7650"


@pytest.mark.parametrize("text", ["true", "True", "false"])
def test_options_without_a_value(text: str, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text('data = "d"\nallow-reset = true\ntest-clock = true')
    monkeypatch.setenv("LEDGERFOLD_ALLOW_RESET", text)
    monkeypatch.setenv("LEDGERFOLD_TEST_CLOCK", text)
    options = serve("--config", str(config))
    assert options["allow_reset"] is (text != "false")
    assert (options["test_clock_start_ms"] is not None) is (text != "false")


def test_repeated_options(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array, or a table of names and values; words as in a shell. The highest source has all."""
    config.write_text(
        'data = "d"\nprofile = ["pulsar-4", "kafka-4.1"]\nemulate = ["exact_backlog=true"]\n'
        "[kafka-config]\nlog.roll.hours = 1\nlog.cleaner.enable = true\n"
        '"log.retention.ms" = "-1"\n'
    )
    monkeypatch.setenv("LEDGERFOLD_PULSAR_CONFIG", "'my broker.conf' maxMessageSize=5")
    options = serve("--config", str(config), "--emulate", "skip_run_without_new_data=true")
    assert options["profile"] == ["pulsar-4", "kafka-4.1"]
    assert options["emulate"] == ["skip_run_without_new_data=true"]
    assert options["pulsar_config"] == ["my broker.conf", "maxMessageSize=5"]
    expected = ["log.roll.hours=1", "log.cleaner.enable=true", "log.retention.ms=-1"]
    assert options["kafka_config"] == expected


def test_exclusive_options_count_as_one(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text('data = "d"\ncompaction-strategy = "newest"')
    monkeypatch.setenv("LEDGERFOLD_COMPACTOR_TYPE", "EVENT_TIME")
    assert serve("--config", str(config))["compaction_strategy"] == "EVENT_TIME"
    given = serve("--config", str(config), "--compaction-strategy", "keep-n")
    assert given["compaction_strategy"] == "keep-n"
    config.write_text('data = "d"\ncompaction-strategy = "newest"\ncompactor-type = "EVENT_TIME"')
    monkeypatch.delenv("LEDGERFOLD_COMPACTOR_TYPE")
    with pytest.raises(InvalidRequest, match="exclude each other"):
        serve("--config", str(config))


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('lisen = "h:1"', "'lisen' is not an option of serve. Did you mean listen?"),
        ('metrics_listen = "h:1"', "Did you mean metrics-listen?"),
        ('config = "other.toml"', "'config' is not an option of serve"),
        ("listen = true", "listen: True is not text or a whole number."),
        ("listen = 1.5", "listen: 1.5 is not text or a whole number."),
        ("listen = []", r"listen: \[\] is not text or a whole number."),
        ("[listen]\na = 1", "listen: {'a': 1} is not text or a whole number."),
        ('allow-reset = "yes"', "allow-reset: 'yes' is not true or false."),
        ("allow-reset = 1", "allow-reset: 1 is not true or false."),
        ('durability = "no"', r"durability: invalid choice: 'no' \(choose from"),
        ('segment-size = "big"', "segment-size: 'big' is not a size"),
        ("segment-size = -1", "segment-size: '-1' is not a size"),
        ("profile = [true]", "profile: True is not text or a whole number."),
        ("[kafka-config]\na = []", r"kafka-config.a: \[\] is not a single value."),
        ("profile = {a = 1}", "profile: {'a': 1} is not text or a whole number."),
        ("listen = 2024-01-01", "is not text or a whole number."),
        ("listen = ", "is not valid TOML: "),
        ('listen = "a"\nlisten = "b"', "is not valid TOML: "),
        ("a = " + "[" * 5000, "is not valid TOML: "),
        ("#" * (CONFIG_BYTES_MAX + 1), "has more than 1,048,576 bytes."),
    ],
)
def test_an_invalid_file_is_refused(text: str, wrong: str, config: Path) -> None:
    """By name and reason; nothing is started."""
    config.write_text(text)
    with pytest.raises(InvalidRequest, match=wrong) as refused:
        serve("--data", "d", "--config", str(config))
    assert str(config) in str(refused.value)


def test_a_file_that_is_not_utf8_is_refused(config: Path) -> None:
    config.write_bytes(b'listen = "\xff"')
    with pytest.raises(InvalidRequest, match="is not valid TOML"):
        serve("--data", "d", "--config", str(config))


@pytest.mark.parametrize(
    ("variable", "text", "wrong"),
    [
        ("LEDGERFOLD_DURABILITY", "no", "LEDGERFOLD_DURABILITY: invalid choice: 'no'"),
        ("LEDGERFOLD_ALLOW_RESET", "1", "LEDGERFOLD_ALLOW_RESET: '1' is not true or false."),
        ("LEDGERFOLD_PROFILE", "'a", "LEDGERFOLD_PROFILE: No closing quotation"),
        ("LEDGERFOLD_COMPACTOR_NICE", "20", "LEDGERFOLD_COMPACTOR_NICE: invalid choice: 20"),
    ],
)
def test_an_invalid_variable_is_refused(
    variable: str, text: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, text)
    ran = ledgerfold("serve", "--data", "d")
    assert (ran.code, wrong in ran.err) == (2, True), ran.err


def test_a_missing_file(tmp_path: Path) -> None:
    ran = ledgerfold("serve", "--data", "d", "--config", str(tmp_path / "none.toml"))
    assert (ran.code, ran.err) == (
        3,
        f"ledgerfold: {tmp_path}/none.toml: No such file or directory\n",
    )


def test_required_options_may_come_from_any_source() -> None:
    ran = ledgerfold("serve")
    assert ran.code == 2
    assert "the following arguments are required: --data" in ran.err
    found = OptionSources(serve_parser(), {"LEDGERFOLD_DATA": "/d"}).parse(lambda options: options)
    assert found.data == Path("/d")


def test_every_option_has_one_key_and_one_variable() -> None:
    options = [each for each in serve_parser()._actions if each.dest != "help"]
    assert len({name_of(each) for each in options}) == len({*map(variable_of, options)})
    assert len(options) > 40


def test_the_document_lists_the_sources_in_order() -> None:
    text = (ROOT / "docs/CONFIGURATION.md").read_text()
    assert "`serve --config FILE`" in text

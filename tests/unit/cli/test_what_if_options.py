"""Tests the questions of `what-if`, and its answers to invalid ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgerfold.broker.cli.data.import_rows import Row
from ledgerfold.broker.cli.exit_codes import NOT_FOUND, USAGE
from ledgerfold.broker.cli.main import make_parser
from ledgerfold.broker.cli.what_if.file import File, file_of, to_message
from ledgerfold.broker.cli.what_if.options import parse_strategy
from ledgerfold.broker.cli.what_if.rows import difference_row, setting_row, strategy_text
from ledgerfold.broker.whatif.file_log import FileMessage
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1.what_if_pb2 import KeptMessages, KeyDifference, ReplaySetting
from tests.support.command_line import ledgerfold


@pytest.mark.parametrize(
    "text", ["publishing-order", "keep-n:n=3", "my.module:Class", "my.module:Class:a=1,b=x:y"]
)
def test_a_strategy_option_is_parsed(text: str) -> None:
    """The name of a user-defined strategy may also contain a colon."""
    if text.endswith("x:y"):
        with pytest.raises(InvalidRequest):
            parse_strategy(text)
    else:
        assert strategy_text(parse_strategy(text)) == text


def test_pulsar_s_strategy_names_are_accepted() -> None:
    """As everywhere."""
    assert parse_strategy("EVENT_TIME").name == "event-time"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "Give exactly one of"),
        (("t", "--csv", "f.csv"), "Give exactly one of"),
        (("--csv", "f.csv", "--url", "h:1"), "--csv cannot be combined"),
        (("t", "--retain-null-key"), "applies to a file"),
        (("t", "--key", "id"), "apply to the rows of a file"),
        (("--csv", "f.csv", "--value", "v"), "require --key"),
        (("t", "--diff"), "at least twice"),
        (("t", "--diff", "--strategy", "newest"), "at least twice"),
        (("t", "--strategy", "keep-n"), "needs the setting 'n'"),
        (("t", "--strategy", "n/a"), "is not a strategy"),
        (("t", "--strategy", "keep-n:n=1,2"), "expected FIELD=VALUE"),
        (("t", "--threshold", "10X"), "is not a size"),
        (("t", "--threshold", "1M,0"), "must be 1 or more"),
        (("t", "--every", "1h,x"), "is not a duration"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], says: str) -> None:
    """They are reported before any call to a broker."""
    ran = ledgerfold("what-if", *arguments)
    assert ran.code == USAGE
    assert says in ran.err


def test_a_missing_file(tmp_path: Path) -> None:
    """As every command says it."""
    assert ledgerfold("what-if", "--csv", str(tmp_path / "none.csv")).code == NOT_FOUND


def test_an_invalid_file_names_the_line(tmp_path: Path) -> None:
    """No worker is started for it."""
    path = tmp_path / "wrong.jsonl"
    path.write_text('{"key": "a", "value": "1"}\n{"key": "a", "event_time_ms": "soon"}\n')
    ran = ledgerfold("what-if", "--jsonl", str(path))
    assert ran.code == USAGE
    assert "Line 2: 'event_time_ms' is not a time in ms: soon" in ran.err
    (tmp_path / "wrong.csv").write_text("key,content\na,1\n")
    ran = ledgerfold("what-if", "--csv", str(tmp_path / "wrong.csv"))
    assert "has no field 'value'" in ran.err


def test_rows_as_messages() -> None:
    """A null, or nothing, is no key; no value is a tombstone."""
    file = File("prices.jsonl", "jsonl")
    rows = {"key": "a", "value": "1", "event_time_ms": "7", "publish_time_ms": "8"}
    assert to_message(Row(1, rows, b""), file) == FileMessage(b"a", b"1", 7, 8)
    assert to_message(Row(1, {"key": "a"}, b""), file) == FileMessage(b"a", b"")
    no_key = Row(1, {"key": None, "value": "1"}, b"")
    assert to_message(no_key, file) == FileMessage(None, b"1")
    assert to_message(Row(1, {"key": "", "value": "1"}, b""), file) == FileMessage(b"", b"1")


def file_asked_for(*options: str) -> File:
    found = file_of(make_parser().parse_args(["what-if", "--jsonl", "f.jsonl", *options]))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--key", "id"), FileMessage(b"7", b"{row}", 0, 8)),
        (("--key", "id", "--event-time", "at"), FileMessage(b"7", b"{row}", 5, 8)),
        (("--key", "id", "--value", "price"), FileMessage(b"7", b"10", 0, 8)),
        (("--key", "id", "--tombstone-when", "price=10"), FileMessage(b"7", b"", 0, 8)),
        (("--event-time", "at"), FileMessage(b"k", b"v", 5, 8)),
    ],
)
def test_rows_with_other_field_names(options: tuple[str, ...], message: FileMessage) -> None:
    """As `import` takes them."""
    texts = {"id": "7", "price": "10", "at": "5", "publish_time_ms": "8", "key": "k", "value": "v"}
    row = Row(1, {**texts, "event_time_ms": "6"}, b"{row}")
    assert to_message(row, file_asked_for(*options)) == message


def test_a_named_time_field_must_contain_a_time() -> None:
    """An optional field may be missing."""
    file = file_asked_for("--event-time", "at")
    with pytest.raises(InvalidRequest, match="Line 3: 'at' is not a time in ms"):
        to_message(Row(3, {"key": "k"}, b""), file)


def test_settings_have_the_units_of_the_options() -> None:
    """Sizes and times have the same units as in other options."""
    settings = [
        ReplaySetting(threshold_bytes=10 * 1024 * 1024),
        ReplaySetting(threshold_bytes=1500),
        ReplaySetting(interval_ms=7_200_000),
        ReplaySetting(interval_ms=1500),
    ]
    assert [setting_row(each)["when"] for each in settings] == [
        "threshold 10M",
        "threshold 1500",
        "every 2h",
        "every 1500ms",
    ]


def test_incomplete_values_and_bytes() -> None:
    """A cut within a character leaves the characters before it; other bytes are base64."""
    kept = [
        KeptMessages(count=1, value="ä".encode()[:1] + b"", value_bytes=1),
        KeptMessages(count=1, value=b"x" + "ä".encode()[:1], value_bytes=9),
        KeptMessages(),
    ]
    row = difference_row(KeyDifference(key=b"\xff", kept=kept), ["a", "b", "c"])
    assert (row["key"], row["key_encoding"]) == ("/w==", "base64")
    assert [each["value"] for each in row["kept"]] == ["ww==", "x…", None]

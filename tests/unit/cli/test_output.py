"""What is printed: for people on a line of its own, for programs as JSON."""

from __future__ import annotations

import argparse
import base64
import io
import json
import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.cli.output import (
    aligned,
    content,
    message_row,
    message_text,
    print_message,
    print_rows,
    printable,
)
from ledgerfold.broker.client import Message
from ledgerfold.broker.client.message import ReceivedEntry
from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import read_header, stamped_header
from ledgerfold.storage.errors import Corruption
from ledgerfold.storage.native import NativeBatchBuilder


def message(
    value: bytes | None,
    key: bytes | None = b"k",
    properties: dict[str, str] | None = None,
    *,
    plain: bool = True,
) -> Message:
    """One that came as the entry 12:3."""
    builder = NativeBatchBuilder("p")
    builder.add(value, key, properties=properties, event_time_ms=7)
    frame = builder.build(sequence_id=5, publish_time_ms=9, compression=0, plain=plain)
    header = read_header(frame)
    stored = stamped_header(header, 12, 3, 10, 1)
    stored += frame[len(stored) :]
    header = read_header(stored)
    return Message((ReceivedEntry(header, decode(stored, header), "t", 0), 0))


def options(output: str | None) -> argparse.Namespace:
    return argparse.Namespace(output=output)


def test_a_message_as_json() -> None:
    """All that there is to know of it."""
    assert message_row(message(b"v", properties={"a": "b"})) == {
        "id": "12:3",
        "key": "k",
        "value": "v",
        "tombstone": False,
        "properties": {"a": "b"},
        "event_time": 7,
        "publish_time": 9,
        "producer": "p",
        "sequence_id": 5,
    }
    assert message_row(message(b"v", plain=False))["id"] == "12:3:0"


@pytest.mark.parametrize(
    ("key", "value", "row"),
    [
        (b"k", b"v", {"key": "k", "value": "v", "tombstone": False}),
        (None, b"v", {"key": None, "value": "v", "tombstone": False}),
        (b"", b"v", {"key": "", "value": "v", "tombstone": False}),
        (b"k", None, {"key": "k", "value": None, "tombstone": True}),
        (b"k", b"", {"key": "k", "value": "", "tombstone": True}),
        (
            b"\xff",
            b"\x00\xfe",
            {
                "key": base64.b64encode(b"\xff").decode(),
                "key_encoding": "base64",
                "value": base64.b64encode(b"\x00\xfe").decode(),
                "encoding": "base64",
                "tombstone": False,
            },
        ),
    ],
)
def test_keys_and_values_as_json(key: bytes | None, value: bytes | None, row: Any) -> None:
    """None is told from empty; what is no UTF-8 stands in base64 and says so."""
    assert content(key, value) == row


@given(st.binary(max_size=20), st.none() | st.binary(max_size=20))
def test_a_message_can_be_had_back_from_its_json(key: bytes, value: bytes | None) -> None:
    """Whatever bytes it holds."""
    row = json.loads(json.dumps(message_row(message(value, key))))

    def back(text: str | None, encoding: str) -> bytes | None:
        if text is None:
            return None
        return base64.b64decode(text) if encoding == "base64" else text.encode()

    assert back(row["key"], row.get("key_encoding", "utf-8")) == key
    assert back(row["value"], row.get("encoding", "utf-8")) == value


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        (b"k", b"v", "12:3           k                    v"),
        (None, b"v", "12:3           (no key)             v"),
        (b"k", None, "12:3           k                    (tombstone)"),
        (b"k", b"", "12:3           k                    (tombstone)"),
        (b"a\nb", b"c\r\n\td", r"12:3           a\nb                 c\r\n\td"),
        (b"k", b"\x1b[31mred", r"12:3           k                    \x1b[31mred"),
        (b"k", "a\u2028b\x85c".encode(), r"12:3           k                    a\u2028b\x85c"),
        (b"\xff", b"\xfe", "12:3           base64:/w==          base64:/g=="),
    ],
)
def test_a_message_for_people(key: bytes | None, value: bytes | None, line: str) -> None:
    """On one line, and no byte of it steers the terminal."""
    assert message_text(message(value, key)) == line


@given(st.text())
def test_what_is_printable_stays_on_its_line(text: str) -> None:
    """No control character is left, all others are."""
    shown = printable(text)
    assert shown.splitlines() in ([shown], [])
    assert not any(unicodedata.category(each) == "Cc" for each in shown)
    if not any(unicodedata.category(each) in ("Cc", "Zl", "Zp") for each in text):
        assert shown == text


def test_a_table() -> None:
    """Columns by name, numbers to the right, wide characters counted as two."""
    rows = [
        {"topic": "orders", "run": 9, "note": "a"},
        {"topic": "漢字", "run": 10, "note": ""},
        {"topic": "a\nb", "run": 11, "note": "c"},
    ]
    assert aligned(rows).splitlines() == [
        "topic   run  note",
        "orders    9  a",
        "漢字     10",
        r"a\nb     11  c",
    ]


def test_rows_in_a_pipe_are_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """One object a line, as each comes; other scripts than Latin as they are."""
    print_rows(options(None), ({"n": n, "s": "é"} for n in range(2)))
    assert capsys.readouterr().out == '{"n": 0, "s": "é"}\n{"n": 1, "s": "é"}\n'
    print_rows(options("jsonl"), [])
    assert capsys.readouterr() == ("", "")


def test_rows_on_a_terminal_are_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless -o says otherwise; that there are none is said beside the output."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_rows(options(None), [{"n": 1}])
    print_rows(options("jsonl"), [{"n": 2}])
    assert capsys.readouterr().out == 'n\n1\n{"n": 2}\n'
    print_rows(options(None), [])
    assert capsys.readouterr() == ("", "(none)\n")


@pytest.mark.parametrize("output", ["table", "jsonl"])
def test_rows_before_an_error_are_shown(capsys: pytest.CaptureFixture[str], output: str) -> None:
    """What was read of a damaged file before the damage."""

    def rows() -> Iterator[dict[str, int]]:
        yield {"n": 41}
        raise Corruption("f", 7, "this", "that")

    with pytest.raises(Corruption):
        print_rows(options(output), rows())
    assert "41" in capsys.readouterr().out


@pytest.mark.parametrize(("output", "lines"), [("text", 1), ("jsonl", 1), (None, 1), ("json", 11)])
def test_forms_of_a_message(
    capsys: pytest.CaptureFixture[str], output: str | None, lines: int
) -> None:
    """A line each, but for `json`, which is for reading with the eye."""
    print_message(options(output), message(b"a\nb"))
    out = capsys.readouterr().out
    assert len(out.splitlines()) == lines
    if output != "text":
        assert json.loads(out)["value"] == "a\nb"


def test_what_the_terminal_cannot_encode(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key in another script is escaped where the locale knows only ASCII, and ends nothing."""
    from ledgerfold.broker.cli.main import main

    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))
    monkeypatch.setattr("ledgerfold.broker.cli.inspecting._info", lambda options: print("é"))
    assert main(["info"]) == 0
    assert written.getvalue() == b"\\xe9\n"

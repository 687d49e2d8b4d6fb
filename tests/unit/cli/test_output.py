"""Tests printed output: a line each for people, JSON for programs."""

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
from rich.cells import cell_len

from ledgerfold.broker.cli.output import (
    content,
    message_printer,
    message_row,
    message_text,
    print_rows,
    to_json,
    width_of,
)
from ledgerfold.broker.cli.tables import aligned, printable
from ledgerfold.broker.client import Message
from ledgerfold.broker.client.messages.message import ReceivedEntry
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


def options(output: str | None, *, no_truncate: bool = False) -> argparse.Namespace:
    return argparse.Namespace(output=output, no_truncate=no_truncate)


def print_messages(output: str | None, *messages: Message) -> None:
    with message_printer(options(output)) as show:
        for each in messages:
            show(each)


def test_a_message_as_json() -> None:
    """It contains all fields."""
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
    assert message_row(message(b"v", plain=False))["id"] == "12:3:-1:0"


def test_a_line_of_json_equals_the_standard_librarys() -> None:
    """Also what the fast encoder refuses: text that is not Unicode, and huge numbers."""
    for document in ({"a": ["é", None, 1.5]}, {"file": "\udcff"}, {"n": 2**80}, {}):
        assert json.loads(to_json(document)) == document
        assert "\n" not in to_json(document)


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
    """None differs from empty; bytes that are not UTF-8 are in base64 and marked."""
    assert content(key, value) == row


@given(st.binary(max_size=20), st.none() | st.binary(max_size=20))
def test_a_message_can_be_restored_from_its_json(key: bytes, value: bytes | None) -> None:
    """Tests any bytes."""
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
def test_a_message_on_a_terminal(key: bytes | None, value: bytes | None, line: str) -> None:
    """It takes one line, and contains no control characters."""
    assert message_text(message(value, key)) == line


@given(st.text())
def test_printable_text_stays_on_its_line(text: str) -> None:
    """Control characters are escaped, all others are kept."""
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


def test_a_pipe_gets_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """One object a line, as each arrives; non-Latin text is unescaped."""
    print_rows(options(None), ({"n": n, "s": "é"} for n in range(2)))
    assert capsys.readouterr().out == '{"n":0,"s":"é"}\n{"n":1,"s":"é"}\n'
    print_rows(options("jsonl"), [])
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless -o says otherwise; "no rows" goes to standard error."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_rows(options(None), [{"n": 1}])
    print_rows(options("jsonl"), [{"n": 2}])
    assert capsys.readouterr().out == 'n\n1\n{"n":2}\n'
    print_rows(options(None), [])
    assert capsys.readouterr() == ("", "(none)\n")


@pytest.mark.parametrize("output", ["table", "jsonl"])
def test_rows_before_an_error_are_shown(capsys: pytest.CaptureFixture[str], output: str) -> None:
    """Shows the messages of a damaged file before the damage."""

    def rows() -> Iterator[dict[str, int]]:
        yield {"n": 41}
        raise Corruption("f", 7, "this", "that")

    with pytest.raises(Corruption):
        print_rows(options(output), rows())
    assert "41" in capsys.readouterr().out


@pytest.mark.parametrize("output", ["text", "jsonl", None])
def test_each_message_has_one_line(capsys: pytest.CaptureFixture[str], output: str | None) -> None:
    """Tests any contents."""
    print_messages(output, message(b"a\nb"), message(b"c"))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    if output != "text":
        assert [json.loads(line)["value"] for line in lines] == ["a\nb", "c"]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_json_is_one_array(capsys: pytest.CaptureFixture[str], count: int) -> None:
    """Tests rows and messages, also empty results."""
    rows = [{"n": n, "s": "é\u2028", "of": {"a": [1]}} for n in range(count)]
    print_rows(options("json"), rows)
    assert capsys.readouterr().out == json.dumps(rows, indent=2, ensure_ascii=False) + "\n"
    print_messages("json", *[message(b"v")] * count)
    assert json.loads(capsys.readouterr().out) == [message_row(message(b"v"))] * count


def test_an_error_closes_the_array(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows before the error can be parsed."""

    def messages() -> Iterator[Message]:
        yield message(b"v")
        raise Corruption("f", 7, "this", "that")

    with pytest.raises(Corruption):
        print_rows(options("json"), map(message_row, messages()))
    assert json.loads(capsys.readouterr().out) == [message_row(message(b"v"))]


RUN = {"run": 7, "topic": "t" * 50, "state": "success", "error": "e" * 30}


def test_a_wide_table_is_cut() -> None:
    """Its widest texts are cut, with a mark; numbers and short texts stay."""
    lines = aligned([RUN, {**RUN, "topic": "漢" * 25}], 70).splitlines()
    assert lines == [
        "run  topic" + " " * 24 + "state    error",
        "  7  " + "t" * 26 + "…  success  " + "e" * 26 + "…",
        "  7  " + "漢" * 13 + "…  success  " + "e" * 26 + "…",
    ]
    assert aligned([RUN], 101) == aligned([RUN])


def test_a_narrow_terminal_gets_blocks() -> None:
    """Each row becomes a block, and no line of it is too wide."""
    assert aligned([RUN, RUN], 40).splitlines() == [
        "run    7",
        "topic  " + "t" * 32 + "…",
        "state  success",
        "error  " + "e" * 30,
        "",
        "run    7",
        "topic  " + "t" * 32 + "…",
        "state  success",
        "error  " + "e" * 30,
    ]


@given(
    st.lists(st.tuples(st.text(max_size=60), st.integers(), st.text(max_size=60)), min_size=1),
    st.integers(20, 120),
)
def test_no_line_exceeds_the_width(found: list[tuple[str, int, str]], width: int) -> None:
    """Tests any contents; a line that fits is whole."""
    rows = [dict(zip(("a", "number", "b"), each, strict=True)) for each in found]
    shown, whole = aligned(rows, width).splitlines(), aligned(rows).splitlines()
    assert max(map(cell_len, shown)) <= width
    if max(map(cell_len, whole)) <= width:
        assert shown == whole


def test_a_long_value_is_cut_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line of it; all of it with --no-truncate, and where no terminal is."""
    monkeypatch.setenv("COLUMNS", "60")
    whole = message_text(message(b"v" * 35_000))
    print_messages("text", message(b"v" * 35_000))
    assert capsys.readouterr().out == whole + "\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_messages(None, message(b"v" * 35_000))
    assert capsys.readouterr().out == whole[:59] + "…\n"
    assert width_of(options(None, no_truncate=True)) is None


def test_text_that_the_terminal_cannot_encode_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key in another script is escaped where the locale knows only ASCII, and ends nothing."""
    from ledgerfold.broker.cli.main import main

    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))
    parser = argparse.ArgumentParser()
    parser.set_defaults(run=lambda options: print("é"))
    monkeypatch.setattr("ledgerfold.broker.cli.main.make_parser", lambda arguments: parser)
    assert main([]) == 0
    assert written.getvalue() == b"\\xe9\n"


@given(st.text("ab cd漢", max_size=60), st.integers(24, 90))
def test_wrapped_text_is_complete(text: str, width: int) -> None:
    """Word by word, in lines that are no wider than they may be, as a table and as blocks."""
    row = {"id": "1:2:-1:3", "what": text or "-"}
    lines = aligned([row, {**row, "what": "short"}], width, wrapped=("what",)).splitlines()
    assert all(cell_len(line) <= width for line in lines)
    shown = "".join("".join(lines).replace("id", "").replace("what", "").split())
    assert "".join(row["what"].split()) in shown
    assert "…" not in shown

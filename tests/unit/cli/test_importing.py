"""`import`: CSV and JSON lines as messages, and what is wrong with a file."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.cli.importing import Row, RowRules, read_rows, to_message
from ledgerfold.broker.cli.producing import Outgoing
from ledgerfold.storage.errors import InvalidRequest
from tests.unit.cli.conftest import Ledgerfold

BOM = b"\xef\xbb\xbf"


def rows(text: bytes, format_: str = "csv", *wanted: str) -> list[tuple[int, dict[str, Any]]]:
    return [(row.line, row.fields) for row in read_rows(io.BytesIO(text), format_, wanted)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"\n\n", []),
        (BOM, []),
        (b"id,name\n", []),
        (b"id,name\n1,Ada", [(2, {"id": "1", "name": "Ada"})]),
        (BOM + b"id,name\r\n1,Ada\r\n", [(2, {"id": "1", "name": "Ada"})]),
        (BOM + b'"id",name\n1,Ada\n', [(2, {"id": "1", "name": "Ada"})]),
        (b"\nid\n\n1\n\n2\n", [(4, {"id": "1"}), (6, {"id": "2"})]),
        (b'id\n"a\nb\r\nc"\n2\n', [(2, {"id": "a\nb\r\nc"}), (5, {"id": "2"})]),
        (b'id\n"say ""a,b"""\n', [(2, {"id": 'say "a,b"'})]),
        (b"id,a\n1,\n", [(2, {"id": "1", "a": ""})]),
        (b"id\n" + BOM + b"1\n", [(2, {"id": "\ufeff1"})]),
        ("id\né漢\n".encode(), [(2, {"id": "é漢"})]),
        (b"id\n" + b"x" * 200_000, [(2, {"id": "x" * 200_000})]),
    ],
)
def test_csv(text: bytes, expected: list[tuple[int, dict[str, Any]]]) -> None:
    """Quotes, line breaks in them, a byte order mark, empty lines; rows know their first line."""
    assert rows(text) == expected


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (b"id,name\n1,Ada\n2\n", "Line 3 has 1 fields, and the header has 2"),
        (b"id\n1,2\n", "Line 2 has 2 fields, and the header has 1"),
        (b'id\n"a\nb"\n"c\n', "Line 4 is no CSV"),
        (b'id\n"a"b\n', "Line 2 is no CSV"),
        (b"id\na\x00b\n1,\n", "Line 3 has 2 fields"),
        (b"id\r1\r", "Line 1 is no CSV"),
        (b"id\n1\n\xff\n", "Line 3 is no UTF-8"),
        (b"\xff\xfei\x00d\x00\n\x00", "Line 1 is no UTF-8"),
        (b"id,a,id\n", "Line 1 names the field 'id' twice"),
        (b"a,b\n1,2\n", "Line 1 names no field 'id', only a, b"),
        (b"id\n" + b"x" * (17 * 1024 * 1024), "Line 2 is no CSV"),
    ],
)
def test_bad_csv(text: bytes, wrong: str) -> None:
    """The line where the row begins is named, and nothing is guessed."""
    with pytest.raises(InvalidRequest, match=wrong):
        rows(text, "csv", "id")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (BOM + b'{"id": 1}\n\n  \n{"id": [2]}', [(1, {"id": 1}), (4, {"id": [2]})]),
        (b'{"id": "a\\nb"}\r\n', [(1, {"id": "a\nb"})]),
        ('{"id": "é\u2028"}\n'.encode(), [(1, {"id": "é\u2028"})]),
    ],
)
def test_json_lines(text: bytes, expected: list[tuple[int, dict[str, Any]]]) -> None:
    """One object a line; empty lines are passed over, and counted."""
    assert rows(text, "jsonl") == expected


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (b'{"id": 1}\n{"id": \n', "Line 2 is no JSON: "),
        (b'{"id": 1}\n\n[1]\n', "Line 3 is no JSON object"),
        (b'{"id": 1}\nnull\n', "Line 2 is no JSON object"),
        (b'{"id": 1} {"id": 2}\n', "Line 1 is no JSON: "),
        (b'{"id": "\xff"}\n', "Line 1 is no UTF-8"),
        (b"[" * 100_000, "Line 1 is no JSON"),
    ],
)
def test_bad_json_lines(text: bytes, wrong: str) -> None:
    """The line is named."""
    with pytest.raises(InvalidRequest, match=wrong):
        rows(text, "jsonl")


FIELDS = st.lists(st.text(max_size=8), min_size=1, max_size=4, unique=True)


@given(FIELDS, st.data())
def test_whatever_csv_can_say_is_read_back(names: list[str], data: st.DataObject) -> None:
    """What Python's own writer writes, line breaks and quotes and all."""
    values = data.draw(
        st.lists(st.lists(st.text(max_size=8), min_size=len(names), max_size=len(names)))
    )
    written = io.StringIO()
    writer = csv.writer(written, quoting=csv.QUOTE_ALL)
    writer.writerows([names, *values])
    found = [fields for _, fields in rows(written.getvalue().encode())]
    assert found == [dict(zip(names, each, strict=True)) for each in values]


def test_a_row_becomes_its_json_under_its_key() -> None:
    """Compact, all fields, the key's too."""
    row = Row(2, {"id": "7", "name": "é", "n": 1.5})
    assert to_message(row, RowRules("id")) == Outgoing(
        "7", json.dumps(row.fields, separators=(",", ":")).encode(), None
    )


@pytest.mark.parametrize(
    ("value", "key"),
    [("a", "a"), (7, "7"), (True, "true"), (1.5, "1.5"), ([1, "a"], '[1,"a"]')],
)
def test_keys_are_text(value: Any, key: str) -> None:
    """Text as it is, everything else as JSON writes it."""
    assert to_message(Row(1, {"id": value}), RowRules("id")).key == key


@pytest.mark.parametrize("fields", [{}, {"id": None}, {"id": ""}, {"Id": "1"}])
def test_a_row_without_its_key(fields: dict[str, Any]) -> None:
    """It would be one of a million that lose all but the last."""
    with pytest.raises(InvalidRequest, match="Line 9 has no 'id'"):
        to_message(Row(9, fields), RowRules("id"))


def test_tombstones() -> None:
    """Rows in which the field has that text; others keep their value."""
    rules = RowRules("id", tombstone=("gone", "true"))
    assert to_message(Row(1, {"id": 1, "gone": True}), rules).value is None
    assert to_message(Row(1, {"id": 1, "gone": "true"}), rules).value is None
    assert to_message(Row(1, {"id": 1, "gone": False}), rules).value is not None
    assert to_message(Row(1, {"id": 1}), rules).value is not None
    empty = RowRules("id", tombstone=("name", ""))
    assert to_message(Row(1, {"id": 1, "name": ""}), empty).value is None
    assert to_message(Row(1, {"id": 1}), empty).value is not None


def test_event_times() -> None:
    """Of the row's field, in ms."""
    rules = RowRules("id", "at")
    assert to_message(Row(1, {"id": 1, "at": "1704067200000"}), rules).event_time_ms == (
        1_704_067_200_000
    )
    assert to_message(Row(1, {"id": 1, "at": 5}), rules).event_time_ms == 5


@pytest.mark.parametrize("at", [None, "", "soon", -1, 1.5, True, 2**63, "9" * 30])
def test_what_is_no_event_time(at: Any) -> None:
    """The line is named."""
    with pytest.raises(InvalidRequest, match="Line 3: 'at' is no time in ms"):
        to_message(Row(3, {"id": 1, "at": at}), RowRules("id", "at"))


# With a broker.


def test_a_file_becomes_a_topic_of_its_name(cli: Ledgerfold, topic: str, tmp_path: Path) -> None:
    """In the order of the rows, with tombstones and event times."""
    path = tmp_path / f"{topic}.csv"
    path.write_text("id,at,gone\n1,5,\n2,6,yes\n1,7,\n")
    ran = cli(
        *("import", str(path), "--key", "id"),
        *("--event-time", "at", "--tombstone-when", "gone=yes"),
    )
    assert ran == (0, "", f"3 rows imported into {topic}, 1 of them tombstones\n")
    found = cli("read", topic, "--until-end").rows
    assert [(row["key"], row["event_time"], row["tombstone"]) for row in found] == [
        ("1", 5, False),
        ("2", 6, True),
        ("1", 7, False),
    ]
    assert json.loads(found[2]["value"]) == {"id": "1", "at": "7", "gone": ""}


def test_rows_before_a_bad_one_are_imported(cli: Ledgerfold, topic: str) -> None:
    """And it is said how many they are."""
    text = b'{"id": 1}\n{"id": 2}\noops\n{"id": 4}\n'
    ran = cli("import", "-", "--format", "jsonl", "--key", "id", "--topic", topic, stdin=text)
    assert ran.code == 2
    assert "Line 3 is no JSON" in ran.err
    assert "2 rows before it are imported." in ran.err
    assert [row["key"] for row in cli("read", topic, "--until-end").rows] == ["1", "2"]


def test_an_empty_file_is_no_rows(cli: Ledgerfold, topic: str, tmp_path: Path) -> None:
    """And no error."""
    path = tmp_path / "empty.jsonl"
    path.touch()
    ran = cli("import", str(path), "--key", "id", "--topic", topic)
    assert ran == (0, "", f"0 rows imported into {topic}, 0 of them tombstones\n")


@pytest.mark.parametrize(
    ("arguments", "code", "wrong"),
    [
        (["no.csv", "--key", "id"], 3, "no.csv: No such file"),
        (["no.txt", "--key", "id"], 2, "say --format"),
        (["-", "--key", "id"], 2, "say --topic"),
        (["-", "--key", "id", "--topic", "t"], 2, "say --format"),
        (["no.csv", "--key", "id", "--tombstone-when", "gone"], 2, "FIELD=VALUE"),
        (["no.csv"], 2, "--key"),
    ],
)
def test_what_is_wrong_with_the_command(
    cli: Ledgerfold, arguments: list[str], code: int, wrong: str
) -> None:
    """Said before anything is sent."""
    ran = cli("import", *arguments)
    assert ran.code == code
    assert wrong in ran.err

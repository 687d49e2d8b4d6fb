"""`import`: Imports CSV and JSON lines as messages, and reports defects of a file."""

from __future__ import annotations

import csv
import io
import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.cli.data.import_rows import Row, read_rows
from ledgerfold.broker.cli.data.importing import _Import
from ledgerfold.broker.cli.data.producing import Outgoing
from ledgerfold.broker.cli.data.row_rules import RowRules, message_of_row
from ledgerfold.broker.cli.output import content, to_json
from ledgerfold.broker.client import MessageId, Result
from ledgerfold.storage.errors import InvalidRequest
from tests.support.command_line import command
from tests.support.waiting import WAIT_S, wait_until
from tests.unit.cli.conftest import Ledgerfold

BOM = b"\xef\xbb\xbf"


def rows(text: bytes, format_: str = "csv", *wanted: str) -> list[tuple[int, Any]]:
    found = []
    for row in read_rows(io.BytesIO(text), format_, wanted):
        if isinstance(row, InvalidRequest):
            raise row
        found.append((row.line, row.texts))
    return found


def json_row(line: str, *wanted: str) -> Row:
    (row,) = read_rows([line.encode()], "jsonl", wanted)
    assert isinstance(row, Row), row
    return row


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
def test_csv_rows(text: bytes, expected: list[tuple[int, dict[str, Any]]]) -> None:
    """Quotes, line breaks in them, a byte order mark, empty lines; rows know their first line."""
    assert rows(text) == expected


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (b"id,name\n1,Ada\n2\n", "Line 3 has 1 field, and the header has 2"),
        (b"id\n1,2\n", "Line 2 has 2 fields, and the header has 1"),
        (b'id\n"a\nb"\n"c\n', "Line 4 is not valid CSV"),
        (b'id\n"a"b\n', "Line 2 is not valid CSV"),
        (b"id\na\x00b\n1,\n", "Line 3 has 2 fields"),
        (b"id\r1\r", "Line 1 is not valid CSV"),
        (b"id\n1\n\xff\n", "Line 3 is not valid UTF-8"),
        (b"\xff\xfei\x00d\x00\n\x00", "Line 1 is not valid UTF-8"),
        (b"id,a,id\n", "Line 1 has the field 'id' twice"),
        (b"a,b\n1,2\n", "Line 1 has no field 'id', only a, b"),
        (b"id\n" + b"x" * (17 * 1024 * 1024), "Line 2 is not valid CSV"),
    ],
)
def test_invalid_csv(text: bytes, wrong: str) -> None:
    """The line where the row begins is named, and nothing is guessed."""
    with pytest.raises(InvalidRequest, match=wrong):
        rows(text, "csv", "id")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (BOM, []),
        (BOM + b"\n", []),
        (b'  {"id": "1"}  \n', [(1, {"id": "1"})]),
        (BOM + b'{"id": 1}\n\n  \n{"id": [2]}', [(1, {"id": "1"}), (4, {"id": "[2]"})]),
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
        (b'{"id": 1}\n{"id": \n', "Line 2 is not valid JSON: "),
        (b'{"id": 1}\n\n[1]\n', "Line 3 is not a JSON object"),
        (b'{"id": 1}\nnull\n', "Line 2 is not a JSON object"),
        (b'{"id": 1} {"id": 2}\n', "Line 1 is not valid JSON: "),
        (b'{"id": NaN}\n', "Line 1 is not valid JSON: NaN"),
        (b'{"id": 1, "id": 2}\n', "Line 1 has the field 'id' twice"),
        (b'{"id": "\xff"}\n', "Line 1 is not valid UTF-8"),
        (b"[" * 100_000, "Line 1 is not valid JSON"),
    ],
)
def test_invalid_json_lines(text: bytes, wrong: str) -> None:
    """The line is named."""
    with pytest.raises(InvalidRequest, match=wrong):
        rows(text, "jsonl", "id")


FIELDS = st.lists(st.text(max_size=8), min_size=1, max_size=4, unique=True)


@given(FIELDS, st.data())
def test_any_csv_is_read_back(names: list[str], data: st.DataObject) -> None:
    """Tests the output of Python's writer, with line breaks and quotes."""
    values = data.draw(
        st.lists(st.lists(st.text(max_size=8), min_size=len(names), max_size=len(names)))
    )
    written = io.StringIO()
    writer = csv.writer(written, quoting=csv.QUOTE_ALL)
    writer.writerows([names, *values])
    found = [fields for _, fields in rows(written.getvalue().encode())]
    assert found == [dict(zip(names, each, strict=True)) for each in values]


@pytest.mark.parametrize(
    "line",
    [
        '{"id":1.10}',
        ' { "id" : 1e400 , "n": 123456789012345678901234567890.0 } ',
        '{"id": 1, "x": 1, "x": 2}',
        '{"id": 1, "é": "\\u00e9 é \\/"}',
        '{"id": 1, "n": ' + "9" * 10_000 + "}",
        '{"id": 1, "a": [{"b": null}, [ ], "},"]}',
    ],
)
def test_a_json_line_is_published_unchanged(line: str) -> None:
    """The bytes are unchanged: numbers, repeated names, spaces, escapes."""
    for ending in ("", "\n", "\r\n"):
        row = json_row(line + ending, "id")
        assert message_of_row(row, RowRules("id")).value == line.encode()


def test_a_csv_row_becomes_json_under_its_key() -> None:
    """The JSON is compact, with all fields including the key, in unescaped UTF-8."""
    (row,) = read_rows([b"id,name,n\n", "7,é漢,1.10\n".encode()], "csv", ["id"])
    assert isinstance(row, Row)
    assert message_of_row(row, RowRules("id")) == Outgoing(
        "7", '{"id":"7","name":"é漢","n":"1.10"}'.encode(), None
    )


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ('"a"', "a"),
        (r'"\u00e9\n"', "é\n"),
        ("7", "7"),
        ("1.10", "1.10"),
        ("1e400", "1e400"),
        ("-0", "-0"),
        ("true", "true"),
        ('[1,  "a"]', '[1,  "a"]'),
        ('{"b": 1.0, "b": 2}', '{"b": 1.0, "b": 2}'),
    ],
)
def test_the_text_of_a_field(raw: str, text: str) -> None:
    """A string gives its text, other values their JSON text; also as the value."""
    for line in (f'{{"id":{raw},"v":{raw}}}', f'{{ "x" : {{}} , "id" : {raw} , "v" : {raw} }}'):
        row = json_row(line, "id")
        message = message_of_row(row, RowRules("id", value="v"))
        assert (message.key, message.value) == (text, text.encode())


@given(
    st.dictionaries(
        st.text(),
        st.recursive(
            st.none()
            | st.booleans()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.integers()
            | st.text(),
            st.lists,
            max_leaves=4,
        ),
    )
)
def test_any_json_field_is_extracted(fields: dict[str, Any]) -> None:
    """Each text, parsed as JSON or taken as a string, equals the field."""
    row = json_row(json.dumps(fields) + "\n")
    assert row.texts.keys() == fields.keys()
    for name, text in row.texts.items():
        value = fields[name]
        assert value == (text if text is None or isinstance(value, str) else json.loads(text))


@pytest.mark.parametrize("line", ["{}", '{"id":null}', '{"id":""}', '{"Id":"1"}'])
def test_a_row_without_its_key_field_is_rejected(line: str) -> None:
    """Rows without a key would supersede one another."""
    with pytest.raises(InvalidRequest, match="Line 1 has no 'id'"):
        message_of_row(json_row(line), RowRules("id"))


@pytest.mark.parametrize("rules", [RowRules("id"), RowRules("x", value="id")])
def test_an_incomplete_character_is_rejected(rules: RowRules) -> None:
    """UTF-8 cannot encode it, and it must not become another byte."""
    for half in (r"\ud800", r"\udcff"):
        with pytest.raises(InvalidRequest, match="Line 1: 'id' is not valid Unicode"):
            message_of_row(json_row(f'{{"id": "{half}", "x": 1}}'), rules)


def test_a_field_is_used_as_the_value() -> None:
    """Null is a tombstone, empty is empty; it must be there."""
    rules = RowRules("id", value="v")
    assert message_of_row(json_row('{"id":1,"v":null}'), rules).value is None
    assert message_of_row(json_row('{"id":1,"v":""}'), rules).value == b""
    with pytest.raises(InvalidRequest, match="Line 1 has no 'v' for the value"):
        message_of_row(json_row('{"id":1}'), rules)


def test_tombstones() -> None:
    """A row whose field has that text is a tombstone; others keep their value."""
    rules = RowRules("id", tombstone=("gone", "true"))
    assert message_of_row(json_row('{"id":1,"gone":true}'), rules).value is None
    assert message_of_row(json_row('{"id":1,"gone":"true"}'), rules).value is None
    assert message_of_row(json_row('{"id":1,"gone":false}'), rules).value is not None
    assert message_of_row(json_row('{"id":1}'), rules).value is not None
    empty = RowRules("id", tombstone=("name", ""))
    assert message_of_row(json_row('{"id":1,"name":""}'), empty).value is None
    assert message_of_row(json_row('{"id":1,"name":null}'), empty).value is None
    assert message_of_row(json_row('{"id":1}'), empty).value is not None


def test_bytes_of_an_export() -> None:
    """Fields in base64 are decoded, where the row says so. A test that imports what `export` writes
    had been missing.
    """
    rules = RowRules("key", value="value")
    row = content(b"\xfe", b"\xff") | {"properties": {}}
    assert message_of_row(json_row(to_json(row)), rules) == Outgoing(b"\xfe", b"\xff")
    row = content(b"/w==", b"/w==")
    assert message_of_row(json_row(to_json(row)), rules) == Outgoing("/w==", b"/w==")
    line = '{"key":"a","value":null,"encoding":"base64"}'
    assert message_of_row(json_row(line), rules) == Outgoing("a", None)
    other = '{"id":"/w==","v":"/w==","encoding":"base64","key_encoding":"base64"}'
    assert message_of_row(json_row(other), RowRules("id", "v")) == Outgoing("/w==", b"/w==")
    with pytest.raises(InvalidRequest, match="Line 1: 'value' is not in base64"):
        message_of_row(json_row('{"key":"a","value":"é","encoding":"base64"}'), rules)


CSV_NAMES = ("offset", "key", "value", "tombstone")


@pytest.mark.parametrize(
    ("values", "is_kafka", "expected"),
    [
        (("0", "a", "", "true"), True, Outgoing("a", None)),
        (("0", "a", "", "false"), True, Outgoing("a", b"")),
        (("0", "", "v", "false"), True, Outgoing("", b"v")),
        # A message of another topic: all its tombstones become tombstones.
        (("", "a", "", "true"), True, Outgoing("a", None)),
        (("0", "a", "v", "true"), True, Outgoing("a", b"v")),
        (("0", "a", "", "true"), False, Outgoing("a", b"")),
    ],
)
def test_rows_of_an_export_for_a_kafka_topic(
    values: tuple[str, ...], is_kafka: bool, expected: Outgoing
) -> None:
    """CSV has one text for null and empty values. A test of CSV with a null value had been
    missing.
    """
    row = Row(2, dict(zip(CSV_NAMES, values, strict=True)), b"")
    assert message_of_row(row, RowRules("key", "value", is_kafka=is_kafka)) == expected


@pytest.mark.parametrize(
    ("values", "rules"),
    [
        (("0", None, "v", "false"), RowRules("key", "value", is_kafka=True)),
        (("", "", "v", "false"), RowRules("key", "value", is_kafka=True)),
        (("0", "", "v", "false"), RowRules("key", "value")),
        (("0", "a", "", "false"), RowRules("value", "key", is_kafka=True)),
    ],
)
def test_rows_without_a_key(values: tuple[str | None, ...], rules: RowRules) -> None:
    """Only the key of a record may be empty, and only in its field."""
    row = Row(2, dict(zip(CSV_NAMES, values, strict=True)), b"")
    with pytest.raises(InvalidRequest, match=r"Line 2 has no '(key|value)' for the key"):
        message_of_row(row, rules)


def test_properties_of_a_row() -> None:
    """A field, or its text in a CSV file, is a JSON object of strings."""
    rules = RowRules("id", properties="p")
    for text in ('{"n": "1", "é": ""}', json.dumps('{"n": "1", "é": ""}')):
        row = json_row(f'{{"id": 1, "p": {text}}}')
        assert message_of_row(row, rules).properties == {"n": "1", "é": ""}
    for text in ("null", '""', "{}"):
        assert message_of_row(json_row(f'{{"id": 1, "p": {text}}}'), rules).properties is None
    assert message_of_row(json_row('{"id": 1}'), rules).properties is None


@pytest.mark.parametrize(
    "text",
    [
        '"no JSON"',
        "[]",
        "7",
        '{"n": 1}',
        '{"n": null}',
        r'"{\"n\": \"\\ud800\"}"',
        '"' + "[" * 99_999 + '"',
    ],
)
def test_invalid_properties(text: str) -> None:
    """The line is named."""
    with pytest.raises(InvalidRequest, match="Line 1: 'p' is not a JSON object of strings: "):
        message_of_row(json_row(f'{{"id": 1, "p": {text}}}'), RowRules("id", properties="p"))


def test_event_times() -> None:
    """Takes the row's field, in ms."""
    rules = RowRules("id", event_time="at")
    for text in ('"1704067200000"', "1704067200000"):
        message = message_of_row(json_row(f'{{"id":1,"at":{text}}}'), rules)
        assert message.event_time_ms == 1_704_067_200_000


@pytest.mark.parametrize(
    "at", ["null", '""', '"soon"', "-1", "1.5", "1e3", "true", str(2**63), "9" * 30]
)
def test_invalid_event_times(at: str) -> None:
    """The line is named."""
    with pytest.raises(InvalidRequest, match="Line 1: 'at' is not a time in ms"):
        message_of_row(json_row(f'{{"id":1,"at":{at}}}'), RowRules("id", event_time="at"))


# With a broker.


def test_a_file_is_imported_into_a_topic(cli: Ledgerfold, topic: str, tmp_path: Path) -> None:
    """In the order of the rows, with tombstones and event times."""
    path = tmp_path / f"{topic}.csv"
    path.write_text("id,at,gone\n1,5,\n2,6,yes\n1,7,\n")
    ran = cli(
        *("import", str(path), "--key", "id"),
        *("--event-time", "at", "--tombstone-when", "gone=yes"),
    )
    assert ran == (0, "", f"3 rows imported into {topic}, with 1 tombstone\n")
    found = cli("read", topic, "--until-end").rows
    assert [(row["key"], row["event_time"], row["tombstone"]) for row in found] == [
        ("1", 5, False),
        ("2", 6, True),
        ("1", 7, False),
    ]
    assert json.loads(found[2]["value"]) == {"id": "1", "at": "7", "gone": ""}


def test_rows_before_an_invalid_one_are_imported(cli: Ledgerfold, topic: str) -> None:
    """The error states how many."""
    text = b'{"id": 1}\n{"id": 2}\noops\n{"id": 4}\n'
    ran = cli("import", "-", "--format", "jsonl", "--key", "id", "--topic", topic, stdin=text)
    assert ran.code == 2
    assert "Line 3 is not valid JSON" in ran.err
    assert "Correct the line, or use --on-error skip." in ran.err
    assert "Imported before it: 2 rows. To continue, add --skip-rows 2 to the" in ran.err
    assert [row["key"] for row in cli("read", topic, "--until-end").rows] == ["1", "2"]
    mended = text.replace(b"oops", b'{"id": 3}')
    again = ("import", "-", "--format", "jsonl", "--key", "id", "--topic", topic)
    assert cli(*again, "--skip-rows", "2", stdin=mended).code == 0
    keys = [row["key"] for row in cli("read", topic, "--until-end").rows]
    assert keys == ["1", "2", "3", "4"]


@pytest.mark.parametrize("partitions", [0, 3])
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_import_prints_how_to_continue(
    cli: Ledgerfold, url: str, topic: str, partitions: int, ending: signal.Signals
) -> None:
    """The suggested command imports the remaining rows, and none twice."""
    if partitions:
        assert cli("topics", "create-partitioned-topic", topic, "-p", str(partitions)).code == 0
    header, rows = b"id\n", [b"%d\n" % number for number in range(3000)]
    arguments = ("import", "-", "--format", "csv", "--key", "id", "--topic", topic)
    process = subprocess.Popen(
        command("--url", url, *arguments), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=False
    )
    assert process.stdin is not None
    process.stdin.write(header + b"".join(rows[:2000]))
    process.stdin.flush()
    wait_until(lambda: cli("read", topic, "--create", "--until-end").rows != [], "some rows")
    process.send_signal(ending)
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    told = re.fullmatch(
        rb"ledgerfold: Interrupted\. Imported before it: ([0-9,]+) rows\. "
        rb"To continue, add --skip-rows ([0-9]+) to the command\.\n",
        err,
    )
    assert told is not None, err
    rest = cli(*arguments, "--skip-rows", told[2].decode(), stdin=header + b"".join(rows))
    assert rest.code == 0, rest.err
    assert rest.err.startswith(f"{3000 - int(told[2]):,} row")
    keys = [row["key"] for row in cli("read", topic, "--until-end").rows]
    assert sorted(keys, key=int) == [str(number) for number in range(3000)]


def test_receipts_may_arrive_in_any_order() -> None:
    """Up to the first row without one, no row need be read again."""
    importing = _Import(RowRules("id"), skips=False, passed=10)
    assert importing.imported == 10
    importing.read = 14
    importing._pending = dict.fromkeys((12, 13))
    assert importing.imported == 11
    assert "(some later rows may be, too)" in importing.how_to_go_on()
    importing._on_receipt(12, Result.Ok, MessageId())
    assert importing.imported == 12
    importing._on_receipt(13, Result.Timeout, None)
    assert importing.imported == 12
    importing._on_receipt(13, Result.Ok, MessageId())
    assert importing.imported == 14


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        ("jsonl", b'{"id": 1}\noops\n{"id": "\xff"}\n[1]\n{"id": 2}\n{"Id": 3}\n{"id": 3}\n'),
        ("csv", b'id\n1\n"a"b\n\xff\n"2\n\xff"\n1,2\n2\n""\n3\n"4'),
    ],
)
def test_bad_rows_can_be_skipped(cli: Ledgerfold, topic: str, format_: str, text: bytes) -> None:
    """Each is reported, later ones are imported, a count follows, and the exit code shows it."""
    arguments = ("import", "-", "--format", format_, "--key", "id", "--topic", topic)
    ran = cli(*arguments, "--on-error", "skip", stdin=text)
    *told, count = ran.err.splitlines()
    assert ran.code == 1
    assert count == f"3 rows imported into {topic}, with 0 tombstones, {len(told)} skipped"
    assert len(told) == (4 if format_ == "jsonl" else 6)
    assert all(line.startswith("ledgerfold: Line ") for line in told)
    assert [row["key"] for row in cli("read", topic, "--until-end").rows] == ["1", "2", "3"]


def test_the_value_of_a_row_is_the_fields_text(cli: Ledgerfold, topic: str, tmp_path: Path) -> None:
    """The value is the field's text only."""
    path = tmp_path / "prices.jsonl"
    path.write_text('{"id":1.10,"price":2.50}\n{"id":2,"price":null}\n')
    ran = cli("import", str(path), "--key", "id", "--value", "price", "--topic", topic)
    assert ran == (0, "", f"2 rows imported into {topic}, with 1 tombstone\n")
    found = cli("read", topic, "--until-end").rows
    assert [(row["key"], row["value"]) for row in found] == [("1.10", "2.50"), ("2", None)]


RECORDS = """\
{"key":"a","value":"v","properties":{"h":"1"},"event_time":7}
{"key":"b","value":"","event_time":8}
{"key":"c","value":null,"event_time":9}
{"key":"/gE=","key_encoding":"base64","value":"/wA=","encoding":"base64","event_time":10}
{"offset":4,"key":"","value":"v","event_time":11}
"""
SAME = ("key", "key_encoding", "value", "encoding", "tombstone", "properties", "event_time")


@pytest.mark.parametrize("partitions", [0, 2])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_an_export_of_a_kafka_topic_is_imported(
    cli: Ledgerfold, topic: str, tmp_path: Path, kind: str, partitions: int
) -> None:
    """The records of the copy are those of the topic, and the summary counts what a cleaning will
    treat differently. A test of both commands, one after the other, had been missing.
    """
    created = ("create-partitioned-topic", "-p", str(partitions)) if partitions else ("create",)
    for each in (topic, f"{topic}-copy"):
        verb, *options = created
        assert cli("topics", verb, each, *options, "--cleanup-policy", "compact").code == 0
    path = tmp_path / "records.jsonl"
    path.write_text(RECORDS)
    fields = [f"--{name}={name.replace('-', '_')}" for name in ("key", "value", "event-time")]
    fields.append("--properties=properties")
    counts = "with 1 tombstone and 1 empty value"
    ran = cli("import", str(path), *fields, "--topic", topic)
    assert ran == (0, "", f"5 rows imported into {topic}, {counts}\n")
    file = tmp_path / f"out.{kind}"
    assert cli("export", kind, topic, str(file)).code == 0
    ran = cli("import", str(file), *fields, "--topic", f"{topic}-copy")
    assert ran == (0, "", f"5 rows imported into {topic}-copy, {counts}\n")
    known = [cli("read", each, "--until-end").rows for each in (topic, f"{topic}-copy")]
    first, second = [
        sorted(tuple(str(row.get(name)) for name in SAME) for row in rows) for rows in known
    ]
    assert first == second
    assert sorted(key for key, *_ in first) == ["", "/gE=", "a", "b", "c"]
    values = {row["key"]: row["value"] for row in known[1]}
    assert (values["b"], values["c"]) == ("", None)


def test_empty_values_of_other_topics_are_tombstones(cli: Ledgerfold, topic: str) -> None:
    """They are counted as such: Pulsar's compaction does not distinguish them from null values."""
    text = b"id,v\n1,\n2,x\n"
    arguments = ("--format", "csv", "--key", "id", "--value", "v", "--topic", topic)
    ran = cli("import", "-", *arguments, stdin=text)
    assert ran == (0, "", f"2 rows imported into {topic}, with 1 tombstone\n")


def test_an_empty_file_imports_nothing(cli: Ledgerfold, topic: str, tmp_path: Path) -> None:
    """It is not an error."""
    path = tmp_path / "empty.jsonl"
    path.touch()
    ran = cli("import", str(path), "--key", "id", "--topic", topic)
    assert ran == (0, "", f"0 rows imported into {topic}, with 0 tombstones\n")


@pytest.mark.parametrize(
    ("arguments", "code", "wrong"),
    [
        (["no.csv", "--key", "id"], 3, "no.csv: No such file"),
        (["no.txt", "--key", "id"], 2, "give --format"),
        (["-", "--key", "id"], 2, "give --topic"),
        (["-", "--key", "id", "--topic", "t"], 2, "give --format"),
        (["no.csv", "--key", "id", "--tombstone-when", "gone"], 2, "FIELD=VALUE"),
        (["no.csv"], 2, "--key"),
    ],
)
def test_mistakes_in_the_command_are_reported_first(
    cli: Ledgerfold, arguments: list[str], code: int, wrong: str
) -> None:
    """They are reported before anything is sent."""
    ran = cli("import", *arguments)
    assert ran.code == code
    assert wrong in ran.err

"""`export parquet`, `csv` and `jsonl` write whole files, or none."""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ledgerfold import frames
from ledgerfold.broker.cli.main import main
from ledgerfold.broker.cli.output import message_printer
from ledgerfold.broker.client import Message
from ledgerfold.broker.client.messages.message import ReceivedEntry, ReceivedRecords
from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import read_header, stamp
from ledgerfold.storage.kafka.entries import KafkaBatch, entry_of
from ledgerfold.storage.kafka.records import build_columns
from ledgerfold.storage.names import segment_path
from ledgerfold.storage.native import NativeBatchBuilder
from tests.support.data_directory import DataDirectory, add, put


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Returns a directory with five messages in two segments, of all kinds of content."""
    path = tmp_path / "data"
    path.mkdir()
    made = DataDirectory(path)
    writer = made.ledger()
    builder = NativeBatchBuilder("p")
    builder.add(b"v1", b"a", properties={"n": "1"}, event_time_ms=7)
    builder.add(b"\xff", b"\xfe")
    builder.add(None, b"a")
    put(writer, builder.build(sequence_id=2, publish_time_ms=5))
    writer.flush()
    writer.seal_segment()
    add(writer, "b,1", "c\n1")
    made.stop()
    return path


def export(data: Path, kind: str, *arguments: str) -> tuple[int, Path]:
    file = data.parent / f"out.{kind}"
    return main(["export", kind, "t", str(file), "--data", str(data), *arguments]), file


def files(data: Path) -> list[str]:
    return sorted(each.name for each in data.parent.iterdir())


def test_parquet_has_the_columns_of_frames(data: Path) -> None:
    code, file = export(data, "parquet")
    assert code == 0
    assert pq.read_table(file).equals(frames.read("t", data=data))
    assert files(data) == ["data", "out.parquet"]


def test_lines_of_json(data: Path) -> None:
    code, file = export(data, "jsonl", "--key", "a")
    assert code == 0
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    common = {"publish_time": 5, "producer": "p"}
    assert rows == [
        common
        | {"id": "1:0:-1:0", "key": "a", "value": "v1", "tombstone": False}
        | {"properties": {"n": "1"}, "event_time": 7, "sequence_id": 0},
        common
        | {"id": "1:0:-1:2", "key": "a", "value": None, "tombstone": True}
        | {"properties": {}, "event_time": 0, "sequence_id": 2},
    ]


def test_csv_has_the_same_fields(data: Path) -> None:
    code, file = export(data, "csv")
    assert code == 0
    with file.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert [row["value"] for row in rows] == ["v1", "/w==", "", "b,1", "c\n1"]
    assert [row["encoding"] for row in rows] == ["", "base64", "", "", ""]
    assert [row["tombstone"] for row in rows] == ["false", "false", "true", "false", "false"]
    assert json.loads(rows[0]["properties"]) == {"n": "1"}


def test_records_of_a_kafka_topic(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir()
    made = DataDirectory(path)
    writer = made.ledger()
    headers = {0: (("h", b"1"), ("h", None))}
    batch = build_columns([b"a", b"b"], [b"", None], [7, -1], headers, base_offset=4)
    put(writer, entry_of(batch, sequence_id=1, publish_time_ms=5))
    writer.close()
    made.edit(kafka={"segments": [{"ledger_ids": [writer.ledger_id]}]})
    made.stop()
    code, file = export(path, "jsonl")
    assert code == 0
    first, second = [json.loads(line) for line in file.read_text().splitlines()]
    assert (first["id"], first["offset"], first["properties"]) == ("0:4", 4, {"h": ""})
    # An empty value is none to Kafka's cleaner.
    assert (first["tombstone"], second["tombstone"]) == (False, True)


def printed(entries: list[bytes], capsys: pytest.CaptureFixture[str]) -> list[Any]:
    """Returns the lines that `read -o jsonl` prints."""
    with message_printer(argparse.Namespace(output="jsonl", no_truncate=False)) as show:
        for number, data in enumerate(entries):
            stamped = stamp(data, 1, number, 5, 1)
            header = read_header(stamped)
            batch = decode(stamped, header)
            kind = ReceivedRecords if isinstance(batch, KafkaBatch) else ReceivedEntry
            received = kind(header, batch, "t", -1)
            for row in range(batch.rows):
                show(Message((received, row)))
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def exported(path: Path) -> list[Any]:
    code, file = export(path, "jsonl")
    assert code == 0
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_lines_are_those_of_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A test that compares both had been missing."""
    builder = NativeBatchBuilder("p")
    for key in (b"AAE=", b"YWJj", b"?"):
        builder.add(b"v", key, key_is_base64=True)
    builder.add(b"v", b"AAE=")
    entry = builder.build(sequence_id=2, publish_time_ms=5)
    (tmp_path / "data").mkdir()
    made = DataDirectory(tmp_path / "data")
    writer = made.ledger()
    put(writer, entry)
    writer.close()
    made.stop()
    rows = exported(tmp_path / "data")
    assert rows == printed([entry], capsys)
    assert [row["key"] for row in rows] == ["\x00\x01", "abc", "?", "AAE="]


@pytest.mark.parametrize(("producer_id", "sequence_ids"), [(-1, [None] * 4), (12, [0, 1, 2, 3])])
def test_lines_of_records_are_those_of_read(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    producer_id: int,
    sequence_ids: list[int | None],
) -> None:
    """Times before 1970 differ from none. A test that compares both had been missing."""
    times = [-100, -1, 0, 7]
    batch = build_columns([b"a"] * 4, [b"v"] * 4, times, base_offset=0, producer_id=producer_id)
    entry = entry_of(batch, sequence_id=3, publish_time_ms=5)
    (tmp_path / "data").mkdir()
    made = DataDirectory(tmp_path / "data")
    writer = made.ledger()
    put(writer, entry)
    writer.close()
    made.edit(kafka={"segments": [{"ledger_ids": [writer.ledger_id]}]})
    made.stop()
    rows = exported(tmp_path / "data")
    assert rows == printed([entry], capsys)
    assert [row["event_time"] for row in rows] == times
    assert [row["sequence_id"] for row in rows] == sequence_ids


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_an_export_that_fails_leaves_nothing(
    data: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second segment is damaged: the first is written when that is found."""
    path = data / "ledgers" / segment_path(1, 1)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    code, _ = export(data, kind)
    assert code == 6
    assert files(data) == ["data"]
    (line,) = capsys.readouterr().err.splitlines()
    assert "is damaged at byte" in line


def test_a_missing_folder_is_named(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = data.parent / "none"
    assert main(["export", "csv", "t", str(folder / "x.csv"), "--data", str(data)]) == 3
    assert capsys.readouterr().err == f"ledgerfold: The folder {folder} does not exist.\n"


def test_an_interrupted_export_leaves_nothing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("ledgerfold.broker.cli.data.export_rows._json_lines", interrupted)
    assert export(data, "jsonl")[0] == 130
    assert files(data) == ["data"]


def test_an_existing_file_is_replaced_on_demand(data: Path) -> None:
    (data.parent / "out.csv").write_text("mine")
    code, file = export(data, "csv")
    assert (code, file.read_text()) == (2, "mine")
    code, file = export(data, "csv", "--overwrite")
    assert code == 0
    assert file.read_text().startswith("id,offset,key,")
    assert export(data.parent, "csv", "--overwrite")[0] == 3
    assert file.read_text().startswith("id,offset,key,")

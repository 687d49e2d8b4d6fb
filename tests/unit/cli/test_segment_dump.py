"""`segment dump`: a file of a broker, whole and damaged, without the broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ledgerfold.compactor.job.pulsar_rebuild import keep_pulsar_rows
from ledgerfold.compactor.job.rebuild import RawEntry
from ledgerfold.storage.entry import (
    HEADER_BYTES,
    Compression,
    EntryFields,
    Position,
    build_entry,
    read_header,
    stamp,
    stamped_header,
)
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.pulsar.entries import entry_of
from ledgerfold.storage.segment import SegmentWriter
from tests.support import pulsar_entries
from tests.support.command_line import ledgerfold
from tests.support.pulsar_entries import message


def entry(position: Position, values: dict[str, bytes | None]) -> bytes:
    """Returns a batch of these keys and values, as stored."""
    builder = NativeBatchBuilder("p")
    for key, value in values.items():
        builder.add(value, key.encode())
    frame = builder.build(sequence_id=1, publish_time_ms=7, compression=0, plain=len(values) == 1)
    stamped = stamped_header(read_header(frame), *position, 9, 1)
    return stamped + frame[len(stamped) :]


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """Two entries: one message, and a batch of two."""
    (tmp_path / "1").mkdir()
    writer = SegmentWriter(tmp_path, 1, 0)
    for stored in (
        entry(Position(1, 0), {"a": b"1"}),
        entry(Position(1, 1), {"a\n": b"\xff", "b": None}),
    ):
        writer.append(read_header(stored), stored)
    return tmp_path / writer.seal().path


def test_entries_of_pulsars_clients(tmp_path: Path) -> None:
    """A batch from which a run has removed a message, and an unreadable one."""
    stored = pulsar_entries.batch_entry([message(b"1", "a"), message(b"2", "b")])
    section, payload = pulsar_entries.sections(stored)
    parts = RawEntry(stored[:HEADER_BYTES], section, payload)
    rebuilt = b"".join(keep_pulsar_rows(read_header(stored), parts, np.array([1])))
    described = pulsar_entries.metadata_of(num_messages_in_batch=2)
    broken = entry_of(described, described.SerializeToString(), b"not a batch!")
    (tmp_path / "1").mkdir()
    writer = SegmentWriter(tmp_path, 1, 0)
    for number, each in enumerate((rebuilt, broken)):
        whole = stamp(each, 1, number, 9, 1)
        writer.append(read_header(whole), whole)
    path = str(tmp_path / writer.seal().path)
    assert [row["messages"] for row in ledgerfold("segment", "dump", path).rows] == [1, 2]
    shown = ledgerfold("segment", "dump", "--messages", path).rows
    assert [(row["id"], row["key"], row["value"]) for row in shown] == [
        ("1:0:-1:1", "b", "2"),
        ("1:1", None, "not a batch!"),
    ]


def test_entries(segment: Path) -> None:
    """One row each, with its offset in the file."""
    ran = ledgerfold("segment", "dump", str(segment))
    assert ran.code == 0
    first, second = ran.rows
    assert (first["id"], first["offset"], first["messages"]) == ("1:0", 0, 1)
    assert (second["id"], second["messages"], second["publish_time"]) == ("1:1", 2, 7)
    assert second["offset"] == HEADER_BYTES + first["key_bytes"] + first["value_bytes"]


def test_messages(segment: Path) -> None:
    """With their batch indexes; odd bytes in base64."""
    assert ledgerfold("segment", "dump", "--messages", str(segment)).rows == [
        {"id": "1:0", "key": "a", "value": "1", "tombstone": False},
        {
            "id": "1:1:-1:0",
            "key": "a\n",
            "value": "/w==",
            "encoding": "base64",
            "tombstone": False,
        },
        {"id": "1:1:-1:1", "key": "b", "value": None, "tombstone": True},
    ]


def test_a_segment_as_a_table(segment: Path) -> None:
    """For people, on a line each."""
    ran = ledgerfold("segment", "dump", "--messages", "-o", "table", str(segment))
    assert ran.code == 0
    assert len(ran.out.splitlines()) == 4
    assert r"a\n" in ran.out


def second_offset(path: Path) -> int:
    return read_header(path.read_bytes()).size_bytes


def _flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def in_the_header(path: Path) -> None:
    _flip(path, second_offset(path) + 8)


def in_the_keys(path: Path) -> None:
    _flip(path, second_offset(path) + HEADER_BYTES)


def in_the_values(path: Path) -> None:
    _flip(path, len(path.read_bytes()) - 1)


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def torn_in_the_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: second_offset(path) + 5])


def the_same_entry_again(path: Path) -> None:
    content = path.read_bytes()[: second_offset(path)]
    path.write_bytes(content * 2)


@pytest.mark.parametrize("messages", [[], ["--messages"]], ids=["entries", "messages"])
@pytest.mark.parametrize(
    "damage",
    [
        in_the_header,
        in_the_keys,
        in_the_values,
        torn,
        torn_in_the_header,
        the_same_entry_again,
    ],
)
def test_a_damaged_segment(
    segment: Path, damage: Callable[[Path], None], messages: list[str]
) -> None:
    """Shows the entries before the damage; then exits with 6, naming the file and the byte."""
    offset = second_offset(segment)
    damage(segment)
    ran = ledgerfold("segment", "dump", *messages, str(segment))
    assert ran.code == 6
    assert ran.rows[0]["id"] == "1:0"
    assert len(ran.rows) == 1
    prefix = f"ledgerfold: {segment} is damaged at byte "
    assert ran.err.startswith(prefix)
    named = int(ran.err.removeprefix(prefix).split(":")[0])
    assert offset <= named <= segment.stat().st_size


def test_files_that_are_no_segments(tmp_path: Path) -> None:
    """Some other file, none, or a folder."""
    other = tmp_path / "other"
    other.write_text("not a segment " * 100)
    ran = ledgerfold("segment", "dump", str(other))
    assert ran.code == 2
    assert f"{other} is not a segment file" in ran.err
    assert ledgerfold("segment", "dump", str(tmp_path / "none")).code == 3
    ran = ledgerfold("segment", "dump", str(tmp_path))
    assert (ran.code, ran.err) == (1, f"ledgerfold: {tmp_path}: Is a directory\n")


def test_an_empty_segment(tmp_path: Path) -> None:
    """Holds nothing, and nothing is wrong."""
    empty = tmp_path / "0.log"
    empty.touch()
    assert ledgerfold("segment", "dump", str(empty)) == (0, "", "")


def test_messages_that_do_not_decode(tmp_path: Path) -> None:
    """Their checksums are right, and still they are damage: 6, with file and offset."""
    builder = NativeBatchBuilder("p")
    builder.add(b"1" * 100, b"a")
    fields = EntryFields(message_count=1, compression=Compression.ZSTD)
    good = builder.build(sequence_id=1, publish_time_ms=7, compression=Compression.NONE)
    header = read_header(good)
    sections = good[header.header_bytes :]
    bad = build_entry(sections[: header.key_bytes], sections[header.key_bytes :], fields)
    (tmp_path / "1").mkdir()
    writer = SegmentWriter(tmp_path, 1, 0)
    stamped = stamped_header(read_header(bad), 1, 0, 9, 1)
    stored = stamped + bad[len(stamped) :]
    writer.append(read_header(stored), stored)
    path = tmp_path / writer.seal().path
    assert ledgerfold("segment", "dump", str(path)).code == 0
    ran = ledgerfold("segment", "dump", "--messages", str(path))
    assert ran.code == 6
    assert f"{path} is damaged at byte 0" in ran.err

"""Frames read a data directory that nobody serves, or a snapshot, and change neither."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgerfold import frames
from ledgerfold.broker.cli.main import main
from ledgerfold.frames.query import Query
from ledgerfold.frames.reading import last_positions, parts_of
from ledgerfold.storage.deletion_vector import DeadTally
from ledgerfold.storage.entry import Position, read_header, stamp
from ledgerfold.storage.errors import (
    Corruption,
    DirectoryLocked,
    InvalidRequest,
    MetadataLost,
    MissingFile,
    NotAllowed,
    SnapshotNotFound,
    TopicNotFound,
)
from ledgerfold.storage.files import REAL
from ledgerfold.storage.kafka.entries import entry_of as kafka_entry_of
from ledgerfold.storage.kafka.records import build_columns
from ledgerfold.storage.lock import DirectoryLock
from ledgerfold.storage.names import deletion_vector_path, segment_path, write_mark_path
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.records import key
from ledgerfold.storage.segment import SegmentWriter, link_segment, scan_segment
from ledgerfold.storage.snapshots import Snapshots
from ledgerfold.v1.records_pb2 import PartitionedTopicRecord, TopicRecord
from tests.support.data_directory import TOPIC, DataDirectory, add, put


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DataDirectory]:
    path = tmp_path / "data"
    path.mkdir()
    made = DataDirectory(path)
    yield made
    made.metadata.close()


def values(directory: DataDirectory | Path, topic: str = "t", **arguments: Any) -> list[str]:
    path = directory if isinstance(directory, Path) else directory.path
    table = frames.read(topic, data=path, **arguments)
    return [value.decode() for value in table["value"].to_pylist()]


def contents(path: Path) -> dict[str, bytes]:
    files = (each for each in path.rglob("*") if each.is_file())
    return {str(each): each.read_bytes() for each in files}


def test_a_killed_brokers_directory_is_read_without_changes(directory: DataDirectory) -> None:
    first = directory.ledger()
    add(first, "a1", "b1", "c1")
    first.close()
    second = directory.ledger()
    add(second, "d1", "e1", "f1")
    directory.stop()
    last = max(directory.path.glob(f"ledgers/{second.ledger_id}/*.log"))
    last.write_bytes(last.read_bytes() + b"torn")
    before = contents(directory.path)
    assert values(directory) == ["a1", "b1", "c1", "d1", "e1", "f1"]
    found = last_positions(Query.of("t", data=directory.path))
    assert found == {TOPIC: Position(second.ledger_id, 2)}
    assert contents(directory.path) == before


def test_a_read_is_limited_by_positions_times_and_keys(directory: DataDirectory) -> None:
    writer = directory.ledger()
    for time_ms, value in enumerate(["a1", "b1", "a2", "b2", "a3"]):
        add(writer, value, time_ms=time_ms)
    writer.close()
    directory.stop()
    at = writer.ledger_id
    assert values(directory, start=(at, 1), end=(at, 3)) == ["b1", "a2"]
    assert values(directory, start=(at, 3)) == ["b2", "a3"]
    assert values(directory, end=(at, 0)) == []
    assert values(directory, start_time=2, end_time=4) == ["a2", "b2"]
    assert values(directory, keys=["a"], start_time=1) == ["a2", "a3"]
    assert parts_of(Query.of("t", data=directory.path, start=(at + 1, 0))) == []


def test_batches_are_bounded_and_lock_the_directory(directory: DataDirectory) -> None:
    writer = directory.ledger()
    add(writer, "a1", "b1", "c1")
    directory.stop()
    found = frames.batches("t", data=directory.path, rows_max=1)
    assert len(next(found)) == 1
    with pytest.raises(DirectoryLocked, match="processes that read it"):
        DirectoryLock(directory.path, "test").__enter__()
    assert values(directory) == ["a1", "b1", "c1"]
    found.close()
    with DirectoryLock(directory.path, "test"):
        pass


def test_a_directory_in_use_is_refused(directory: DataDirectory) -> None:
    add(directory.ledger(), "a1")
    with pytest.raises(DirectoryLocked, match=r"Read it through its broker \(--url; "):
        values(directory)
    directory.stop()


def test_a_snapshot_is_read_while_its_broker_runs(directory: DataDirectory) -> None:
    writer = directory.ledger()
    add(writer, "a1", "b1", "c1")
    writer.close()
    Snapshots(directory.path, directory.metadata, REAL, lambda: 1).save("first")
    add(directory.ledger(), "later")
    assert values(directory.path / "snapshots" / "first") == ["a1", "b1", "c1"]
    directory.stop()
    with pytest.raises(FileNotFoundError):
        values(directory.path / "snapshots" / "second")


def test_a_snapshot_with_a_deletion_vector_is_read_and_exported(
    directory: DataDirectory, tmp_path: Path
) -> None:
    writer = directory.ledger()
    add(writer, "a1", "b1")
    writer.close()
    ledgers = directory.path / "ledgers"
    compacted = directory.metadata.allocate_ledger_id()
    (ledgers / str(compacted)).mkdir()
    segment = link_segment(ledgers, writer.record.segments[0], compacted, 0)
    tally = DeadTally()
    for header, _ in scan_segment(ledgers / segment.path, segment):
        tally.add(header, [0] if header.entry_id == 0 else [])
    stored, dead = tally.finish()
    (ledgers / deletion_vector_path(segment.path)).write_bytes(stored)
    segment.dead.CopyFrom(dead)
    with directory.metadata.batch() as batch:
        batch.put(directory.store.verify_compacted(compacted, TOPIC, [segment]))
    horizon = {"ledger_id": writer.ledger_id, "entry_id": 1}
    directory.edit(compacted={"ledger_id": compacted, "horizon": horizon, "run_number": 1})
    Snapshots(directory.path, directory.metadata, REAL, lambda: 1).save("s")
    directory.stop()
    snapshot = directory.path / "snapshots" / "s"
    assert values(snapshot, compacted=True) == ["b1"]
    archive = str(tmp_path / "t.topic")
    assert main(["topics", "export", "t", archive, "--data", str(snapshot)]) == 0
    assert main(["topics", "import", archive, "--data", str(tmp_path / "new")]) == 0
    assert values(tmp_path / "new", compacted=True) == ["b1"]


def test_a_snapshot_without_its_records_is_refused(tmp_path: Path) -> None:
    from ledgerfold.storage.snapshot_folder import read_records

    with pytest.raises(SnapshotNotFound, match="gone"):
        read_records(tmp_path / "gone", REAL)
    (tmp_path / "records").write_bytes(b"no records")
    with pytest.raises(Corruption, match="records of a snapshot"):
        values(tmp_path)


def test_the_compacted_view_and_later_entries_are_read(directory: DataDirectory) -> None:
    raw = directory.ledger()
    add(raw, "a1", "b1", "a2", "c1")
    raw.close()
    compacted_id = directory.metadata.allocate_ledger_id()
    (directory.path / "ledgers" / str(compacted_id)).mkdir()
    output = SegmentWriter(directory.path / "ledgers", compacted_id, 0)
    for entry_id, value in ((1, b"b1"), (2, b"a2")):
        builder = NativeBatchBuilder("p")
        builder.add(value, key=value[:1])
        data = stamp(builder.build(sequence_id=0, publish_time_ms=1), raw.ledger_id, entry_id, 1, 1)
        output.append(read_header(data), data)
    record = directory.store.verify_compacted(compacted_id, TOPIC, [output.seal()])
    with directory.metadata.batch() as batch:
        batch.put(record)
    horizon = {"ledger_id": raw.ledger_id, "entry_id": 2}
    directory.edit(compacted={"ledger_id": compacted_id, "horizon": horizon})
    add(directory.ledger(), "b2")
    directory.stop()
    assert values(directory, compacted=True) == ["b1", "a2", "c1", "b2"]
    assert values(directory, compacted=True, start=(raw.ledger_id, 2)) == ["a2", "c1", "b2"]
    assert values(directory) == ["a1", "b1", "a2", "c1", "b2"]

    again = DataDirectory(directory.path)
    again.edit(retention_floor={"ledger_id": raw.ledger_id, "entry_id": 2})
    again.stop()
    assert values(directory, compacted=True) == ["a2", "c1", "b2"]
    again = DataDirectory(directory.path)
    # The next load drops the view.
    again.edit(truncated_upto=horizon)
    again.stop()
    assert values(directory, compacted=True) == ["a1", "b1", "a2", "c1", "b2"]


def test_a_kafka_log(directory: DataDirectory) -> None:
    writer = directory.ledger()
    for base in (0, 3, 6):
        batch = build_columns([b"k"] * 3, [b"%d" % base] * 3, [1] * 3, base_offset=base)
        put(writer, kafka_entry_of(batch, sequence_id=base, publish_time_ms=1))
    writer.close()
    segments = [{"base_offset": 0, "ledger_ids": [writer.ledger_id]}]
    directory.edit(kafka={"segments": segments, "log_start_offset": 1, "truncated_to": 8})
    directory.stop()

    def offsets(**arguments: Any) -> list[int]:
        found: list[int] = frames.read("t", data=directory.path, **arguments)["offset"].to_pylist()
        return found

    assert offsets() == [1, 2, 3, 4, 5, 6, 7]
    assert offsets(start=2, end=4) == [2, 3]
    # Kafka's records are in ledger 0.
    assert offsets(end=(1, 0)) == offsets()
    assert offsets(start=(1, 0)) == []
    assert last_positions(Query.of("t", data=directory.path)) == {TOPIC: Position(0, 7)}
    with pytest.raises(NotAllowed, match="no separate compacted view"):
        offsets(compacted=True)
    with pytest.raises(NotAllowed, match="pass url"):
        offsets(isolation="read_committed")


def test_partitions_are_read_one_after_the_other(directory: DataDirectory) -> None:
    with directory.metadata.batch() as batch:
        batch.put(PartitionedTopicRecord(name=TOPIC, partitions=2))
    for index in (1, 0):
        add(directory.ledger(f"{TOPIC}-partition-{index}"), f"p{index}")
    directory.stop()
    table = frames.read("t", data=directory.path)
    assert table["partition"].to_pylist() == [0, 1]
    assert table["value"].to_pylist() == [b"p0", b"p1"]
    assert values(directory, "t-partition-1") == ["p1"]


def test_damage_is_raised_after_the_intact_rows(directory: DataDirectory) -> None:
    writer = directory.ledger()
    add(writer, "a1", "b1")
    writer.seal_segment()
    add(writer, "c1", "d1")
    writer.close()
    directory.stop()
    path = directory.path / "ledgers" / segment_path(writer.ledger_id, 2)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    found = frames.batches("t", data=directory.path, rows_max=1)
    with pytest.raises(Corruption):
        list(found)
    assert values(directory, end=(writer.ledger_id, 2)) == ["a1", "b1"]
    path.unlink()
    with pytest.raises(MissingFile):
        values(directory)


def test_an_open_ledger_that_lost_acknowledged_entries_is_damaged(directory: DataDirectory) -> None:
    writer = directory.ledger()
    add(writer, "a1")
    add(writer, "b1")
    add(writer, "c1")
    directory.stop()
    path = directory.path / "ledgers" / segment_path(writer.ledger_id, 0)
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    with pytest.raises(Corruption):
        values(directory)


@pytest.mark.parametrize("is_being_made", [False, True])
def test_entries_without_a_record_are_an_error(
    directory: DataDirectory, is_being_made: bool
) -> None:
    """Also if the record is that of a ledger that a lost write has made live."""
    add(directory.ledger(), "a1")
    lost = directory.ledger()
    add(lost, "b1")
    with directory.metadata.batch() as batch:
        batch.put(TopicRecord(name=TOPIC, ledger_ids=[1]))
    directory.pairs.write({}, [key("ledger", lost.ledger_id)])
    if is_being_made:
        with directory.metadata.batch() as batch:
            batch.put_being_made(lost.record)
        write_mark_path(directory.path).unlink()
    directory.stop()
    with pytest.raises(MetadataLost, match=f"ledgers/{lost.ledger_id}"):
        values(directory)


def test_a_missing_topic_is_refused(directory: DataDirectory, tmp_path: Path) -> None:
    directory.stop()
    with pytest.raises(TopicNotFound, match="has no topic of that name"):
        values(directory)
    with pytest.raises(FileNotFoundError):
        values(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        {"url": "127.0.0.1:1", "data": "d"},
        {},
        {"data": "d", "columns": ["no"]},
        {"data": "d", "columns": []},
        {"data": "d", "keys": "a"},
        {"data": "d", "keys": [1]},
        {"data": "d", "start": "12:3"},
        {"data": "d", "start": (1, 2, 3)},
        {"data": "d", "start_time": -1},
        {"data": "d", "isolation": "some"},
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        frames.read("t", **arguments)

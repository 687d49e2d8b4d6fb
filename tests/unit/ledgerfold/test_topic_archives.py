"""`topics export` and `topics import` keep everything of a topic, or change nothing."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledgerfold import frames
from ledgerfold.broker.cli.main import main
from ledgerfold.storage import topic_archive
from ledgerfold.storage.entry import crc32c
from ledgerfold.storage.errors import Corruption, IncompatibleFormat, LimitExceeded
from ledgerfold.storage.files import REAL
from ledgerfold.storage.label import Label, label_of, read_label, write_label
from ledgerfold.storage.names import segment_path
from ledgerfold.storage.snapshots import Snapshots
from ledgerfold.storage.topic_archive import TopicImport
from ledgerfold.v1.records_pb2 import (
    LEDGER_KIND_RAW,
    CursorRecord,
    PartitionedTopicRecord,
    ProducerRecord,
    RunRecord,
    SchemaRecord,
    TopicRecord,
)
from tests.support.data_directory import TOPIC, DataDirectory, add
from tests.support.property_tests import examples


def directory(path: Path) -> DataDirectory:
    path.mkdir()
    return DataDirectory(path)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Returns a killed broker's directory, with two ledgers and all kinds of records."""
    made = directory(tmp_path / "source")
    first = made.ledger()
    add(first, "a1", "b1")
    first.seal_segment()
    add(first, "a2")
    first.close()
    write_label(
        made.path / "ledgers" / str(first.ledger_id), label_of(first.record, partitions=0), REAL
    )
    second = made.ledger()
    add(second, "c1")
    other = made.ledger("persistent://public/default/other")
    add(other, "o1")
    made.edit(policies={"retention_ms": 5}, compaction_cursor=True)
    at = {"ledger_id": first.ledger_id, "entry_id": 1}
    with made.metadata.batch() as batch:
        batch.put(CursorRecord(topic=TOPIC, subscription="s", mark_delete=at, incarnation=3))
        batch.put(ProducerRecord(topic=TOPIC, name="p", number=1, last_sequence_id=7))
        batch.put(RunRecord(topic=TOPIC, number=1))
        batch.put(SchemaRecord(topic=TOPIC, version=0))
    made.stop()
    last = made.path / "ledgers" / segment_path(second.ledger_id, 0)
    last.write_bytes(last.read_bytes() + b"torn")
    return made.path


def export(source: Path, name: str = "t", *arguments: str) -> tuple[int, Path]:
    file = source.parent / f"{name}.topic"
    return main(["topics", "export", name, str(file), "--data", str(source), *arguments]), file


def imported(file: Path, data: Path) -> int:
    return main(["topics", "import", str(file), "--data", str(data)])


def records(path: Path) -> dict[bytes, bytes]:
    made = DataDirectory(path)
    found = dict(made.metadata.pairs())
    made.stop()
    for name in (b"store", b"writes"):
        found.pop(name, None)
    return found


def tree(path: Path) -> set[str]:
    return {str(each.relative_to(path)) for each in (path / "ledgers").rglob("*")}


def test_an_imported_topic_has_the_same_ids_and_records(source: Path, tmp_path: Path) -> None:
    before = frames.read("t", data=source)
    code, file = export(source)
    assert code == 0
    assert imported(file, tmp_path / "new") == 0
    assert frames.read("t", data=tmp_path / "new").equals(before)
    there, found = records(source), records(tmp_path / "new")
    assert found.keys() == {
        each for each in there if b"other" not in each and each[:6] != b"ledger"
    } | {b"ledger/%020d" % number for number in (1, 2)}
    for name, value in found.items():
        assert value == there[name] or name.startswith(b"ledger/"), name
    # It is not lost when the directory is used.
    made = DataDirectory(tmp_path / "new")
    assert made.ledger().ledger_id > 2
    made.stop()
    assert (tmp_path / "new" / "ledgers" / "1" / "label").exists()
    # And can be exported again.
    again, second = export(tmp_path / "new", "t", "--overwrite")
    assert again == 0
    assert imported(second, tmp_path / "newer") == 0
    assert frames.read("t", data=tmp_path / "newer").equals(before)


def test_an_unpacked_archive_is_a_snapshot(source: Path, tmp_path: Path) -> None:
    _, file = export(source)
    with tarfile.open(file) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    found = frames.read("t", data=tmp_path / "unpacked")
    assert found.equals(frames.read("t", data=source))
    code, again = export(tmp_path / "unpacked", "t", "--overwrite")
    assert code == 0
    assert imported(again, tmp_path / "new") == 0


def test_a_partitioned_topic(tmp_path: Path) -> None:
    made = directory(tmp_path / "source")
    with made.metadata.batch() as batch:
        batch.put(PartitionedTopicRecord(name=TOPIC, partitions=2))
    for index in (0, 1):
        add(made.ledger(f"{TOPIC}-partition-{index}"), f"p{index}")
    made.stop()
    code, file = export(made.path)
    assert code == 0
    assert imported(file, tmp_path / "new") == 0
    found = frames.read("t", data=tmp_path / "new")
    assert found.equals(frames.read("t", data=made.path))
    assert imported(file, tmp_path / "new") == 5


def test_existing_topics_and_files_are_kept(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, file = export(source)
    assert imported(file, source) == 5
    used = directory(tmp_path / "used")
    add(used.ledger("persistent://public/default/mine"), "m1")
    used.stop()
    before = tree(used.path)
    assert imported(file, used.path) == 1
    assert "have ledgers with the ids 1 here" in capsys.readouterr().err
    assert tree(used.path) == before
    assert frames.read("mine", data=used.path).num_rows == 1
    assert export(source)[0] == 2
    assert export(source, "absent")[0] == 3
    assert not (source.parent / "absent.topic").exists()
    assert imported(tmp_path / "absent", tmp_path / "new") == 3


def with_snapshot(data: Path, topic: str) -> None:
    """Saves the snapshot `s` of a directory with one ledger of a topic, then deletes the topic."""
    made = directory(data)
    writer = made.ledger(topic)
    add(writer, "s1")
    writer.close()
    Snapshots(made.path, made.metadata, REAL, lambda: 1).save("s")
    with made.metadata.batch() as batch:
        batch.delete_topic(topic)
    made.store.delete_files(writer.ledger_id)
    made.stop()


def test_an_id_that_a_snapshot_has_is_not_used_again(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, file = export(source)
    with_snapshot(tmp_path / "used", "persistent://public/default/mine")
    before = tree(tmp_path / "used")
    assert imported(file, tmp_path / "used") == 1
    assert "Snapshot s has other ledgers with the ids 1:" in capsys.readouterr().err
    assert tree(tmp_path / "used") == before


def test_a_topic_of_a_snapshot_is_imported_again(tmp_path: Path) -> None:
    """A snapshot that has the same ledger can still be restored."""
    with_snapshot(tmp_path / "used", TOPIC)
    code, file = export(tmp_path / "used" / "snapshots" / "s")
    assert code == 0
    assert imported(file, tmp_path / "used") == 0
    made = DataDirectory(tmp_path / "used")
    snapshots = Snapshots(made.path, made.metadata, REAL, lambda: 1)
    snapshots.restore(snapshots.load("s"), made.store.delete_all_files)
    made.stop()
    assert frames.read("t", data=tmp_path / "used").num_rows == 1


def test_ledgers_without_a_label_get_one(source: Path, tmp_path: Path) -> None:
    """Version 0.1 has written none."""
    (source / "ledgers" / "2" / "label").unlink()
    _, file = export(source)
    assert imported(file, tmp_path / "new") == 0
    assert [read_label(tmp_path / "new" / "ledgers" / each, REAL) for each in "12"] == [
        Label(number, LEDGER_KIND_RAW, TOPIC, 1) for number in (1, 2)
    ]
    assert main(["verify", str(tmp_path / "new")]) == 0


def test_the_label_of_another_ledger_is_refused(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = source / "ledgers" / "1"
    write_label(folder, Label(1, LEDGER_KIND_RAW, f"{TOPIC}-other", 1), REAL)
    _, file = export(source)
    assert imported(file, tmp_path / "new") == 6
    assert "the label of ledger 1 of persistent://public/default/t-other" in capsys.readouterr().err
    assert tree(tmp_path / "new") == set()


def test_a_kafka_topic_has_a_separate_export(source: Path, tmp_path: Path) -> None:
    made = DataDirectory(source)
    with made.metadata.batch() as batch:
        batch.put(TopicRecord(name="persistent://public/default/k", kafka={}))
    made.stop()
    assert export(source, "k")[0] == 2


def test_damage_is_not_exported(source: Path) -> None:
    path = source / "ledgers" / segment_path(1, 0)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    code, file = export(source)
    assert code == 6
    assert not file.exists()


def test_the_error_of_damaged_records_names_an_archive(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It had named a snapshot. The property test of damage looks at no error's text."""
    _, file = export(source)
    data = bytearray(file.read_bytes())
    data[tarfile.BLOCKSIZE + 10] ^= 1
    file.write_bytes(data)
    assert imported(file, tmp_path / "new") == 6
    expected = f"{file} is damaged at byte 0: expected the records of an archive, with their"
    assert expected in capsys.readouterr().err


def test_a_killed_import_is_removed_by_the_next_start(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, file = export(source)

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    made = directory(tmp_path / "new")
    monkeypatch.setattr(TopicImport, "_verify", killed)
    monkeypatch.setattr(TopicImport, "_delete", killed)
    with pytest.raises(Killed):
        TopicImport(file, made.path / "ledgers", made.metadata, REAL).run()
    made.stop()
    monkeypatch.undo()
    assert (made.path / "ledgers" / "1").exists()
    again = DataDirectory(made.path)
    assert not (made.path / "ledgers" / "1").exists()
    assert again.metadata.topics() == again.metadata.ledgers() == []
    again.stop()
    assert imported(file, made.path) == 0


def test_too_many_records_for_an_import_are_not_exported(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, file = export(source)
    with tarfile.open(file) as archive:
        size_bytes = archive.getmember("records").size
    monkeypatch.setattr(topic_archive, "RECORDS_BYTES_MAX", size_bytes)
    assert imported(file, tmp_path / "new") == 0
    file.unlink()
    monkeypatch.setattr(topic_archive, "RECORDS_BYTES_MAX", size_bytes - 1)
    assert export(source)[0] != 0
    assert not file.exists()
    assert "Bytes of the records of persistent://public/default/t" in capsys.readouterr().err


def test_a_label_may_be_as_long_as_that_of_a_run(source: Path, tmp_path: Path) -> None:
    """The label of a compacted ledger lists its segments."""
    label = source / "ledgers" / "1" / "label"
    line = label.read_bytes().partition(b"\n")[0].ljust(65 * 1024 * 1024)
    label.write_bytes(line + b"\n%08x\n" % crc32c(line))
    _, file = export(source)
    assert imported(file, tmp_path / "new") == 0
    assert read_label(tmp_path / "new" / "ledgers" / "1", REAL) is not None


@settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(st.data())
def test_a_damaged_archive_is_imported_whole_or_not_at_all(
    source: Path, tmp_path: Path, data: st.DataObject
) -> None:
    file = tmp_path / "t.topic"
    if not file.exists():
        export(source)
    whole = file.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = tmp_path / "damaged"
    if data.draw(st.booleans()):
        damaged.write_bytes(whole[:at])
    else:
        bit = 1 << data.draw(st.integers(0, 7))
        damaged.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
    target = tmp_path / "target"
    target.mkdir(exist_ok=True)
    made = DataDirectory(target)
    try:
        TopicImport(damaged, target / "ledgers", made.metadata, REAL).run()
        # Padding, times, owners.
        assert [topic.name for topic in made.metadata.topics()] == [TOPIC]
        made.stop()
        assert frames.read("t", data=target).num_rows == 4
        made = DataDirectory(target)
        with made.metadata.batch() as batch:
            batch.delete_topic(TOPIC)
        for ledger_id in (1, 2):
            made.store.delete_files(ledger_id)
    except (Corruption, IncompatibleFormat, LimitExceeded):
        assert made.metadata.topics() == made.metadata.ledgers() == []
        assert not (target / "ledgers" / "1").exists()
    finally:
        made.stop()

"""Tests the contents of an exported folder and the files next to it, byte for byte."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.files import Files, replace_file
from ledgerfold.storage.kafka.folder_writer import FolderWriter
from ledgerfold.storage.kafka.records import KafkaRecord, build_batch
from ledgerfold.storage.kafka.transaction_index import (
    AbortedTransaction,
    aborted_bytes,
    read_aborted,
)


def test_a_batch_is_indexed_after_more_than_the_interval(tmp_path: Path) -> None:
    """Not behind just as much, as in Kafka; exports had been compared with other sizes."""
    batches = [build_batch([KafkaRecord(n, 5, b"k", b"v")], base_offset=n) for n in range(6)]
    size = len(batches[0])
    folder = tmp_path / "t-0"
    with FolderWriter(folder, topic_id=UUID(int=7), index_interval_bytes=size) as writer:
        writer.begin_segment(0)
        for batch in batches:
            writer.append(batch)
        writer.end_segment(modified_ms=0)
    index = (folder / f"{0:020}.index").read_bytes()
    assert list(struct.iter_unpack(">ii", index)) == [(2, 2 * size), (4, 4 * size)]


def _write_one(writer: FolderWriter, offset: int) -> None:
    writer.begin_segment(offset)
    writer.append(build_batch([KafkaRecord(offset, 5, b"k", b"v")], base_offset=offset))
    writer.end_segment(modified_ms=0)


def test_a_second_writer_of_a_folder_is_refused(tmp_path: Path) -> None:
    """Exports had been tested one after another."""
    folder = tmp_path / "t-0"
    with FolderWriter(folder, topic_id=UUID(int=7)) as writer:
        _write_one(writer, 0)
        with pytest.raises(InvalidRequest, match="Another export writes"):
            FolderWriter(folder, topic_id=UUID(int=8)).__enter__()
        _write_one(writer, 1)
    assert [each.name for each in sorted(folder.glob("*.log"))] == [
        f"{0:020}.log",
        f"{1:020}.log",
    ]
    assert [each.name for each in tmp_path.iterdir()] == ["t-0"]
    with pytest.raises(InvalidRequest, match="exists already"):
        FolderWriter(folder, topic_id=UUID(int=8)).__enter__()


def test_the_remains_of_a_killed_writer_are_replaced(tmp_path: Path) -> None:
    folder, aside = tmp_path / "t-0", tmp_path / ".t-0.exporting"
    aside.mkdir()
    (aside / f"{9:020}.log").write_bytes(b"torn")
    with FolderWriter(folder, topic_id=UUID(int=7)) as writer:
        _write_one(writer, 0)
    assert [each.name for each in folder.glob("*.log")] == [f"{0:020}.log"]
    assert [each.name for each in tmp_path.iterdir()] == ["t-0"]


def test_a_writer_that_fails_leaves_the_place_to_the_next_one(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    with suppress(ZeroDivisionError), FolderWriter(folder, topic_id=UUID(int=7)) as writer:
        writer.begin_segment(0)
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    with FolderWriter(folder, topic_id=UUID(int=7)) as writer:
        _write_one(writer, 0)
    assert folder.exists()


def test_a_file_next_to_a_folder_is_replaced_durably(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests any remains of a killed export, and every order of calls."""
    calls = list[str]()
    for name in ("create", "replace", "sync_dir"):
        original = getattr(Files, name)

        def noted(self: Files, *paths: Path, _call: str = name, _do: object = original) -> object:
            calls.append(_call)
            return _do(self, *paths)  # type: ignore[operator]

        monkeypatch.setattr(Files, name, noted)
    (tmp_path / "checkpoint.tmp").write_bytes(b"torn")
    for text in (b"old", b"new"):
        replace_file(tmp_path / "checkpoint", [text])
    assert calls == ["create", "replace", "sync_dir"] * 2
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint"]
    assert (tmp_path / "checkpoint").read_bytes() == b"new"


def test_an_aborted_transaction_may_have_one_offset() -> None:
    """Kafka's index allows it."""
    aborted = AbortedTransaction(7, 3, 3, 3)
    assert read_aborted(aborted_bytes([aborted]), 0, 10) == [aborted]

"""Key indexes that no record names."""

from __future__ import annotations

from pathlib import Path

from ledgerfold.storage.files import REAL
from ledgerfold.storage.unnamed import unnamed_files
from ledgerfold.v1.records_pb2 import KeyIndexRecord, LedgerRecord, SegmentRecord


def test_a_key_index_that_no_record_names_may_be_removed(tmp_path: Path) -> None:
    """Any other is unnamed, and holds no entry: a start may remove it."""
    (tmp_path / "7").mkdir()
    paths = [f"7/{number:020d}" for number in range(2)]
    for path in paths:
        (tmp_path / f"{path}.log").touch()
        (tmp_path / f"{path}.keys").write_bytes(
            b"an index of more bytes than an entry's header has" * 9
        )
    with_index = SegmentRecord(path=f"{paths[0]}.log", key_index=KeyIndexRecord(size_bytes=9))
    record = LedgerRecord(ledger_id=7, segments=[with_index, SegmentRecord(path=f"{paths[1]}.log")])
    [found] = unnamed_files(tmp_path, {7: record}, REAL)
    assert (found.relative, found.holds_entries) == (f"{paths[1]}.keys", False)

"""Key indexes that no record names."""

from __future__ import annotations

from pathlib import Path

from ledgerfold.storage.files import REAL, Files
from ledgerfold.storage.open_files import ReadFile
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


def test_a_file_that_vanishes_meanwhile_is_no_damage(tmp_path: Path) -> None:
    """A killed broker's worker may remove its files while `verify` looks at them.

    The vanishing file was read once before it was checked; tests had removed it before both.
    """

    class Removing(Files):
        opened = 0

        def open_read(self, path: Path) -> ReadFile:
            self.opened += 1
            if self.opened == 2:
                path.unlink()
            return super().open_read(path)

    (tmp_path / "7").mkdir()
    (tmp_path / "7" / f"{0:020d}.keys").write_bytes(b"no entry, but many more bytes " * 9)
    [found] = unnamed_files(tmp_path, {}, files := Removing())
    assert (found.holds_entries, found.is_raw, files.opened) == (False, False, 2)

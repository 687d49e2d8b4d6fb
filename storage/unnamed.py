"""Files in the ledgers folder that no record names, as evidence of lost metadata.

Two kinds of them hold entries:

* A **raw** segment is named by a record before it gets its first entry, and its entries are deleted
  before its record. So an unnamed one with entries was stored, and the metadata have lost it.
* A compaction's output that was not published is in no record, and is useless. But the file may
  also be published output, if the metadata have lost the write that published it: then it may
  contain the only copy of its messages.

    >>> from ledgerfold.storage.files import REAL
    >>> (folder / "7").mkdir()
    >>> (folder / "7" / "00000000000000000000.log").touch()
    >>> [each] = unnamed_files(folder, {}, REAL)
    >>> each.path.name, each.holds_entries
    ('00000000000000000000.log', False)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from ledgerfold.storage.entry import EARLIEST, HEADER_BYTES, read_header
from ledgerfold.storage.errors import Corruption, IncompatibleFormat
from ledgerfold.storage.files import Files
from ledgerfold.storage.names import LABEL, TORN_SUFFIX, parse_ledger_dir
from ledgerfold.storage.segment import file_names
from ledgerfold.storage.segment_check import Bounds, check_segment
from ledgerfold.v1.records_pb2 import LedgerRecord, SegmentRecord


class UnnamedFile(NamedTuple):
    """An unnamed file. `holds_entries`: at least one. `is_raw`: with entries of its folder's
    ledger.
    """

    path: Path
    ledger_id: int
    holds_entries: bool
    is_raw: bool

    @property
    def relative(self) -> str:
        """The path below the ledgers folder, as in a SegmentRecord."""
        return f"{self.path.parent.name}/{self.path.name}"


def unnamed_files(
    ledgers_dir: Path,
    ledgers: Mapping[int, LedgerRecord],
    files: Files,
    split: Collection[str] = (),
) -> list[UnnamedFile]:
    """Lists the unnamed files of all folders. Labels and copies of torn segments belong to their
    ledger.

    `split`: paths of the segments that an unfinished repair has split off; those are copies. Raises
    DiskFailure.
    """
    found = list[UnnamedFile]()
    for folder in files.listdir(ledgers_dir):
        ledger_id = parse_ledger_dir(folder)
        if ledger_id is None:
            continue
        record = ledgers.get(ledger_id)
        named = set() if record is None else file_names(record)
        for name in listdir(ledgers_dir / folder, files):
            relative = f"{folder}/{name}"
            if relative in named or name == LABEL or name.endswith(TORN_SUFFIX):
                continue
            path = ledgers_dir / folder / name
            holds_entries, is_raw = _look(path, ledger_id, files)
            is_raw = is_raw and relative not in split
            found.append(UnnamedFile(path, ledger_id, holds_entries, is_raw))
    return found


def _look(path: Path, ledger_id: int, files: Files) -> tuple[bool, bool]:
    """Returns whether the file holds a whole entry, and one that was published to the ledger.

    A file that begins with an entry is not read to its end: a run may have left a gigabyte.
    """
    try:
        with closing(files.open_read(path)) as file:
            header = read_header(file.pread(HEADER_BYTES, 0))
            if header.size_bytes <= file.size_bytes:
                return True, header.ledger_id == ledger_id
    except FileNotFoundError:
        return False, False
    except Corruption:
        pass
    except IncompatibleFormat:
        return True, False
    check = check_segment(path, SegmentRecord(path=path.name), Bounds(EARLIEST), files)
    return bool(check.extents) or check.newer is not None, ledger_id in check.ledger_ids


def listdir(path: Path, files: Files) -> list[str]:
    """Returns the names in a folder; none if it does not exist."""
    try:
        return files.listdir(path)
    except FileNotFoundError:
        return []

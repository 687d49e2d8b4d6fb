"""The names of all files and folders in a data directory (docs/FORMATS.md, "The data directory").

>>> segment_path(12, 0)
'12/00000000000000000000.log'
>>> parse_segment_name("00000000000000000007.log")
7
"""

from __future__ import annotations

from pathlib import Path

LOCK = "lock"
METADATA = "metadata"
LEDGERS = "ledgers"
RESERVE = "reserve"
# The file that counts the writes of the metadata (storage/write_mark.py).
WRITE_MARK = "writes"
# The workers' log, and the folders of running workers.
COMPACTOR = "compactor"
# Manifests of repairs, and copies of the data they changed.
REPAIRS = "repairs"
MANIFEST = "manifest.json"
# Snapshots, and the file in each that has the records.
SNAPSHOTS = "snapshots"
SNAPSHOT_RECORDS = "records"
SEGMENT_SUFFIX = ".log"
# The file next to a compacted segment with the index of its keys.
KEY_INDEX_SUFFIX = ".keys"
# The file beside a compacted segment that lists its dead messages.
DELETION_VECTOR_SUFFIX = ".dead"
# A file that is being written; it is renamed when complete.
ASIDE_SUFFIX = ".tmp"
# Version 0.1 added this to the names of raw segments with entries that no record named.
KEPT_SUFFIX = ".kept"
# The file in each ledger's folder that names its topic (storage/label.py).
LABEL = "label"
# A copy of a segment, taken before its torn tail was cut off.
TORN_SUFFIX = ".torn"


def lock_path(data_dir: Path) -> Path:
    return data_dir / LOCK


def metadata_dir(data_dir: Path) -> Path:
    return data_dir / METADATA


def ledgers_dir(data_dir: Path) -> Path:
    return data_dir / LEDGERS


def reserve_path(data_dir: Path) -> Path:
    return data_dir / RESERVE


def write_mark_path(data_dir: Path) -> Path:
    return data_dir / WRITE_MARK


def segment_name(number: int) -> str:
    """Returns the file name of a segment. `number`: a raw segment's first entry id, a compacted
    one's index.
    """
    return f"{number:020d}{SEGMENT_SUFFIX}"


def segment_path(ledger_id: int, number: int) -> str:
    """Returns a segment's path relative to the ledgers folder, as in a SegmentRecord."""
    return f"{ledger_id}/{segment_name(number)}"


def key_index_path(path: str) -> str:
    """Returns the path of a segment's key index.

    >>> key_index_path("12/00000000000000000000.log")
    '12/00000000000000000000.keys'
    """
    return path.removesuffix(SEGMENT_SUFFIX) + KEY_INDEX_SUFFIX


def deletion_vector_path(path: str) -> str:
    """Returns the path of a segment's deletion vector.

    >>> deletion_vector_path("12/00000000000000000000.log")
    '12/00000000000000000000.dead'
    """
    return path.removesuffix(SEGMENT_SUFFIX) + DELETION_VECTOR_SUFFIX


def parse_segment_name(name: str) -> int | None:
    """Returns the number in a segment's name; None for any other name."""
    stem = name.removesuffix(SEGMENT_SUFFIX)
    return int(stem) if stem != name and len(stem) == 20 and stem.isdecimal() else None


def segment_number(path: str) -> int | None:
    """Returns the number in the path of a segment, including one that a start of version 0.1 has
    renamed.
    """
    return parse_segment_name(path.rpartition("/")[2].removesuffix(KEPT_SUFFIX))


def parse_ledger_dir(name: str) -> int | None:
    return int(name) if name.isdecimal() else None

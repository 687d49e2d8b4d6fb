"""Every name below a data directory, in one place (docs/FORMATS.md, "The data directory").

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
# How many writes the metadata have had, beside them.
WRITE_MARK = "writes"
# The worker's: its log, and the folders of those that run.
COMPACTOR = "compactor"
# What repairs did, and copies of what they changed.
REPAIRS = "repairs"
MANIFEST = "manifest.json"
SEGMENT_SUFFIX = ".log"
# Being written; renamed when complete.
ASIDE_SUFFIX = ".tmp"
# What starts of version 0.1 added to the names of raw segments with entries that no record named.
KEPT_SUFFIX = ".kept"
# In each ledger's folder: whose it is.
LABEL = "label"
# What a crash left at the end of a segment, before it was cut off.
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
    """`number`: the first entry id in a raw ledger, the index in a compacted one."""
    return f"{number:020d}{SEGMENT_SUFFIX}"


def segment_path(ledger_id: int, number: int) -> str:
    """Relative to the ledgers folder, as a SegmentRecord has it."""
    return f"{ledger_id}/{segment_name(number)}"


def parse_segment_name(name: str) -> int | None:
    """The number in a segment's name, None for any other name."""
    stem = name.removesuffix(SEGMENT_SUFFIX)
    return int(stem) if stem != name and len(stem) == 20 and stem.isdecimal() else None


def segment_number(path: str) -> int | None:
    """Returns the number in the path of a segment, also of one that a start has kept aside."""
    return parse_segment_name(path.rpartition("/")[2].removesuffix(KEPT_SUFFIX))


def parse_ledger_dir(name: str) -> int | None:
    return int(name) if name.isdecimal() else None

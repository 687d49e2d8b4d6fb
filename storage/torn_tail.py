"""The rules that distinguish a torn tail, which recovery cuts, from damage, which it reports.

A bad entry begins a torn tail if no good header after it proves that it was acknowledged, and if
the machine has stopped since it was written, or the file ends before the entry does. (Everything
that a killed process wrote is there, except for the part that its last write did not complete.)
"""

from __future__ import annotations

from ledgerfold.storage.entry import FORMAT_VERSION, EntryHeader, has_header, read_header
from ledgerfold.storage.errors import Corruption, IncompatibleFormat


def proves(header: EntryHeader, entry_id: int) -> bool:
    """Returns whether a header proves that an earlier entry of its ledger was acknowledged.

    It does if that entry was synced before the header was written. A header of version 1 does not
    record this, and counts as proof.
    """
    return header.version < FORMAT_VERSION or header.last_durable_entry_id >= entry_id


def reaches_beyond(block: memoryview | bytes, at: int, bytes_left: int) -> bool:
    """Returns whether the entry at index `at` of a block extends beyond the file's last bytes."""
    try:
        return not has_header(block, at) or read_header(block, at).size_bytes > bytes_left
    except (Corruption, IncompatibleFormat):
        return False


def may_be_torn(*, is_same_boot: bool, reaches_beyond: bool) -> bool:
    """Returns whether an unproven bad entry begins a torn tail.

    `is_same_boot`: the machine has not stopped since the entry was written.
    """
    return reaches_beyond or not is_same_boot

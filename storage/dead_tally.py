"""Builds the deletion vector of a run of entries, and the vector's record.

>>> from ledgerfold.storage.native import NativeBatchBuilder
>>> from ledgerfold.storage.entry import read_header, stamp
>>> tally = DeadTally()
>>> for entry_id in range(2):
...     builder = NativeBatchBuilder("p")
...     builder.add(b"v", key=b"k")
...     entry = builder.build(sequence_id=entry_id, publish_time_ms=1)
...     header = read_header(stamp(entry, 7, entry_id, append_time_ms=1, producer_number=1))
...     tally.add(header, [] if entry_id else [0])
>>> stored, record = tally.finish()
>>> record.messages, record.entries, record.first.entry_id
(1, 1, 1)
"""

from __future__ import annotations

from collections.abc import Sequence

from ledgerfold.storage.deletion_vector import DeadRows, DeletionVector
from ledgerfold.storage.entry import EntryHeader
from ledgerfold.v1.records_pb2 import DeletionVectorRecord


def dead_bytes(size_bytes: int, rows: int, dead: int) -> int:
    """Returns the part of an entry's size that its dead rows take."""
    return size_bytes * dead // rows


class DeadTally:
    """A tally of the entries of one segment, in order, with the dead rows of each."""

    def __init__(self) -> None:
        self._offset = self._rows = 0
        self._entries: list[DeadRows] = []
        self._record = DeletionVectorRecord()

    @property
    def is_all_dead(self) -> bool:
        return self._record.messages == self._rows

    def add(self, header: EntryHeader, dead: Sequence[int]) -> None:
        """Adds the next entry. `dead`: its dead rows, ascending."""
        record, rows = self._record, header.message_count
        if dead:
            self._entries.append(DeadRows(self._offset, self._rows, rows, dead))
            record.messages += len(dead)
            record.entries += len(dead) == rows
            record.bytes += dead_bytes(header.size_bytes, rows, len(dead))
        if len(dead) < rows:
            if not record.HasField("first"):
                record.first.ledger_id, record.first.entry_id = header.position
            record.last.ledger_id, record.last.entry_id = header.position
        self._offset += header.size_bytes
        self._rows += rows

    def finish(self) -> tuple[bytes, DeletionVectorRecord]:
        """Returns the file and its record."""
        stored = DeletionVector.of(self._rows, self._entries).encode()
        self._record.size_bytes = len(stored)
        self._record.checksum = int.from_bytes(stored[:4], "little")
        return stored, self._record

"""What a recovery has done, and what it has found."""

from __future__ import annotations

from dataclasses import dataclass, field

from ledgerfold.storage.errors import StorageError
from ledgerfold.storage.words import counted
from ledgerfold.v1.records_pb2 import LedgerRecord


@dataclass(slots=True)
class RecoveryReport:
    """What was done, by ledger id or path."""

    # Whether the machine has run on since somebody last wrote.
    is_same_boot: bool = False
    ledgers: int = 0
    # Ids of all ledgers that have a record, in whatever state.
    known: set[int] = field(default_factory=set)
    closed: list[int] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    deleted: list[int] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    # Whether the metadata have lost writes, now or before an earlier start: nothing that holds an
    # entry is removed then.
    is_incomplete: bool = False
    # Files and folders that no record names, and that stay because a lost record may have.
    kept: list[str] = field(default_factory=list)
    # By topic: ledgers with entries that no record names.
    unrecorded: dict[str, list[int]] = field(default_factory=dict)
    # Ledgers with files that could not be removed.
    left: list[int] = field(default_factory=list)
    damaged: dict[int, StorageError] = field(default_factory=dict)
    # Damaged ledgers that could not be closed, as far as they are known. Their records stay open.
    damaged_records: dict[int, LedgerRecord] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"{counted(self.ledgers, 'ledger')}, {len(self.closed)} closed, "
            f"{counted(len(self.torn), 'torn tail')} cut, "
            f"{len(self.deleted)} deleted, {counted(len(self.orphans), 'orphan')} removed, "
            f"{len(self.left)} left for later, {len(self.kept)} that no record names kept, "
            f"{len(self.damaged)} damaged"
            + (", and the metadata have lost writes" if self.is_incomplete else "")
        )

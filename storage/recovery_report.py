"""The report of a recovery."""

from __future__ import annotations

from dataclasses import dataclass, field

from ledgerfold.storage.errors import StorageError
from ledgerfold.storage.text import counted
from ledgerfold.v1.records_pb2 import LedgerRecord


@dataclass(slots=True)
class RecoveryReport:
    """The actions and findings of a recovery, by ledger id or path."""

    # True if the machine has not stopped since the last write.
    is_same_boot: bool = False
    ledgers: int = 0
    # Ids of all ledgers that have a record, in any state.
    ledger_ids: set[int] = field(default_factory=set)
    closed: list[int] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    deleted: list[int] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    # True if the metadata have lost writes, now or before an earlier start: then nothing that holds
    # an entry is removed.
    is_incomplete: bool = False
    # Files and folders that no record names, kept because a lost record may have named them.
    preserved: list[str] = field(default_factory=list)
    # Ledgers with entries that no record names, by topic.
    unrecorded: dict[str, list[int]] = field(default_factory=dict)
    # Ledgers with files that could not be removed.
    undeleted: list[int] = field(default_factory=list)
    damaged: dict[int, StorageError] = field(default_factory=dict)
    # The readable part of damaged ledgers that could not be closed. Their records stay open.
    damaged_records: dict[int, LedgerRecord] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"{counted(self.ledgers, 'ledger')}, {len(self.closed)} closed, "
            f"{counted(len(self.torn), 'torn tail')} cut, "
            f"{len(self.deleted)} deleted, {counted(len(self.orphans), 'orphan')} removed, "
            f"{len(self.undeleted)} left for later, {len(self.preserved)} without a record kept, "
            f"{len(self.damaged)} damaged"
            + (", and the metadata have lost writes" if self.is_incomplete else "")
        )

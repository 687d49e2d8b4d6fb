"""The settings of a data directory's ledgers."""

from __future__ import annotations

from dataclasses import dataclass

from ledgerfold.storage.errors import LimitExceeded
from ledgerfold.storage.limits import LEDGER_ENTRIES_MAX, SEGMENT_BYTES_MAX


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The limits at which segments and ledgers roll, and the durability of acknowledged entries.

    `durability`: "fsync", on the disk; "os", in the page cache, which outlives only the process.
    Defaults of ledgers: Pulsar's managedLedgerMaxSizePerLedgerMbytes, ...MaxEntriesPerLedger,
    ...MaxLedgerRolloverTimeMinutes.
    """

    segment_bytes_max: int = 64 * 1024 * 1024
    ledger_bytes_max: int = 2 * 1024 * 1024 * 1024
    ledger_entries_max: int = 50_000
    ledger_age_max_ms: int = 4 * 60 * 60 * 1000
    durability: str = "fsync"

    def __post_init__(self) -> None:
        """Raises LimitExceeded."""
        for option, found, most in (
            ("--segment-size", self.segment_bytes_max, SEGMENT_BYTES_MAX),
            ("--ledger-entries", self.ledger_entries_max, LEDGER_ENTRIES_MAX),
        ):
            if found > most:
                raise LimitExceeded(f"serve {option}", found, most, "Use a smaller value.")

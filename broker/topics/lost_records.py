"""Topics whose records are lost: they are not loaded, created or deleted.

Reads would silently stop before the first entry without a record, and new entries would be stored
next to the lost ones (storage/losses.py).
"""

from __future__ import annotations

from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.partition_names import parse_partition


def check_records(store: LedgerStore, *names: str) -> None:
    """Raises MetadataLost for topics with lost records, and for their partitioned topics."""
    for name, error in store.unrecorded.items():
        partition = parse_partition(name)
        if name in names or (partition is not None and partition.topic in names):
            raise error

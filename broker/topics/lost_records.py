"""A topic of which the metadata have lost records is not served (storage/losses.py).

Its entries would be read up to the first one that no record names, and then no more, without a
word; and new ones would be stored beside them.
"""

from __future__ import annotations

from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.partition_names import parse_partition


def check_records(store: LedgerStore, *topics: str) -> None:
    """Raises MetadataLost for such a topic, and for a partitioned one that had such a partition."""
    for name, error in store.unrecorded.items():
        partition = parse_partition(name)
        if name in topics or (partition is not None and partition.topic in topics):
            raise error

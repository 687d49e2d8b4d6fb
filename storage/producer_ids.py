"""The Kafka producer ids of a data directory: each is allocated once, like Kafka's in a cluster.

Ids are reserved in blocks, a synced write each. Ids in logs that are imported from another cluster
are skipped: if two producers had the same id, batches of one would count as duplicates of the
other's.

    >>> store = StoreRecord()
    >>> def change(edit):
    ...     edit(store)
    ...     return store
    >>> ids = ProducerIds(change)
    >>> ids.allocate(), ids.allocate()
    (0, 1)
    >>> ids.skip(41)
    >>> ids.allocate()
    42
    >>> ids.skip(7041)
    >>> ids.allocate()
    8000
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from ledgerfold.storage.errors import LimitExceeded
from ledgerfold.storage.limits import PRODUCER_IDS_MAX
from ledgerfold.v1.records_pb2 import StoreRecord

# The block size of Kafka's brokers.
IDS_PER_BLOCK = 1000


def first_behind(producer_id: int) -> int:
    """Returns the first id after the block of `producer_id`.

    >>> first_behind(-1), first_behind(0), first_behind(999), first_behind(1000)
    (0, 1000, 1000, 2000)
    """
    return (producer_id // IDS_PER_BLOCK + 1) * IDS_PER_BLOCK


class ProducerIds:
    """The ids that are still free. Threads share it.

    `change_store`: changes the store record durably and returns it. Raises DiskFailure.
    """

    def __init__(
        self, change_store: Callable[[Callable[[StoreRecord], object]], StoreRecord]
    ) -> None:
        self._change_store = change_store
        self._free: deque[int] = deque()
        # Held while a block is reserved, because all callers need that block.
        self._lock = threading.Lock()
        # Lower ids are known to be allocated or skipped.
        self._first_free = 0

    def allocate(self) -> int:
        """Returns an id that is never allocated again. Raises DiskFailure, LimitExceeded."""

        def edit(record: StoreRecord) -> None:
            if record.next_producer_id >= PRODUCER_IDS_MAX:
                raise LimitExceeded(
                    "Kafka producer ids",
                    record.next_producer_id,
                    PRODUCER_IDS_MAX,
                    "An imported log contains ids up to the limit: use another data directory.",
                )
            record.next_producer_id += IDS_PER_BLOCK

        with self._lock:
            if not self._free:
                end = self._change_store(edit).next_producer_id
                self._free.extend(range(end - IDS_PER_BLOCK, end))
            return self._free.popleft()

    def may_allocate(self, producer_id: int) -> bool:
        """Returns whether an id may be allocated later, as far as is known without the disk."""
        return self._first_free <= producer_id < PRODUCER_IDS_MAX

    def skip(self, producer_id: int) -> None:
        """Never allocates `producer_id` and lower ids. Raises DiskFailure.

        Ids from PRODUCER_IDS_MAX on are never allocated anyway, and skip no others.
        """
        if not self.may_allocate(producer_id):
            return

        def edit(record: StoreRecord) -> None:
            if producer_id >= record.next_producer_id:
                record.next_producer_id = first_behind(producer_id)

        with self._lock:
            self._change_store(edit)
            while self._free and self._free[0] <= producer_id:
                self._free.popleft()
            self._first_free = max(self._first_free, producer_id + 1)

"""Models which batches and markers a cleaning may drop, by the preceding transactions.

>>> met = Transactions()
>>> met.add([Aborted(7, 1, 2, 3)])
>>> met.may_drop(Batch(1, 1, (), pid=7, transactional=True))
True
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.model.kafka.batches import ABORT, COMMIT, Batch
from tests.model.kafka.segments import Aborted


class Transactions:
    """`kept`: index entries of aborted transactions with a preceding batch."""

    def __init__(self) -> None:
        self._ahead: list[Aborted] = []
        self._aborted: dict[int, tuple[Aborted, bool]] = {}  # and whether a batch precedes it
        self._committed: set[int] = set()
        self.kept: list[Aborted] = []

    def add(self, aborted: Iterable[Aborted]) -> None:
        self._ahead = sorted([*self._ahead, *aborted], key=lambda txn: txn.first)

    def may_drop(self, batch: Batch) -> bool:
        while self._ahead and self._ahead[0].first <= batch.last:
            txn = self._ahead.pop(0)
            self._aborted.setdefault(txn.pid, (txn, False))
        if batch.control:
            return self._marker(batch)
        if not batch.transactional:
            return False
        if batch.pid in self._aborted:
            self._aborted[batch.pid] = (self._aborted[batch.pid][0], True)
            return True
        self._committed.add(batch.pid)
        return False

    def _marker(self, batch: Batch) -> bool:
        if not batch.records:
            return True
        if batch.marker == ABORT:
            txn, was_met = self._aborted.pop(batch.pid, (None, False))
            if txn is not None and was_met:
                self.kept.append(txn)
            return not was_met
        if batch.marker == COMMIT:
            was_committed = batch.pid in self._committed
            self._committed.discard(batch.pid)
            return not was_committed
        return False

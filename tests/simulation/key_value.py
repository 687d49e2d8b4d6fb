"""The metadata store under a seed, with exactly RocksDB's guarantees.

A write is all or nothing, durable on return. A failed write may or may not be durable after a
crash; until then reads do not show it, and the next successful write undoes it first. For RETRY_S
after a failure every write fails. `on_write` is called for each write that takes effect: the one
moment at which durable state changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random

from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.key_value import MemoryKeyValue
from tests.simulation.disk import Disk
from tests.simulation.jobs import Jobs, Process
from tests.simulation.moments import is_being_written, is_written, write_kind

RETRY_S = 1.0
Pairs = Mapping[bytes, bytes]
OnWrite = Callable[[Pairs, tuple[bytes, ...], "PairStore"], None]


class PairStore(MemoryKeyValue):
    """The durable pairs, which outlive processes. `doubtful`: a failed write, which may be
    stored.
    """

    def __init__(self) -> None:
        super().__init__()
        self.doubtful: tuple[Pairs, tuple[bytes, ...]] | None = None
        # The request time of the current, or last, write.
        self.asked_s = 0.0
        # For each ledger that was to be deleted, when that was decided: its write may wait.
        self.decided_s: dict[int, float] = {}
        # All writes that took effect, in order.
        self.history: list[tuple[dict[bytes, bytes], tuple[bytes, ...]]] = []

    def write(self, puts: Pairs, deletes: Iterable[bytes]) -> None:
        deletes = tuple(deletes)
        self.history.append((dict(puts), deletes))
        super().write(puts, deletes)

    @property
    def pairs(self) -> dict[bytes, bytes]:
        return self._pairs


class SimKeyValue:
    """A KeyValueStore as one process sees it."""

    def __init__(
        self,
        store: PairStore,
        disk: Disk,
        process: Process,
        on_write: OnWrite,
        now_s: Callable[[], float],
        reach: Callable[[str], None] = lambda moment: None,
    ) -> None:
        """`reach`: called before and after each write."""
        self._store, self._disk, self._process = store, disk, process
        self._jobs: Jobs = disk.jobs
        self._on_write, self._now_s, self._reach = on_write, now_s, reach
        self._failure: DiskFailure | None = None
        self._failed_s = 0.0

    def get(self, key: bytes) -> bytes | None:
        return self._store.get(key)

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return self._store.scan(prefix)

    def last(self, prefix: bytes) -> tuple[bytes, bytes] | None:
        return next(reversed(self.scan(prefix)), None)

    def write(self, puts: Pairs, deletes: Iterable[bytes]) -> None:
        deletes = tuple(deletes)
        puts = dict(puts)
        asked_s, kind = self._now_s(), write_kind(puts, self._store.get)
        if kind:
            self._reach(is_being_written(kind))
        self._jobs.switch(self._process)
        self._jobs.reach(self._process, "metadata")
        self._check_failure()
        error = self._disk.fault("metadata", "metadata")
        if error is not None:
            may_be_durable = self._disk.random.random() < 0.5
            if may_be_durable:
                self._store.doubtful = (puts, deletes)
            self._failed_s = self._now_s()
            self._failure = DiskFailure(
                "metadata", "A metadata write", error, may_be_durable=may_be_durable
            )
            raise self._failure
        self._store.doubtful, self._store.asked_s = None, asked_s
        self._on_write(puts, deletes, self._store)
        self._store.write(puts, deletes)
        if kind:
            self._reach(is_written(kind))
        self._jobs.switch(self._process)

    def _check_failure(self) -> None:
        if self._failure is None:
            return
        if self._disk.is_full or self._now_s() < self._failed_s + RETRY_S:
            raise self._failure
        self._failure = None

    def close(self) -> None:
        """Does nothing."""


def settle_after_crash(store: PairStore, random: Random, on_write: OnWrite) -> bool:
    """Returns whether a failed write is visible after all."""
    doubtful, store.doubtful = store.doubtful, None
    if doubtful is None or random.random() < 0.5:
        return False
    on_write(*doubtful, store)
    store.write(*doubtful)
    return True

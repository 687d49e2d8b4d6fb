"""Models a log's producer state: epochs, sequences, open transactions, and expiration.

A producer's entry holds its last five batches; a snapshot of it only the last one. A transaction
is open until its marker lies below the high watermark.

Kafka forgets a producer some time after its last record's timestamp. In `documented`, resent
batches must not be stored twice: the entry stays until its last append is that old, and only the
cleaner ignores it (`keeps_resends`).

    >>> known = Producers({})
    >>> known.unstable() is None
    True
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tests.model.kafka.batches import ABORT, Batch
from tests.model.kafka.segments import Aborted

BATCHES_KEPT = 5
CLIENT, COORDINATOR, REPLICATION = "client", "coordinator", "replication"


class Refused(Exception):
    """`kind`: Kafka's name of the error."""

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind = kind


class Sent(NamedTuple):
    """A batch as stored in its producer's entry."""

    first: int
    last: int
    first_sequence: int
    last_sequence: int


@dataclass
class Producer:
    epoch: int = -1
    timestamp: int = -1
    sent: deque[Sent] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))
    transaction_first: int | None = None
    appended_ms: int = 0
    is_forgotten: bool = False

    def copy(self, batches: int = BATCHES_KEPT) -> Producer:
        kept = deque(list(self.sent)[-batches:], maxlen=BATCHES_KEPT)
        return replace(self, sent=kept)

    @property
    def last_data_offset(self) -> int | None:
        return self.sent[-1].last if self.sent else None

    @property
    def last_sequence(self) -> int:
        return self.sent[-1].last_sequence if self.sent else -1

    def enter(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.sent.clear()

    def duplicate_of(self, batch: Batch) -> Sent | None:
        if batch.epoch != self.epoch:
            return None
        wanted = (batch.base_sequence, batch.last_sequence)
        for sent in self.sent:
            if (sent.first_sequence, sent.last_sequence) == wanted:
                return sent
        return None


class Completed(NamedTuple):
    pid: int
    first: int
    last: int
    is_aborted: bool


Snapshots = dict[int, dict[int, Producer]]


class Producers:
    """`snapshots` are the files beside the segments, by offset; several instances may share
    them.
    """

    def __init__(
        self, snapshots: Snapshots, expiration_ms: int = 86_400_000, keeps_resends: bool = False
    ) -> None:
        self.known: dict[int, Producer] = {}
        self.open: dict[int, int] = {}  # first offset -> producer
        self.unreplicated: dict[int, int] = {}  # first offset -> marker's offset
        self.snapshots = snapshots
        self.map_end = self.snapshot_end = 0
        self._expiration_ms, self._keeps_resends = expiration_ms, keeps_resends

    # Appending

    def check(self, batch: Batch, origin: str) -> tuple[Producer, Completed | None]:
        """Returns the producer's entry after the batch, and the transaction that it ends."""
        entry = self.known.get(batch.pid, Producer()).copy()
        entry.appended_ms, entry.is_forgotten = batch.appended_ms, False
        if batch.control:
            return entry, self._end(entry, batch, origin)
        _check_epoch(entry, batch, origin)
        if origin == CLIENT:
            _check_sequence(entry, batch)
        entry.enter(batch.epoch)
        entry.sent.append(Sent(batch.base, batch.last, batch.base_sequence, batch.last_sequence))
        entry.timestamp = batch.max_timestamp
        if entry.transaction_first is not None and not batch.transactional:
            raise Refused("InvalidTxnStateException")
        if entry.transaction_first is None and batch.transactional:
            entry.transaction_first = batch.base
        return entry, None

    def _end(self, entry: Producer, batch: Batch, origin: str) -> Completed | None:
        if not batch.records:
            return None
        _check_epoch(entry, batch, origin)
        first, entry.transaction_first = entry.transaction_first, None
        entry.enter(batch.epoch)
        entry.timestamp = batch.timestamp_of(batch.records[0])
        if first is None:
            return None
        return Completed(batch.pid, first, batch.base, batch.marker == ABORT)

    def update(self, pid: int, entry: Producer) -> None:
        self.known[pid] = entry
        if entry.transaction_first is not None:
            self.open[entry.transaction_first] = pid

    def stable_after(self, done: Completed) -> int:
        """Returns the last stable offset without this transaction."""
        others = [first for first in self.open if first != done.first]
        return min(others, default=done.last + 1)

    def complete(self, done: Completed) -> None:
        self.open.pop(done.first, None)
        self.unreplicated[done.first] = done.last

    def replay(self, batch: Batch) -> Aborted | None:
        """Adds a batch of the existing log without checks. The index entry of an abort."""
        if not batch.has_producer:
            return None
        entry, done = self.check(batch, REPLICATION)
        if batch.records or not batch.control:
            self.update(batch.pid, entry)
        elif batch.pid not in self.known:
            self.known[batch.pid] = entry
        if done is None:
            return None
        stable = self.stable_after(done)
        self.complete(done)
        return Aborted(done.pid, done.first, done.last, stable) if done.is_aborted else None

    # Stable offsets

    def unstable(self) -> int | None:
        return min([*self.open, *self.unreplicated], default=None)

    def replicated_below(self, offset: int) -> None:
        self.unreplicated = {
            first: last for first, last in self.unreplicated.items() if last >= offset
        }

    def starts_at(self, log_start: int) -> None:
        self.replicated_below(log_start)
        if self.map_end < log_start:
            self.map_end = log_start
        self.snapshot_end = max(self.snapshots, default=log_start)

    # Expiration

    def expire(self, now_ms: int) -> None:
        self.known = {
            pid: entry for pid, entry in self.known.items() if not self._is_gone(entry, now_ms)
        }

    @property
    def active(self) -> dict[int, Producer]:
        """Returns the producers for which the cleaner retains something."""
        return {pid: entry.copy() for pid, entry in self.known.items() if not entry.is_forgotten}

    def _is_gone(self, entry: Producer, now_ms: int) -> bool:
        is_silent = now_ms - entry.timestamp >= self._expiration_ms
        entry.is_forgotten |= is_silent and entry.transaction_first is None
        is_recent = now_ms - entry.appended_ms < self._expiration_ms
        return entry.is_forgotten and not (self._keeps_resends and is_recent)

    # Snapshots

    @property
    def is_empty(self) -> bool:
        return not self.known and not self.unreplicated

    def take_snapshot(self) -> None:
        if self.map_end > self.snapshot_end:
            self.snapshots[self.map_end] = {pid: e.copy(1) for pid, e in self.known.items()}
            self.snapshot_end = self.map_end

    def drop_snapshots(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self.snapshots.pop(offset, None)

    def drop_snapshots_between(self, start: int, end: int) -> None:
        self.drop_snapshots([offset for offset in self.snapshots if start <= offset < end])

    def drop_strays(self, bases: set[int]) -> None:
        """Deletes snapshots that belong to no segment, except one beyond all segments."""
        strays = sorted(offset for offset in self.snapshots if offset not in bases)
        self.drop_snapshots(strays[:-1])
        if strays and bases and strays[-1] < max(bases):
            self.drop_snapshots(strays[-1:])

    def truncate(self, log_start: int, log_end: int, now_ms: int) -> None:
        """Truncates to the newest snapshot within the log."""
        outside = [at for at in self.snapshots if at > log_end or at <= log_start]
        self.drop_snapshots(outside)
        if log_end == self.map_end:
            self.starts_at(log_start)
            return
        self.known, self.open, self.unreplicated = {}, {}, {}
        newest = max(self.snapshots, default=None)
        self.map_end = self.snapshot_end = log_start if newest is None else newest
        for pid, kept in self.snapshots.get(self.snapshot_end, {}).items():
            entry = kept.copy()
            if not self._is_gone(entry, now_ms):
                self.update(pid, entry)


def _check_epoch(entry: Producer, batch: Batch, origin: str) -> None:
    if batch.epoch < entry.epoch and origin != REPLICATION:
        raise Refused("InvalidProducerEpochException")


def _check_sequence(entry: Producer, batch: Batch) -> None:
    first = batch.base_sequence
    if batch.epoch != entry.epoch:
        if first != 0 and entry.epoch != -1:
            raise Refused("OutOfOrderSequenceException")
        return
    last = entry.last_sequence
    follows = first == last + 1 or (first == 0 and last == 2**31 - 1)
    if entry.epoch != -1 and not follows:
        raise Refused("OutOfOrderSequenceException")

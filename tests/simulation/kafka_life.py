"""The oracle's memory of one life of a Kafka topic: the sent records, and their fate.

* A reported offset holds that record permanently, and a record has one offset.
* An existing offset is refused only once the log begins after it.
* A reader from an offset gets records in order, including all reported ones except those that a
  cleaning or retention may have removed: below the checkpoint, those of a key with a later record,
  expired tombstones, and aborted records; below the log's start, all.
* A reader of committed records sees nothing after an open transaction, and everything before it.
* Below the checkpoint each key occurs once. A cleaning changes nothing that is too young for
  min.compaction.lag.ms, and nothing after an open transaction.
* The log's start rises by an administrator's request, or because retention deletes a segment
  (kafka_limits.py).
* Truncated records are forgotten: other records get their offsets. Records that a cleaning removed
  because of a truncated record may be missing, and transactions may be open again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple

from ledgerfold.v1.compactor_pb2 import CleanPlan
from ledgerfold.v1.records_pb2 import TopicRecord


@dataclass(eq=False)
class Transaction:
    """`outcome`: commit or abort, once requested; `is_asked`: the request was sent, and the marker
    may exist; `is_ended`: the marker is durable; `may_be_open`: a truncation may have removed it,
    so that the next marker of its producer ends the transaction.
    """

    outcome: str = ""
    is_asked: bool = False
    is_ended: bool = False
    may_be_open: bool = False


@dataclass(frozen=True, eq=False)
class Sent:
    """A record, with an id in a header."""

    id: str
    key: bytes
    is_tombstone: bool
    transaction: Transaction | None = None
    timestamp_ms: int = 0

    @property
    def is_committed(self) -> bool:
        return self.transaction is None or self.transaction.outcome == "commit"

    @property
    def may_be_committed(self) -> bool:
        """Returns whether a reader of committed records may see it."""
        transaction = self.transaction
        if transaction is None or transaction.may_be_open:
            return True
        return transaction.outcome == "commit" and transaction.is_asked


class Round(NamedTuple):
    """A committed cleaning: everything below `end` was cleaned, at that time."""

    end: int
    time_ms: int
    delete_retention_ms: int


class Fence(NamedTuple):
    """The broker has shown that it knows an epoch, from a batch at that offset."""

    epoch: int
    offset: int


@dataclass(eq=False)
class KafkaLife:
    """`doubtful`: keys of records that may or may not be stored."""

    name: str
    fail: Callable[[str], None]
    at: dict[int, Sent] = field(default_factory=dict)
    place: dict[str, int] = field(default_factory=dict)
    # The last offset of a record's batch.
    last: dict[int, int] = field(default_factory=dict)
    doubtful: set[bytes] = field(default_factory=set)
    transactions: list[Transaction] = field(default_factory=list)
    # By transaction: the offset of its first reported record.
    firsts: dict[Transaction, int] = field(default_factory=dict)
    log_start: int = 0
    # The highest one so far.
    checkpoint: int = 0
    rounds: list[Round] = field(default_factory=list)
    # The worker's last request.
    planned: CleanPlan | None = None
    # How often it was truncated; tasks that began earlier check whether it was since.
    cuts: int = 0
    # Whether a truncation left the checkpoint above the log's end, as Kafka's does unless
    # cleanup.policy contains compact, and the active segment was deleted or replaced: later records
    # below the checkpoint are never compared.
    is_checkpoint_stale: bool = False
    # Superseded, below the checkpoint, by truncated records.
    may_be_gone: set[int] = field(default_factory=set)
    # Ids of truncated records.
    gone: set[str] = field(default_factory=set)
    # By producer id.
    fences: dict[int, Fence] = field(default_factory=dict)
    # Offsets to which the log's start was to be moved, by request.
    starts_asked: list[int] = field(default_factory=list)
    # For batches that were sent, and have no answer.
    in_flight_bytes: int = 0
    record: TopicRecord = field(default_factory=TopicRecord)
    # Changes of settings without an answer, which take effect between their write and their answer.
    settings_changing: int = 0
    # min.compaction.lag.ms before these changes.
    lag_before_ms: int = 0
    # Earlier values, each with the time at which the change that ended it was answered.
    earlier_lags_ms: list[tuple[int, int]] = field(default_factory=list)

    def on_record(self, record: TopicRecord, may_start_at: Callable[[TopicRecord], bool]) -> None:
        """`may_start_at`: whether retention may have made the log begin at the record's start."""
        log = record.kafka
        if log.HasField("truncated_to"):
            self._cut(log.truncated_to)
            if log.first_dirty_offset > log.truncated_to:
                is_compacted = "compact" in log.config.get("cleanup.policy", "compact")
                actives = [each.base_offset for each in self.record.kafka.segments[-1:]]
                if is_compacted and log.truncated_to < min(actives, default=0):
                    self.fail(
                        f"the checkpoint {log.first_dirty_offset} is above the end of the log, "
                        f"which was truncated to {log.truncated_to}"
                    )
                self.is_checkpoint_stale = True
        if log.log_start_offset < self.log_start:
            self.fail(f"the log's start goes back from {self.log_start} to {log.log_start_offset}")
        if log.log_start_offset > self.log_start and not self.cuts:
            is_order = log.log_start_offset <= max(self.starts_asked, default=-1)
            if not (is_order or may_start_at(record)):
                self.fail(
                    f"the log's start goes from {self.log_start} to {log.log_start_offset}, "
                    "and retention keeps what lay before it"
                )
        self.log_start = log.log_start_offset
        if log.first_dirty_offset > self.checkpoint:
            self.checkpoint = log.first_dirty_offset
        planned = self.planned
        if planned is not None and planned.upper_bound >= log.first_dirty_offset > 0:
            is_new = log.first_dirty_offset != self.record.kafka.first_dirty_offset
            if is_new or len(log.segments) != len(self.record.kafka.segments):
                end = log.first_dirty_offset
                self.rounds.append(Round(end, planned.time_ms, planned.delete_retention_ms))
        self.record = record

    def _cut(self, end: int) -> None:
        gone = {at: each for at, each in self.at.items() if self.last[at] >= end}
        for offset, sent in self.at.items():
            later = (other for other, each in gone.items() if each.key == sent.key)
            if any(offset < other < self.checkpoint for other in later):
                self.may_be_gone.add(offset)
        for offset, sent in gone.items():
            del self.at[offset], self.place[sent.id], self.last[offset]
            self.gone.add(sent.id)
        # A batch across the end is gone from its first record on.
        self.may_be_gone &= self.at.keys()
        for sent in self.at.values():
            if sent.transaction is not None:
                sent.transaction.may_be_open |= sent.transaction.is_asked
        self.checkpoint, self.log_start = min(self.checkpoint, end), min(self.log_start, end)
        self.cuts += 1
        self.fences.clear()
        self.rounds.clear()
        self.planned = None

    def copied(self) -> KafkaLife:
        """Returns a copy that lives on by itself. Which transactions are open there is unknown."""
        life = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | set | list):
                setattr(life, name, copy(value))
        for sent in life.at.values():
            if sent.transaction is not None:
                sent.transaction.may_be_open |= sent.transaction.is_asked
        life.cuts += 1
        life.fences = {}
        life.planned = None
        life.in_flight_bytes = 0
        return life

    # Settings

    @contextmanager
    def changing_settings(self, now_ms: Callable[[], int]) -> Iterator[None]:
        """Until a change is answered, the previous settings may be in force."""
        if not self.settings_changing:
            self.lag_before_ms = self.lag_ms
        self.settings_changing += 1
        try:
            yield
        finally:
            self.settings_changing -= 1
            self.earlier_lags_ms.append((now_ms(), self.lag_before_ms))

    # The worker's requests

    @property
    def lag_ms(self) -> int:
        """Returns min.compaction.lag.ms as recorded."""
        return int(self.record.kafka.config.get("min.compaction.lag.ms", "0"))

    def on_plan(self, plan: CleanPlan) -> None:
        self.planned = plan
        # The cleaning was planned at `time_ms`, with any value that was in force since.
        lags_ms = [lag_ms for end_ms, lag_ms in self.earlier_lags_ms if plan.time_ms <= end_ms]
        if self.settings_changing:
            lags_ms.append(self.lag_before_ms)
        min_lag_ms = min([self.lag_ms, *lags_ms])
        upto, young_ms = plan.upper_bound, plan.time_ms - min_lag_ms
        for offset, sent in self.at.items():
            if self.log_start <= plan.first_dirty_offset <= offset < upto:
                if min_lag_ms > 0 and sent.timestamp_ms > young_ms:
                    self.fail(f"a round up to {upto} takes {sent.id} at {offset}, which is young")
                self._check_behind_open(offset, f"a round up to {upto} takes")

    def _check_behind_open(self, offset: int, what: str) -> None:
        """(After a truncation, it is unknown which transactions are open.)"""
        if self.cuts:
            return
        for transaction, first in self.firsts.items():
            if first < offset and first >= self.log_start and not transaction.is_asked:
                self.fail(f"{what} {offset}, and a transaction is open from {first} on")

    # Reports to clients

    def told(self, offset: int, sent: Sent, last: int) -> None:
        """A record was reported by a receipt, or to a reader. `last`: of its batch."""
        if sent.id in self.gone:
            self.fail(f"{sent.id} was cut off, and is at {offset}")
        self.last[offset] = last
        if offset in self.may_be_gone and self.at[offset] is not sent:
            # It was cleaned, and the log ended before it: a load finds the end behind its last
            # batch, as Kafka's does.
            self.may_be_gone.remove(offset)
            cleaned = self.at.pop(offset)
            del self.place[cleaned.id]
            self.gone.add(cleaned.id)
        other = self.at.setdefault(offset, sent)
        if other is not sent:
            self.fail(f"offset {offset} is {other.id}'s, and now {sent.id}'s")
        place = self.place.setdefault(sent.id, offset)
        if place != offset:
            self.fail(f"{sent.id} is at {place}, and at {offset}, too")
        if sent.transaction is not None:
            known = self.firsts.get(sent.transaction, offset)
            self.firsts[sent.transaction] = min(known, offset)

    def read_committed(self, offset: int, sent: Sent) -> None:
        """A reader of committed records got it."""
        if not sent.may_be_committed:
            self.fail(f"{sent.id} at {offset} is not committed, and is read as if it were")
        self._check_behind_open(offset, "who reads what is committed gets")

    def fenced(self, producer_id: int, epoch: int, offset: int) -> None:
        """The broker knows that epoch: from now on it refuses an older one."""
        known = self.fences.get(producer_id)
        if known is None or known.epoch <= epoch:
            self.fences[producer_id] = Fence(epoch, offset)

    def fence_of(self, producer_id: int) -> int:
        """Returns the epoch below which nothing may be accepted. The batch with it may be deleted:
        0 then.
        """
        known = self.fences.get(producer_id)
        return 0 if known is None or known.offset < self.log_start else known.epoch

    def refused(self, offset: int | None, *, is_given: bool) -> None:
        """A reader at that offset got the error that it is out of range.

        `is_given`: the reader reached it by itself; otherwise only reported offsets count.
        """
        if offset is None or not (is_given or offset in self.at):
            return
        if self.cuts and all(each in self.may_be_gone for each in self.at if each >= offset):
            # A load finds the log's end behind its last batch, as Kafka's does.
            return
        if offset >= self.log_start:
            self.fail(f"{offset} is refused, and the log's start is {self.log_start}")

    # What a reader must have received

    def promised(self, *, committed: bool) -> list[int]:
        """Returns what a reader that starts now, and reaches the end, must have received."""
        stable = self._stable() if committed else None
        return sorted(each for each in self.at if stable is None or each < stable)

    def _stable(self) -> int | None:
        """Returns the start of the oldest transaction that has not durably ended; None: none is
        open.
        """
        if self.cuts:
            return 0
        open_ones = [each for each in self.transactions if not each.is_ended]
        # The start of a transaction that was not reported yet is unknown.
        return min((self.firsts.get(each, 0) for each in open_ones), default=None)

    def check(self, start: int, found: list[int], promised: Iterable[int], committed: bool) -> None:
        """Checks what a reader received from `start` to the end. `promised`: at its last
        request.
        """
        got = set(found)
        for offset in promised:
            if start <= offset and offset not in got:
                why = self._missing(offset, committed)
                if why:
                    self.fail(f"a reader from {start} does not get {offset}: {why}")

    def check_clean(self, found: Iterable[int], checkpoint: int) -> None:
        """`checkpoint`: the broker's when the reader of `found` began."""
        if self.is_checkpoint_stale:
            return
        last = dict[bytes, int]()
        for offset in found:
            key = self.at[offset].key
            if offset >= checkpoint:
                return
            if key in last:
                self.fail(f"{last[key]} and {offset} are both {key!r}, below {checkpoint}")
            last[key] = offset

    def _missing(self, offset: int, committed: bool) -> str:
        sent = self.at[offset]
        if offset < self.log_start or (committed and not sent.is_committed):
            return ""
        if offset >= self.checkpoint:
            return f"{sent.id}, behind the checkpoint {self.checkpoint}"
        if sent.key in self.doubtful or not sent.is_committed:
            return ""
        if offset in self.may_be_gone:
            return ""
        later = (
            each
            for other, each in self.at.items()
            if offset < other < self.checkpoint and each.key == sent.key
        )
        if any(each.is_committed for each in later):
            return ""
        if sent.is_tombstone:
            return "" if self._has_lapsed(offset) else f"{sent.id}, a tombstone before its time"
        return f"{sent.id}, the last of {sent.key!r} below the checkpoint {self.checkpoint}"

    def _has_lapsed(self, offset: int) -> bool:
        """Returns whether a cleaning may have removed a tombstone: long enough after the first one
        that found it.
        """
        if self.cuts:
            return True
        rounds = [each for each in self.rounds if each.end > offset]
        return any(
            each.time_ms >= rounds[0].time_ms + rounds[0].delete_retention_ms for each in rounds[1:]
        )

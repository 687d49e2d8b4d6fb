"""What must hold of a Kafka topic: one life of it, what was sent to it, and what became of that.

* An offset that anybody was told of holds that record for good, and a record has one offset.
* An offset that there was is refused only once the log begins behind it.
* Who reads from an offset gets records in order, and of those that were told of before all that no
  round and no retention may have taken: below the checkpoint those of a key with a later record,
  tombstones, and what was aborted; below the log's start everything.
* Below the checkpoint no key is there twice.
* What a truncation cuts off is forgotten: other records get its offsets. What a round took out for
  the sake of a record that goes then may be gone, and transactions may be open again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ledgerfold.v1.records_pb2 import TopicRecord


@dataclass(eq=False)
class Transaction:
    """`outcome`: commit or abort, once it is asked for; `is_ended`: the marker is durable."""

    outcome: str = ""
    is_ended: bool = False


@dataclass(frozen=True, eq=False)
class Sent:
    """A record, under an id that it carries as a header."""

    id: str
    key: bytes
    is_tombstone: bool
    transaction: Transaction | None = None

    @property
    def is_committed(self) -> bool:
        return self.transaction is None or self.transaction.outcome == "commit"


@dataclass(eq=False)
class KafkaLife:
    """`doubtful`: keys of records of which nobody knows whether they are stored."""

    name: str
    fail: Callable[[str], None]
    at: dict[int, Sent] = field(default_factory=dict)
    place: dict[str, int] = field(default_factory=dict)
    # The last offset of the batch that a record is in.
    last: dict[int, int] = field(default_factory=dict)
    doubtful: set[bytes] = field(default_factory=set)
    transactions: list[Transaction] = field(default_factory=list)
    log_start: int = 0
    # The highest there ever was.
    checkpoint: int = 0
    rounds: int = 0
    # How often it was truncated; who began before asks whether it was since.
    cuts: int = 0
    # Superseded, below the checkpoint, by what was cut off.
    may_be_gone: set[int] = field(default_factory=set)
    # Ids of what was cut off.
    gone: set[str] = field(default_factory=set)

    def on_record(self, record: TopicRecord) -> None:
        log = record.kafka
        if log.HasField("truncated_to"):
            self._cut(log.truncated_to)
        if log.log_start_offset < self.log_start:
            self.fail(f"the log's start goes back from {self.log_start} to {log.log_start_offset}")
        self.log_start = log.log_start_offset
        if log.first_dirty_offset > self.checkpoint:
            self.checkpoint = log.first_dirty_offset
            self.rounds += 1

    def _cut(self, end: int) -> None:
        gone = {at: each for at, each in self.at.items() if self.last[at] >= end}
        for offset, sent in self.at.items():
            later = (other for other, each in gone.items() if each.key == sent.key)
            if any(offset < other < self.checkpoint for other in later):
                self.may_be_gone.add(offset)
        for offset, sent in gone.items():
            del self.at[offset], self.place[sent.id], self.last[offset]
            self.gone.add(sent.id)
        self.may_be_gone = {each for each in self.may_be_gone if each < end}
        self.checkpoint, self.log_start = min(self.checkpoint, end), min(self.log_start, end)
        self.cuts += 1

    def told(self, offset: int, sent: Sent, last: int) -> None:
        """By a receipt, or to a reader. `last`: of its batch."""
        if sent.id in self.gone:
            self.fail(f"{sent.id} was cut off, and is at {offset}")
        self.last[offset] = last
        other = self.at.setdefault(offset, sent)
        if other is not sent:
            self.fail(f"offset {offset} is {other.id}'s, and now {sent.id}'s")
        place = self.place.setdefault(sent.id, offset)
        if place != offset:
            self.fail(f"{sent.id} is at {place}, and at {offset}, too")

    def refused(self, offset: int | None, *, is_given: bool) -> None:
        """A reader at that offset is told that it is out of range.

        `is_given`: the reader came to it by itself; else only one that somebody was told of counts.
        """
        if offset is None or not (is_given or offset in self.at):
            return
        if offset >= self.log_start:
            self.fail(f"{offset} is refused, and the log's start is {self.log_start}")

    def check(self, start: int, found: list[int], promised: Iterable[int], committed: bool) -> None:
        """What a reader got from `start` to the end. `promised`: told of before it asked for it."""
        if committed and (self.cuts or not all(each.is_ended for each in self.transactions)):
            # What is open holds the last stable offset back.
            return
        got = set(found)
        for offset in promised:
            if start <= offset and offset not in got:
                why = self._missing(offset, committed)
                if why:
                    self.fail(f"a reader from {start} does not get {offset}: {why}")

    def check_clean(self, found: Iterable[int], checkpoint: int) -> None:
        """`checkpoint`: as the broker had it when the reader of `found` began."""
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
        if sent.is_tombstone or sent.key in self.doubtful or not sent.is_committed:
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
        return f"{sent.id}, the last of {sent.key!r} below the checkpoint {self.checkpoint}"

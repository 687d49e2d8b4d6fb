"""The parts of a repair: words for people, records, files to split, to cut and to copy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from google.protobuf.message import Message

from ledgerfold.storage.label import Label
from ledgerfold.storage.ledger_check import LedgerCheck
from ledgerfold.storage.records import key_of
from ledgerfold.storage.segment_check import Extent, SegmentCheck
from ledgerfold.storage.survey import Survey
from ledgerfold.storage.verify import NO_LEDGER
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_DELETING,
    LedgerRecord,
    SegmentRecord,
    TopicRecord,
)


class Extract(NamedTuple):
    """Bytes of `source` that become the segment `target`. Paths as in a SegmentRecord."""

    source: str
    offset: int
    size_bytes: int
    target: str


class Cut(NamedTuple):
    """Of the segment `path` only these bytes stay, after the records say so."""

    path: str
    offset: int
    size_bytes: int


class Step(NamedTuple):
    """One thing that is done, in words. `messages`: lost by it; None when nobody knows."""

    what: str
    topic: str = ""
    ledger_id: int = NO_LEDGER
    entries: str = ""
    messages: int | None = 0


@dataclass(slots=True)
class RepairPlan:
    """`copies`: files to keep, as they are, first. `refused`: what is left as it is, and why.

    `rebuilds_metadata`: records are put back by what the ledgers tell, and what they do not tell is
    lost.
    """

    steps: list[Step] = field(default_factory=list)
    refused: list[Step] = field(default_factory=list)
    puts: dict[bytes, Message] = field(default_factory=dict)
    deletes: set[bytes] = field(default_factory=set)
    extracts: list[Extract] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    copies: set[str] = field(default_factory=set)
    labels: list[Label] = field(default_factory=list)
    # How many writes the metadata have had, this one included; 0: they are not counted yet.
    writes: int = 0
    copies_metadata: bool = False
    rebuilds_metadata: bool = False

    def keep(self, check: SegmentCheck, extent: Extent, target: str) -> SegmentRecord:
        """The record of good entries that stand, or are put, into the file `target`."""
        kept = SegmentRecord()
        kept.CopyFrom(extent.record)
        kept.path = target
        source, size = check.segment.path, kept.size_bytes
        if target != source:
            self.copies.add(source)
            self.extracts.append(Extract(source, extent.offset, size, target))
        elif size != check.size_bytes:
            self.copies.add(source)
            self.cuts.append(Cut(source, extent.offset, size))
        return kept


class Draft:
    """A plan in the making, with the records as they will be.

    `ledgers`: without those that are to be deleted. `restored`: compacted ones that are put back.
    """

    def __init__(self, survey: Survey, now_ms: int) -> None:
        self.survey, self.now_ms = survey, now_ms
        self.plan = RepairPlan()
        self.topics = {name: _copy(each) for name, each in survey.topics().items()}
        self.ledgers = {each: check.record for each, check in survey.ledgers.items()}
        self.restored: set[int] = set()

    def step(
        self, what: str, topic: str = "", ledger_id: int = NO_LEDGER, messages: int | None = 0
    ) -> None:
        self.plan.steps.append(Step(what, topic, ledger_id, "", messages))

    def put(self, record: Message) -> None:
        self.plan.puts[key_of(record)] = record

    def delete(self, key: bytes) -> None:
        self.plan.deletes.add(key)

    def is_there(self, path: str) -> bool:
        """Whether a file is there. `path`: below the ledgers folder."""
        folder, _, name = path.partition("/")
        return folder.isdecimal() and name in self.survey.folders.get(int(folder), [])

    def delete_ledger(self, check: LedgerCheck) -> None:
        """Its files go with the next start, as those of every ledger in that state."""
        record = LedgerRecord()
        record.CopyFrom(check.record)
        record.state = LEDGER_STATE_DELETING
        self.plan.copies |= {each.path for each in record.segments if self.is_there(each.path)}
        self.put(record)
        del self.ledgers[record.ledger_id]


def _copy(record: TopicRecord) -> TopicRecord:
    copied = TopicRecord()
    copied.CopyFrom(record)
    return copied

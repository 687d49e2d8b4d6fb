"""The parts of a repair plan: steps in words, records, files to split, to cut and to copy."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import NamedTuple

from google.protobuf.message import Message

from ledgerfold.storage.label import Label
from ledgerfold.storage.names import deletion_vector_path
from ledgerfold.storage.records import key_of
from ledgerfold.storage.repair.ledger_check import LedgerCheck
from ledgerfold.storage.repair.survey import Survey
from ledgerfold.storage.repair.verify import NO_LEDGER
from ledgerfold.storage.segment_findings import Extent, SegmentCheck
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_DELETING,
    SegmentRecord,
)


class Extract(NamedTuple):
    """A range of bytes of `source` that becomes segment `target`. Paths as in a SegmentRecord."""

    source: str
    offset: int
    size_bytes: int
    target: str


class Cut(NamedTuple):
    """The range of bytes of the segment `path` that remains once the records are written."""

    path: str
    offset: int
    size_bytes: int


class Step(NamedTuple):
    """A step, in words. `messages`: the number lost by it; None if unknown."""

    what: str
    topic: str = ""
    ledger_id: int = NO_LEDGER
    entries: str = ""
    messages: int | None = 0


@dataclass(slots=True)
class RepairPlan:
    """A repair plan. `copies`: files to copy first. `refused`: what stays unchanged, and why.

    `rebuilds_metadata`: records are restored from the ledgers; what these do not contain is lost.
    """

    steps: list[Step] = field(default_factory=list)
    refused: list[Step] = field(default_factory=list)
    puts: dict[bytes, Message] = field(default_factory=dict)
    deletes: set[bytes] = field(default_factory=set)
    extracts: list[Extract] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    copies: set[str] = field(default_factory=set)
    # The deletion vectors of good entries, by path relative to the ledgers folder.
    vectors: dict[str, bytes] = field(default_factory=dict)
    labels: list[Label] = field(default_factory=list)
    # The number of writes of the metadata, including this one; 0: not counted yet.
    writes: int = 0
    copies_metadata: bool = False
    rebuilds_metadata: bool = False

    def keep(self, check: SegmentCheck, extent: Extent, target: str) -> SegmentRecord:
        """Returns the record of good entries that stay in, or are moved to, the file `target`."""
        kept = deepcopy(extent.record)
        kept.path = target
        source, size = check.segment.path, kept.size_bytes
        if target != source:
            self.copies.add(source)
            self.extracts.append(Extract(source, extent.offset, size, target))
        elif size != check.size_bytes:
            self.copies.add(source)
            self.cuts.append(Cut(source, extent.offset, size))
        if check.vector is not None and not kept.HasField("dead"):
            stored, record = extent.dead.finish()
            if record.messages:
                kept.dead.CopyFrom(record)
                self.vectors[deletion_vector_path(target)] = stored
        return kept


class Draft:
    """A plan in progress, with the records as they will be.

    `ledgers`: without those to be deleted. `restored`: compacted ledgers that are restored.
    """

    def __init__(self, survey: Survey, now_ms: int) -> None:
        self.survey, self.now_ms = survey, now_ms
        self.plan = RepairPlan()
        self.topics = {name: deepcopy(each) for name, each in survey.topics().items()}
        self.ledgers = {each: check.record for each, check in survey.ledgers.items()}
        self.restored: set[int] = set()

    def step(
        self,
        what: str,
        topic: str = "",
        ledger_id: int = NO_LEDGER,
        messages: int | None = 0,
        entries: str = "",
    ) -> None:
        self.plan.steps.append(Step(what, topic, ledger_id, entries, messages))

    def put(self, record: Message) -> None:
        self.plan.puts[key_of(record)] = record

    def delete(self, key: bytes) -> None:
        self.plan.deletes.add(key)

    def exists(self, path: str) -> bool:
        """Returns whether the file at `path`, relative to the ledgers folder, exists."""
        folder, _, name = path.partition("/")
        return folder.isdecimal() and name in self.survey.folders.get(int(folder), [])

    def delete_ledger(self, check: LedgerCheck) -> None:
        """Marks the ledger as being deleted; the next start removes its files."""
        record = deepcopy(check.record)
        record.state = LEDGER_STATE_DELETING
        paths = [each.path for each in record.segments]
        paths += [
            deletion_vector_path(each.path) for each in record.segments if each.HasField("dead")
        ]
        self.plan.copies |= {each for each in paths if self.exists(each)}
        self.put(record)
        del self.ledgers[record.ledger_id]

"""What a repair consists of: words for people, records, files to split, to cut and to copy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from google.protobuf.message import Message

from ledgerfold.storage.segment_check import Extent, SegmentCheck
from ledgerfold.storage.verify import NO_LEDGER
from ledgerfold.v1.records_pb2 import SegmentRecord


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
    """`copies`: files to keep, as they are, first. `refused`: what is left as it is, and why."""

    steps: list[Step] = field(default_factory=list)
    refused: list[Step] = field(default_factory=list)
    puts: dict[bytes, Message] = field(default_factory=dict)
    deletes: set[bytes] = field(default_factory=set)
    extracts: list[Extract] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    copies: set[str] = field(default_factory=set)
    copies_metadata: bool = False

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

"""The findings of a check of a segment file (segment_check.py): extents, damage and their sums.

An Extent is a run of good entries between damaged places; a Damage is one of these places. Nothing
here reads a file.

Bounds: an Extent and a Damage for each damaged place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ledgerfold.storage.deletion_vector import DeadTally, DeletionVector
from ledgerfold.storage.entry import Position, position_of
from ledgerfold.storage.errors import IncompatibleFormat
from ledgerfold.storage.kafka.span import Span
from ledgerfold.v1.records_pb2 import SegmentRecord


class ProducerSeen(NamedTuple):
    """A producer's highest sequence id in a file. `offset`: of an entry that has the producer's
    name.
    """

    sequence_id: int
    offset: int


@dataclass(slots=True)
class Origin:
    """The origin of an extent's entries: the ledgers to which they were published, and their
    producers, by number.
    """

    ledger_ids: set[int] = field(default_factory=set)
    producers: dict[int, ProducerSeen] = field(default_factory=dict)
    has_pulsar_entries: bool = False


class Extent(NamedTuple):
    """A run of good entries. `record` is their tally, with the path of their file.

    `span`: of those entries that are Kafka's batches; `dead`: their dead messages, if the segment
    has an intact deletion vector.
    """

    offset: int
    record: SegmentRecord
    span: Span
    dead: DeadTally
    origin: Origin

    @property
    def first(self) -> Position:
        return position_of(self.record.first)

    @property
    def last(self) -> Position:
        return position_of(self.record.last)


@dataclass(slots=True)
class Damage:
    """A damaged place. `entry`: the first entry affected, in a raw ledger.

    `kind`: entry, order, file, sums or vector. `messages`: how many the entry has, if its header is
    good. `is_torn`: by rule 3.
    """

    kind: str
    offset: int
    expected: str
    found: str
    entry: Position
    messages: int | None = None
    is_torn: bool = False
    reaches_beyond: bool = False


@dataclass(slots=True)
class SegmentCheck:
    """The result of a check. `size_bytes`: None if the file is missing; `newer`: a later build
    wrote it.
    """

    segment: SegmentRecord
    size_bytes: int | None = None
    extents: list[Extent] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    newer: IncompatibleFormat | None = None
    # The segment's deletion vector, if it has an intact one.
    vector: DeletionVector | None = None

    @property
    def is_whole(self) -> bool:
        """True if the segment is intact, except for a torn tail, which recovery cuts."""
        is_good = all(each.is_torn for each in self.damages)
        return self.size_bytes is not None and is_good and self.newer is None

    @property
    def is_vector_lost(self) -> bool:
        """True if it is unknown which of its messages are dead."""
        return any(each.kind == "vector" for each in self.damages)

    @property
    def good_messages(self) -> int:
        return sum(each.record.messages for each in self.extents)

    @property
    def ledger_ids(self) -> set[int]:
        """The ledgers to which the good entries were published."""
        return set().union(*(each.origin.ledger_ids for each in self.extents))

    @property
    def producers(self) -> dict[int, ProducerSeen]:
        """The producers of the good entries, by number."""
        producers: dict[int, ProducerSeen] = {}
        for extent in self.extents:
            for number, seen in extent.origin.producers.items():
                producers[number] = max(seen, producers.get(number, seen))
        return producers

    @property
    def has_pulsar_entries(self) -> bool:
        return any(each.origin.has_pulsar_entries for each in self.extents)

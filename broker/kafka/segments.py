"""The segments of a loaded Kafka log: where a batch is, by its offset.

A segment is one cleaned ledger, or none where nothing was left, or raw ledgers one behind the
other (broker/kafka/listing.py). Offsets have gaps, within segments and between them; what is looked
for at an offset is the first batch that ends at or behind it.

    >>> segments = Segments([LiveSegment(0, [Part(3, 0)]), LiveSegment(40, [Part(5, 40)])])
    >>> segments.floor(39).base_offset, segments.floor(40).base_offset, segments.next_base(0)
    (0, 40, 40)

Bounds: what a load finds of each segment, about 0.5 KB, as long as the topic is loaded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ledgerfold.kafka.rolling import Growth
from ledgerfold.kafka.segment import Segment
from ledgerfold.storage.entry import HEADER_BYTES
from ledgerfold.v1.records_pb2 import (
    AbortedTransaction,
    KafkaSegment,
    KafkaSegmentFigures,
    LedgerRecord,
)


class Part(NamedTuple):
    """A ledger, and the first offset that may be in it."""

    ledger_id: int
    base_offset: int


@dataclass
class LiveSegment:
    """`parts`: of a cleaned segment one or none, of a raw one at least one."""

    base_offset: int
    parts: list[Part]
    # One that was never cleaned grows while it is the active one; a cleaned one is what it is.
    growth: Growth | None = None
    cleaned: Segment | None = None
    # Transactions whose abort marker lies in it.
    aborted: list[AbortedTransaction] = field(default_factory=list)

    @property
    def is_cleaned(self) -> bool:
        return self.cleaned is not None

    @property
    def ledger_ids(self) -> list[int]:
        return [part.ledger_id for part in self.parts]

    @property
    def facts(self) -> Segment:
        """What the rules ask of it."""
        if self.cleaned is not None:
            return self.cleaned
        assert self.growth is not None
        return self.growth.segment(self.parts[0].ledger_id)

    def know(self, told: KafkaSegmentFigures) -> None:
        """At a load: all that the record tells of it. Nobody has looked at its batches."""
        assert self.growth is not None
        self.growth.know(told)
        self.aborted = list(told.aborted)

    def check(self, told: KafkaSegmentFigures, reserved_upto: int) -> None:
        """At a load that has looked at its batches: is what the record tells of all of them?

        If not, its indexes are made anew, as Kafka's are after a crash. Transactions that were not
        replayed are those of the record: but for markers that a crash took, as other batches get
        their offsets. Below `reserved_upto` none does, and what a repair gave up there was true.
        """
        assert self.growth is not None
        behind = max(self.growth.next_offset, reserved_upto)
        known = {each.last_offset for each in self.aborted}
        self.aborted += [
            each
            for each in told.aborted
            if each.last_offset < behind and each.last_offset not in known
        ]
        if told.size_bytes == self.growth.size_bytes > 0:
            self.growth.know(told)
        else:
            self.growth.end()
            self.growth.unindexed_bytes = 0

    def remember_begin(self, begun_ms: int) -> None:
        """At a load: of one that holds nothing; 0: nothing tells."""
        assert self.growth is not None
        if begun_ms and not self.growth.size_bytes:
            self.growth.modified_ms = begun_ms

    def part_at(self, offset: int) -> int:
        """Which part may hold the first batch that ends at or behind `offset`."""
        at = bisect_right(self.parts, offset, key=lambda part: part.base_offset)
        return max(at - 1, 0)


def cleaned_segment(record: KafkaSegment) -> LiveSegment:
    """One that a cleaning wrote, from what the topic's record tells of it."""
    figures = record.figures
    facts = Segment(
        ledger_id=record.ledger_ids[0] if record.ledger_ids else -1,
        base_offset=record.base_offset,
        next_offset=figures.next_offset,
        size_bytes=figures.size_bytes,
        offset_index_bytes=figures.offset_index_bytes,
        time_index_bytes=figures.time_index_bytes,
        first_batch_timestamp_ms=figures.first_batch_timestamp_ms,
        max_timestamp_ms=figures.largest_timestamp_ms,
        max_timestamp_offset=figures.largest_timestamp_offset,
        modified_ms=figures.modified_ms,
    )
    parts = [Part(each, record.base_offset) for each in record.ledger_ids]
    return LiveSegment(record.base_offset, parts, cleaned=facts, aborted=list(figures.aborted))


def empty_segment(base_offset: int, modified_ms: int) -> KafkaSegment:
    """One of which a cleaning left nothing, as the topic's record tells of it."""
    facts = Segment(-1, base_offset, base_offset, 0, modified_ms=modified_ms)
    figures = figures_of(facts, ())
    return KafkaSegment(base_offset=base_offset, is_cleaned=True, figures=figures)


def batches_bytes(record: LedgerRecord) -> int:
    """Of the batches in a raw ledger, which is entries end to end and nothing else."""
    return sum(each.size_bytes - each.entries * HEADER_BYTES for each in record.segments)


def figures_of(facts: Segment, aborted: Iterable[AbortedTransaction]) -> KafkaSegmentFigures:
    """As the topic's record keeps them of a cleaned segment."""
    return KafkaSegmentFigures(
        next_offset=facts.next_offset,
        size_bytes=facts.size_bytes,
        offset_index_bytes=facts.offset_index_bytes,
        time_index_bytes=facts.time_index_bytes,
        first_batch_timestamp_ms=facts.first_batch_timestamp_ms,
        largest_timestamp_ms=facts.max_timestamp_ms,
        largest_timestamp_offset=facts.max_timestamp_offset,
        modified_ms=facts.modified_ms,
        aborted=aborted,
    )


class Segments:
    """Oldest first; the last one is the active one. Used on the event loop only."""

    def __init__(self, segments: Iterable[LiveSegment] = ()) -> None:
        self._all = list(segments)

    def __iter__(self) -> Iterator[LiveSegment]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def active(self) -> LiveSegment:
        return self._all[-1]

    @property
    def last_ended(self) -> LiveSegment:
        """The active one, if there is no other."""
        return self._all[-2:][0]

    def before(self, segment: LiveSegment) -> Sequence[LiveSegment]:
        """Those in front of it; none, if it is not there any more."""
        at = next((at for at, each in enumerate(self._all) if each is segment), 0)
        return self._all[:at]

    def append(self, segment: LiveSegment) -> None:
        self._all.append(segment)

    def replace_first(self, count: int, by: Sequence[LiveSegment]) -> None:
        self._all[:count] = by

    def replace_active(self, by: Sequence[LiveSegment]) -> None:
        self._all[-1:] = by

    def index(self, offset: int) -> int:
        """Of the segment that an offset belongs to: the first one, for what lies before it."""
        at = bisect_right(self._all, offset, key=lambda each: each.base_offset)
        return max(at - 1, 0)

    def floor(self, offset: int) -> LiveSegment:
        return self._all[self.index(offset)]

    def since(self, offset: int) -> Sequence[LiveSegment]:
        """The one that an offset belongs to, and those behind it."""
        return self._all[self.index(offset) :]

    def next_base(self, index: int) -> int | None:
        """Where the segment behind that one begins; None: that is the active one."""
        at = index + 1
        return self._all[at].base_offset if at < len(self._all) else None

    def holds(self, ledger_id: int) -> bool:
        return any(ledger_id in segment.ledger_ids for segment in self._all)

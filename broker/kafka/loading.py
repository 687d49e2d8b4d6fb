"""A segment of a Kafka log, as a load finds it.

What the topic's record tells of a segment was written when the segment ended, or when the log was
closed well. If that is of all that lies in its ledgers now, and nobody needs its batches, none of
them is looked at: a load takes as long as there are segments, not batches. After a crash those of
the active segment are looked at, and of any segment that has not all that it had.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ledgerfold.broker.kafka.reads import headers_of, whole_batch
from ledgerfold.broker.kafka.segments import LiveSegment, Part, batches_bytes, cleaned_segment
from ledgerfold.broker.log.ledger_record import last_entry
from ledgerfold.broker.log.raw_ledgers import RawLedgers
from ledgerfold.kafka.rolling import Growth
from ledgerfold.storage.kafka.batch import BatchHeader, read_batch_header
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.v1.records_pb2 import KafkaLog, KafkaSegment, KafkaSegmentFigures


class FoundBatch(NamedTuple):
    """A batch that a load looks at. `batch()` reads it whole.

    `is_behind_loss`: between the one before it and it a repair gave up entries.
    """

    segment: LiveSegment
    header: BatchHeader
    append_time_ms: int
    batch: Callable[[], bytes]
    is_behind_loss: bool = False


class SegmentLoader:
    """Used on a thread. All raise DiskFailure, Corruption, MissingFile.

    `grow`: how a segment with that base offset grows, by the topic's settings.
    """

    def __init__(
        self, store: LedgerStore, ledgers: RawLedgers, grow: Callable[[int], Growth]
    ) -> None:
        self._store, self._ledgers, self._grow = store, ledgers, grow
        # By base offset, of segments that were never cleaned.
        self._told: dict[int, KafkaSegmentFigures] = {}
        # Of those that hold what is told, no less: by the last ledger that holds anything.
        self._ends: dict[int, int] = {}
        # A repair gave up entries behind the last batch that was looked at, and that matters.
        self.is_behind_loss = False

    def learn(self, log: KafkaLog) -> None:
        """What the record tells of segments, before the log goes on; their ledgers are closed.

        A crash takes what a segment held last, a repair any of it, and nothing is added to one that
        ended: what is as large as it was is what it was.
        """
        for at, segment in enumerate(log.segments, 1):
            if segment.is_cleaned:
                continue
            if at == len(log.segments) and not segment.HasField("figures"):
                self._told[segment.base_offset] = KafkaSegmentFigures(aborted=log.rolled.aborted)
                continue
            self._told[segment.base_offset] = told = segment.figures
            records = [self._ledgers.record(each) for each in segment.ledger_ids]
            if told.size_bytes and told.size_bytes == sum(map(batches_bytes, records)):
                last = max(each.ledger_id for each in records if last_entry(each) is not None)
                self._ends[last] = told.next_offset

    def segment(
        self, segment: KafkaSegment, since: int, found: Callable[[FoundBatch], object]
    ) -> LiveSegment:
        """`found`: is told of the batches that are looked at, in order.

        They are if some lie at or behind `since`, or it does not hold what the record tells.
        """
        if segment.is_cleaned:
            live = cleaned_segment(segment)
            if segment.figures.next_offset > since:
                self._look_at(live, live.ledger_ids, found)
            return live
        live = LiveSegment(segment.base_offset, [], self._grow(segment.base_offset))
        told = self._told.get(segment.base_offset, KafkaSegmentFigures())
        if told.next_offset <= since and not self._ends.keys().isdisjoint(segment.ledger_ids):
            live.parts += self._parts(segment, told.next_offset)
            live.know(told)
        else:
            # A repair left nothing of what was counted.
            is_repaired = segment.HasField("figures") and not told.size_bytes
            self._look_at(live, segment.ledger_ids, found, is_repaired=is_repaired)
            live.remember_begin(segment.begun_ms)
            self._see_end(live.facts.next_offset, segment.reserved_upto, since)
            live.check(told, segment.reserved_upto)
        return live

    def _see_end(self, end: int, reserved_upto: int, since: int) -> None:
        """What is lost before `since` is known by other means."""
        self.is_behind_loss |= reserved_upto > end
        self.is_behind_loss &= max(end, reserved_upto) > since

    def end_of(self, ledger_id: int) -> int | None:
        """The offset behind what a raw ledger holds; None: it holds nothing."""
        if last_entry(self._ledgers.record(ledger_id)) is None:
            return None
        if ledger_id in self._ends:
            return self._ends[ledger_id]
        entry = self._store.open_reader(ledger_id).last_entry()
        assert entry is not None
        return read_batch_header(entry.data, entry.header.header_bytes).next_offset

    def _parts(self, segment: KafkaSegment, end: int) -> list[Part]:
        """One that holds nothing begins where the one behind it does, or the segment ends."""
        first, *others = segment.ledger_ids
        parts, base_offset = list[Part](), end
        for ledger_id in reversed(others):
            if last_entry(self._ledgers.record(ledger_id)) is not None:
                _, header = next(headers_of(self._store.open_reader(ledger_id)))
                base_offset = header.base_offset
            parts.append(Part(ledger_id, base_offset))
        return [Part(first, segment.base_offset), *reversed(parts)]

    def _look_at(
        self,
        live: LiveSegment,
        ledger_ids: Iterable[int],
        found: Callable[[FoundBatch], object],
        *,
        is_repaired: bool = False,
    ) -> None:
        """Each of its batches. Of one that was never cleaned all is learned from them.

        `is_repaired`: where offsets are missing between its ledgers, one was given up.
        """
        next_base = live.base_offset
        for ledger_id in ledger_ids:
            if live.growth is not None:
                live.parts.append(Part(ledger_id, next_base))
            reader = self._store.open_reader(ledger_id)
            lost = [each.first_entry_id for each in reader.record.lost]
            for entry, header in headers_of(reader):
                if live.growth is not None:
                    live.growth.add(header, entry.append_time_ms)
                whole = functools.partial(whole_batch, reader, entry.position)
                if is_repaired and entry.entry_id == 0 and header.base_offset > next_base:
                    self.is_behind_loss = True
                while lost and lost[0] < entry.entry_id:
                    del lost[0]
                    self.is_behind_loss = True
                found(FoundBatch(live, header, entry.append_time_ms, whole, self.is_behind_loss))
                self.is_behind_loss = False
                next_base = header.next_offset
            self.is_behind_loss |= bool(lost)

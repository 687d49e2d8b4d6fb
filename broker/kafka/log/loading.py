"""Loads a segment of a Kafka log.

The recorded sizes of a segment were written when it ended or when the log was closed cleanly. If
they match its ledgers and its batches are not needed otherwise, no batch is read: the time of a
load depends on the number of segments, not of batches. After a crash the batches of the active
segment are read, and those of every segment that has lost some.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ledgerfold.broker.kafka.log.reads import headers_of, whole_batch
from ledgerfold.broker.kafka.log.segments import LiveSegment, Part, batches_bytes, cleaned_segment
from ledgerfold.broker.log.ledger_record import last_entry
from ledgerfold.broker.log.raw_ledgers import RawLedgers
from ledgerfold.kafka.rolling import Growth
from ledgerfold.storage.kafka.batch import BatchHeader, read_batch_header
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.v1.records_pb2 import KafkaLog, KafkaSegment, KafkaSegmentFigures


class FoundBatch(NamedTuple):
    """A batch that a load reads. `batch()` reads it whole.

    `is_behind_loss`: a repair gave up entries between it and the batch before it.
    """

    segment: LiveSegment
    header: BatchHeader
    append_time_ms: int
    batch: Callable[[], bytes]
    is_behind_loss: bool = False


class SegmentLoader:
    """Loads segments, on a thread. All methods raise DiskFailure, Corruption, MissingFile.

    `grow`: creates the size tracker of a segment with that base offset, by the topic's settings.
    """

    def __init__(
        self, store: LedgerStore, ledgers: RawLedgers, grow: Callable[[int], Growth]
    ) -> None:
        self._store, self._ledgers, self._grow = store, ledgers, grow
        # Recorded figures of segments that were never cleaned, by base offset.
        self._figures: dict[int, KafkaSegmentFigures] = {}
        # The recorded end of each complete segment, by its last ledger that is not empty.
        self._ends: dict[int, int] = {}
        # A repair gave up entries after the last batch that was read, and their loss matters.
        self.is_behind_loss = False

    def read_record(self, log: KafkaLog) -> None:
        """Reads the recorded figures, before the log is opened for appends; its ledgers are closed.

        A crash removes the end of a segment, a repair any part of it, and nothing is added to a
        segment that has ended. So if its size is the recorded size, its contents are unchanged.
        """
        for at, segment in enumerate(log.segments, 1):
            if segment.is_cleaned:
                continue
            if at == len(log.segments) and not segment.HasField("figures"):
                self._figures[segment.base_offset] = KafkaSegmentFigures(aborted=log.rolled.aborted)
                continue
            self._figures[segment.base_offset] = figures = segment.figures
            records = [self._ledgers.record(each) for each in segment.ledger_ids]
            if figures.size_bytes and figures.size_bytes == sum(map(batches_bytes, records)):
                last = max(each.ledger_id for each in records if last_entry(each) is not None)
                self._ends[last] = figures.next_offset

    def segment(
        self, segment: KafkaSegment, offset: int, on_batch: Callable[[FoundBatch], object]
    ) -> LiveSegment:
        """Loads a segment. `on_batch` is called with each batch that is read, in order.

        Batches are read if some of them end after `offset`, or if the segment does not match its
        record.
        """
        if segment.is_cleaned:
            live = cleaned_segment(segment)
            if segment.figures.next_offset > offset:
                self._read_batches(live, live.ledger_ids, on_batch)
            return live
        live = LiveSegment(segment.base_offset, [], self._grow(segment.base_offset))
        figures = self._figures.get(segment.base_offset, KafkaSegmentFigures())
        if figures.next_offset <= offset and not self._ends.keys().isdisjoint(segment.ledger_ids):
            live.parts += self._parts(segment, figures.next_offset)
            live.restore(figures)
        else:
            # A repair cleared the figures.
            is_repaired = segment.HasField("figures") and not figures.size_bytes
            self._read_batches(live, segment.ledger_ids, on_batch, is_repaired=is_repaired)
            live.restore_begin(segment.begun_ms)
            self._see_end(live.facts.next_offset, segment.reserved_upto, offset)
            live.check(figures, segment.reserved_upto)
        return live

    def _see_end(self, end: int, reserved_upto: int, offset: int) -> None:
        """Notes a loss at the segment's end. A loss before `offset` is already accounted for."""
        self.is_behind_loss |= reserved_upto > end
        self.is_behind_loss &= max(end, reserved_upto) > offset

    def end_of(self, ledger_id: int) -> int | None:
        """Returns the offset after a raw ledger's last batch; None if it is empty."""
        if last_entry(self._ledgers.record(ledger_id)) is None:
            return None
        if ledger_id in self._ends:
            return self._ends[ledger_id]
        entry = self._store.open_reader(ledger_id).last_entry()
        assert entry is not None
        return read_batch_header(entry.data, entry.header.header_bytes).next_offset

    def _parts(self, segment: KafkaSegment, end: int) -> list[Part]:
        """Returns the segment's parts. An empty one begins where the next one does, or at the
        segment's end.
        """
        first, *others = segment.ledger_ids
        parts, base_offset = list[Part](), end
        for ledger_id in reversed(others):
            if last_entry(self._ledgers.record(ledger_id)) is not None:
                _, header = next(headers_of(self._store.open_reader(ledger_id)))
                base_offset = header.base_offset
            parts.append(Part(ledger_id, base_offset))
        return [Part(first, segment.base_offset), *reversed(parts)]

    def _read_batches(
        self,
        live: LiveSegment,
        ledger_ids: Iterable[int],
        on_batch: Callable[[FoundBatch], object],
        *,
        is_repaired: bool = False,
    ) -> None:
        """Reads all batches of a segment. The figures of a segment that was never cleaned are
        computed from them.

        `is_repaired`: missing offsets between its ledgers mean that a ledger was given up.
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
                read_whole = functools.partial(whole_batch, reader, entry.position)
                if is_repaired and entry.entry_id == 0 and header.base_offset > next_base:
                    self.is_behind_loss = True
                while lost and lost[0] < entry.entry_id:
                    del lost[0]
                    self.is_behind_loss = True
                on_batch(
                    FoundBatch(live, header, entry.append_time_ms, read_whole, self.is_behind_loss)
                )
                self.is_behind_loss = False
                next_base = header.next_offset
            self.is_behind_loss |= bool(lost)

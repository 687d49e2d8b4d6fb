"""Truncates a Kafka log: deletes everything at or after an offset, acknowledged or not.

A Kafka follower does this when its log diverges from its leader's. The log is closed meanwhile, and
the result is one synced write: the log is unchanged before it, and truncated after it.

1. Segments that begin after the offset are deleted. The one that holds it becomes the active
   segment, even if it was cleaned: appends continue in it.
2. Batches that extend beyond the offset are deleted completely; the log's end is the offset anyway.
   A ledger is not cut: its remaining batches are copied into a new one.
3. If the offset is below the log's first segment, no segment remains, and the log restarts at the
   offset.
4. The log's record follows: producers are those of the newest remaining snapshot, from which the
   next load replays; aborted transactions whose marker is deleted become ordinary data; the log
   start is no higher than the log's end. If the active segment is deleted or replaced, the
   checkpoint of a compacted log is no higher than the base offset of the new active segment.

Source: UnifiedLog.truncateTo and truncateFullyAndStartAt, LogSegment.truncateTo, TimeIndex,
LogManager.truncateTo, LogCleanerManager.maybeTruncateCheckpoint of Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from itertools import chain
from typing import NamedTuple

from ledgerfold.broker.kafka.log.checkpoint_file import truncated
from ledgerfold.broker.kafka.log.reads import headers_of
from ledgerfold.broker.kafka.log.segments import figures_of
from ledgerfold.broker.kafka.producers.producer_snapshots import newest_snapshot
from ledgerfold.kafka.rolling import Growth
from ledgerfold.storage.crash_points import reach
from ledgerfold.storage.entry import EARLIEST, LATEST
from ledgerfold.storage.errors import DiskFailure, LedgerfoldError
from ledgerfold.storage.kafka.batch import BatchHeader
from ledgerfold.storage.ledger import LedgerReader, LedgerStore
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.records import put_segments
from ledgerfold.storage.writer import LedgerWriter
from ledgerfold.v1.records_pb2 import (
    KafkaLog,
    KafkaSegment,
    LedgerRecord,
    TopicRecord,
)

# Bytes copied at a time.
_COPY_BYTES = 1024 * 1024


class _Remainder(NamedTuple):
    """The rest of a segment. `ledger`: the ledger of its copied batches, if there are any."""

    segment: KafkaSegment
    ledger: LedgerRecord | None


def truncate(
    record: TopicRecord,
    offset: int,
    store: LedgerStore,
    metadata: MetadataStore,
    grow: Callable[[int, int], Growth],
    now_ms: int,
    *,
    is_compacted: bool,
    knows_producers: bool,
) -> list[int]:
    """Truncates a log that was closed cleanly and ends after the offset. Changes `record`, too.

    `knows_producers`: whether a producer is known, or a transaction has ended above the high
    watermark.

    Runs on a thread. Returns the ledgers that are no longer referenced. Raises DiskFailure,
    Corruption, MissingFile: nothing has changed then.
    """
    log, old_active = record.kafka, record.kafka.segments[-1].base_offset
    remaining = [each for each in log.segments if each.base_offset <= offset]
    remainder = _Remainder(KafkaSegment(base_offset=offset), None)
    if remaining:
        is_ended = remaining[-1].base_offset != old_active
        growth = grow(remaining[-1].base_offset, now_ms)
        remainder = _Truncation(
            store, record.name, remaining.pop(), offset, growth, is_ended
        ).remainder(now_ms)
        log.log_start_offset = min(log.log_start_offset, offset)
    else:
        log.log_start_offset = offset
    _set_load_state(log, offset, remainder.segment, knows_producers=knows_producers)
    named = {each for segment in log.segments for each in segment.ledger_ids}
    put_segments(log, [*remaining, remainder.segment])
    ledger_ids = {each for segment in log.segments for each in segment.ledger_ids}
    raw = (segment for segment in log.segments if not segment.is_cleaned)
    record.ledger_ids[:] = [each for segment in raw for each in segment.ledger_ids]
    if is_compacted and offset < old_active and log.HasField("first_dirty_offset"):
        log.first_dirty_offset = truncated(log.first_dirty_offset, remainder.segment.base_offset)
    gone = sorted(named - ledger_ids)
    _write(record, remainder.ledger, gone, store, metadata)
    return gone


def _write(
    record: TopicRecord,
    ledger: LedgerRecord | None,
    deleted_ids: Sequence[int],
    store: LedgerStore,
    metadata: MetadataStore,
) -> None:
    reach("truncate.before-batch")
    try:
        with metadata.batch() as batch:
            if ledger is not None:
                batch.put(ledger)
            for ledger_id in deleted_ids:
                store.mark_deleting(ledger_id, batch)
            batch.put(record)
    except LedgerfoldError as error:
        # NOTE: the next start decides about a failed write that may be durable after all.
        may_be_durable = isinstance(error, DiskFailure) and error.may_be_durable
        if ledger is not None and not may_be_durable:
            store.delete_files(ledger.ledger_id)
        raise
    reach("truncate.after-batch")


def _set_load_state(
    log: KafkaLog, offset: int, active: KafkaSegment, *, knows_producers: bool
) -> None:
    """Sets the state that the next load starts from. `active`: the new active segment."""
    active.producers.CopyFrom(newest_snapshot(log, active.base_offset))
    log.rolled.CopyFrom(newest_snapshot(log, offset))
    if not knows_producers:
        # NOTE: as in Kafka, without known producers the remaining batches are not replayed.
        log.rolled.end_offset = offset
    if not active.producers.end_offset == active.base_offset < log.rolled.end_offset:
        active.ClearField("producers")
    del log.rolled.aborted[:]
    aborted = active.figures.aborted
    log.rolled.aborted.extend(each for each in aborted if each.last_offset < log.rolled.end_offset)
    log.truncated_to = offset
    log.ClearField("closed")
    log.ClearField("loaded")


class _Truncation:
    """Truncates one segment at `offset`. `growth`: a fresh size tracker at the segment's base
    offset.

    `is_ended`: the segment was not the active one.
    """

    def __init__(
        self,
        store: LedgerStore,
        topic: str,
        segment: KafkaSegment,
        offset: int,
        growth: Growth,
        is_ended: bool,
    ) -> None:
        self._store, self._topic, self._segment = store, topic, segment
        self._offset, self._growth, self._is_ended = offset, growth, is_ended

    def remainder(self, now_ms: int) -> _Remainder:
        old, growth, created = self._segment, self._growth, None
        new = KafkaSegment(base_offset=old.base_offset)
        for at, ledger_id in enumerate(old.ledger_ids):
            reader = self._store.open_reader(ledger_id)
            batches = (header for _, header in headers_of(reader))
            count, first_gone = self._keep(batches)
            if count and (first_gone is not None or old.is_cleaned):
                created = self._copied(reader, count)
                new.ledger_ids.append(created.ledger_id)
            elif count:
                new.ledger_ids.append(ledger_id)
            if first_gone is None:
                is_closed, is_cut = self._is_closed_behind(at), ledger_id in old.cut_behind
            else:
                gone = chain([first_gone], batches, self._headers_after(at))
                is_closed, is_cut = self._is_in_time_index(gone), True
            if is_closed:
                growth.end()
            if is_closed or is_cut:
                growth.unindexed_bytes = 0
                behind = new.closed_behind if is_closed else new.cut_behind
                behind.extend(new.ledger_ids[-1:])
            if first_gone is not None:
                break
        if new.ledger_ids:
            growth.modified_ms = now_ms
            aborted = (each for each in old.figures.aborted if each.last_offset < self._offset)
            new.figures.CopyFrom(figures_of(growth.segment(new.ledger_ids[0]), aborted, now_ms))
            new.figures.last_time_entry_ms = growth.last_time_entry_ms
        if old.reserved_upto:
            # Nothing is added to a segment of which a repair gave up entries.
            new.reserved_upto = min(old.reserved_upto, self._offset)
        return _Remainder(new, created)

    def _keep(self, batches: Iterator[BatchHeader]) -> tuple[int, BatchHeader | None]:
        """Returns how many of a ledger's batches stay, and the first batch that is deleted."""
        count = 0
        for header in batches:
            if header.next_offset > self._offset:
                return count, header
            self._growth.add(header, 0)
            count += 1
        return count, None

    def _is_closed_behind(self, at: int) -> bool:
        """Returns whether the indexes were closed after the ledger at `at`."""
        ledger_ids = self._segment.ledger_ids
        is_end = self._is_ended and at + 1 == len(ledger_ids)
        return is_end or ledger_ids[at] in self._segment.closed_behind

    def _headers_after(self, at: int) -> Iterator[BatchHeader | None]:
        """Yields the batches of later ledgers, and None where the indexes were closed."""
        for index, ledger_id in list(enumerate(self._segment.ledger_ids))[at:]:
            if index > at:
                reader = self._store.open_reader(ledger_id)
                yield from (header for _, header in headers_of(reader))
            if self._is_closed_behind(index):
                yield None

    def _is_in_time_index(self, headers: Iterable[BatchHeader | None]) -> bool:
        """Returns whether the time index keeps an entry for the highest remaining time.

        It keeps an entry that was added later: by a deleted batch before a higher time came, or
        when the indexes were closed.
        """
        grown = copy(self._growth)
        for header in headers:
            if header is None:
                return True
            grown.add(header, 0)
            if grown.max_timestamp_ms > self._growth.max_timestamp_ms:
                return False
            if grown.time_entries > self._growth.time_entries:
                return True
        return False

    def _copied(self, reader: LedgerReader, count: int) -> LedgerRecord:
        """Copies the first batches of a ledger into a new one. Raises DiskFailure, Corruption."""
        writer = self._store.create_unfinished(self._topic)
        try:
            last = self._copy(reader, count, writer)
            record = writer.finish()
        except LedgerfoldError:
            self._store.delete_files(writer.ledger_id)
            raise
        for each in reader.record.lost:
            if each.last_entry_id < last:
                record.lost.add().CopyFrom(each)
                record.lost[-1].ledger_id = record.ledger_id
        return record

    def _copy(self, reader: LedgerReader, count: int, writer: LedgerWriter) -> int:
        """Copies the first `count` batches. Returns the id of the last entry."""
        start = EARLIEST
        while count:
            for entry in reader.read(start, bytes_max=_COPY_BYTES, end=LATEST)[:count]:
                header = entry.header
                if not self._segment.is_cleaned:
                    # Entries that a repair gave up stay missing.
                    writer.skip_to(header.entry_id)
                body = memoryview(entry.data)[header.header_bytes :]
                writer.append(header, (body,), header.append_time_ms, header.producer_number)
                start = header.position.next
                count -= 1
            writer.flush()
        return start.entry_id - 1

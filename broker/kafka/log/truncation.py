"""Truncating a Kafka log: what lies at or behind an offset goes, acknowledged or not.

So a follower begins when its leader has not what it has. The log is closed while it is done, and
what comes of it is one synced write: before it all is as it was, after it all is truncated.

1. Segments that begin behind the offset go. The one that holds it is the active one from now on,
   also if it was cleaned: appends go on in it.
2. Of that one whole batches go, all that reach behind the offset, and the log's end is the offset
   none the less. A ledger that is cut in its midst is not touched: the batches that stay are copied
   into a new one, aside.
3. Below the log's first segment nothing stays, and the log begins anew at the offset.
4. What the log's record tells goes with it: producers are those of the newest snapshot that is
   left, and the next load replays what follows it; aborted transactions whose marker is gone are
   data again; the log's start is no higher than its end.
5. Where the active segment goes or is another one, the cleaner's checkpoint of a compacted log is
   no higher than the base offset of the new one.

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
from ledgerfold.broker.kafka.producers.producer_snapshots import newest_upto
from ledgerfold.kafka.rolling import Growth
from ledgerfold.storage.crash_points import reach
from ledgerfold.storage.entry import EARLIEST, LATEST
from ledgerfold.storage.errors import DiskFailure, LedgerfoldError
from ledgerfold.storage.kafka.batch import BatchHeader
from ledgerfold.storage.ledger import LedgerReader, LedgerStore
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.writer import LedgerWriter
from ledgerfold.v1.records_pb2 import (
    KafkaLog,
    KafkaSegment,
    LedgerRecord,
    TopicRecord,
)

# Copied at once.
_COPY_BYTES = 1024 * 1024


class _Head(NamedTuple):
    """What stays of a segment; `made`: the ledger of its last batches, if they were copied."""

    segment: KafkaSegment
    made: LedgerRecord | None


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
    """Of a log that was closed well, and ends behind the offset; `record` is changed, too.

    `knows_producers`: any, or that a transaction has ended above the high watermark.

    On a thread. The ledgers that nobody names any more. Raises DiskFailure, Corruption,
    MissingFile: nothing has changed then.
    """
    log, old_active = record.kafka, record.kafka.segments[-1].base_offset
    kept = [each for each in log.segments if each.base_offset <= offset]
    head = _Head(KafkaSegment(base_offset=offset), None)
    if kept:
        is_ended = kept[-1].base_offset != old_active
        growth = grow(kept[-1].base_offset, now_ms)
        head = _Cut(store, record.name, kept.pop(), offset, growth, is_ended).head(now_ms)
        log.log_start_offset = min(log.log_start_offset, offset)
    else:
        log.log_start_offset = offset
    _remember(log, offset, head.segment, knows_producers=knows_producers)
    named = {each for segment in log.segments for each in segment.ledger_ids}
    _put_list(log, [*kept, head.segment])
    left = {each for segment in log.segments for each in segment.ledger_ids}
    raw = (segment for segment in log.segments if not segment.is_cleaned)
    record.ledger_ids[:] = [each for segment in raw for each in segment.ledger_ids]
    if is_compacted and offset < old_active and log.HasField("first_dirty_offset"):
        log.first_dirty_offset = truncated(log.first_dirty_offset, head.segment.base_offset)
    gone = sorted(named - left)
    _write(record, head.made, gone, store, metadata)
    return gone


def _write(
    record: TopicRecord,
    made: LedgerRecord | None,
    gone: Sequence[int],
    store: LedgerStore,
    metadata: MetadataStore,
) -> None:
    reach("truncate.before-batch")
    try:
        with metadata.batch() as batch:
            if made is not None:
                batch.put_ledger(made)
            for ledger_id in gone:
                store.mark_deleting(ledger_id, batch)
            batch.put_topic(record)
    except LedgerfoldError as error:
        # NOTE: what a failed write may have published after all is the next start's to judge.
        may_be_durable = isinstance(error, DiskFailure) and error.may_be_durable
        if made is not None and not may_be_durable:
            store.delete_files(made.ledger_id)
        raise
    reach("truncate.after-batch")


def _put_list(log: KafkaLog, segments: list[KafkaSegment]) -> None:
    relisted = KafkaLog(segments=segments)
    del log.segments[:]
    log.segments.extend(relisted.segments)


def _remember(log: KafkaLog, offset: int, active: KafkaSegment, *, knows_producers: bool) -> None:
    """What the next load begins with. `active`: the segment that is it then."""
    active.producers.CopyFrom(newest_upto(log, active.base_offset))
    log.rolled.CopyFrom(newest_upto(log, offset))
    if not knows_producers:
        # NOTE: as in Kafka, who knew of none looks for none in what is left.
        log.rolled.end_offset = offset
    if not active.producers.end_offset == active.base_offset < log.rolled.end_offset:
        active.ClearField("producers")
    del log.rolled.aborted[:]
    aborted = active.figures.aborted
    log.rolled.aborted.extend(each for each in aborted if each.last_offset < log.rolled.end_offset)
    log.truncated_to = offset
    log.ClearField("closed")
    log.ClearField("loaded")


class _Cut:
    """Of one segment, at an offset. `growth`: of one that begins now where it begins.

    `is_ended`: it was not the active one.
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

    def head(self, now_ms: int) -> _Head:
        old, growth, made = self._segment, self._growth, None
        new = KafkaSegment(base_offset=old.base_offset)
        for at, ledger_id in enumerate(old.ledger_ids):
            reader = self._store.open_reader(ledger_id)
            batches = (header for _, header in headers_of(reader))
            count, first_gone = self._keep(batches)
            if count and (first_gone is not None or old.is_cleaned):
                made = self._copied(reader, count)
                new.ledger_ids.append(made.ledger_id)
            elif count:
                new.ledger_ids.append(ledger_id)
            if first_gone is None:
                is_closed, is_cut = self._is_closed_behind(at), ledger_id in old.cut_behind
            else:
                gone = chain([first_gone], batches, self._behind(at))
                is_closed, is_cut = self._is_noted(gone), True
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
            new.figures.CopyFrom(figures_of(growth.segment(new.ledger_ids[0]), aborted))
            new.figures.last_time_entry_ms = growth.last_time_entry_ms
        if old.reserved_upto:
            # A repair gave up something of it: nothing is added to it.
            new.reserved_upto = min(old.reserved_upto, self._offset)
        return _Head(new, made)

    def _keep(self, batches: Iterator[BatchHeader]) -> tuple[int, BatchHeader | None]:
        """How many of a ledger's batches stay, and the first that does not."""
        count = 0
        for header in batches:
            if header.next_offset > self._offset:
                return count, header
            self._growth.add(header, 0)
            count += 1
        return count, None

    def _is_closed_behind(self, at: int) -> bool:
        """Whether the segment's indexes were closed behind the ledger at that place."""
        ledger_ids = self._segment.ledger_ids
        is_end = self._is_ended and at + 1 == len(ledger_ids)
        return is_end or ledger_ids[at] in self._segment.closed_behind

    def _behind(self, at: int) -> Iterator[BatchHeader | None]:
        """The batches of the ledgers behind that one; None: the indexes were closed there."""
        for place, ledger_id in list(enumerate(self._segment.ledger_ids))[at:]:
            if place > at:
                reader = self._store.open_reader(ledger_id)
                yield from (header for _, header in headers_of(reader))
            if self._is_closed_behind(place):
                yield None

    def _is_noted(self, gone: Iterable[BatchHeader | None]) -> bool:
        """Whether the time index keeps an entry of the highest time that stays.

        One that was made later, by a batch that goes, before one of a higher time came, or when
        the indexes were closed.
        """
        grown = copy(self._growth)
        for header in gone:
            if header is None:
                return True
            grown.add(header, 0)
            if grown.max_timestamp_ms > self._growth.max_timestamp_ms:
                return False
            if grown.time_entries > self._growth.time_entries:
                return True
        return False

    def _copied(self, reader: LedgerReader, count: int) -> LedgerRecord:
        """The first batches of a ledger, in a new one. Raises DiskFailure, Corruption."""
        writer = self._store.create_aside(self._topic)
        try:
            last = self._copy(reader, count, writer)
            made = writer.finish()
        except LedgerfoldError:
            self._store.delete_files(writer.ledger_id)
            raise
        for each in reader.record.lost:
            if each.last_entry_id < last:
                made.lost.add().CopyFrom(each)
                made.lost[-1].ledger_id = made.ledger_id
        return made

    def _copy(self, reader: LedgerReader, count: int, writer: LedgerWriter) -> int:
        """The id of the last entry."""
        start = EARLIEST
        while count:
            for entry in reader.read(start, bytes_max=_COPY_BYTES, end=LATEST)[:count]:
                header = entry.header
                if not self._segment.is_cleaned:
                    # What a repair gave up stays missing.
                    writer.skip_to(header.entry_id)
                body = memoryview(entry.data)[header.header_bytes :]
                writer.append(header, (body,), header.append_time_ms, header.producer_number)
                start = header.position.next
                count -= 1
            writer.flush()
        return start.entry_id - 1
